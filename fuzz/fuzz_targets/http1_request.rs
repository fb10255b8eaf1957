//! Request heads: whole equals byte at a time, and what is accepted leaves no room for a second
//! reading.
#![no_main]

use dwell_proto::http1::{
    BodyFraming, FieldStorage, HeadError, HeadLimits, Version, head_end, next_request,
    parse_request,
};
use libfuzzer_sys::fuzz_target;

type Summary = (usize, String, String, BodyFraming, bool, usize);

fn next(input: &[u8], scanned: &mut usize) -> Result<Option<Summary>, HeadError> {
    let mut storage = FieldStorage::new();
    let head = next_request(input, scanned, &mut storage, &HeadLimits::default())?;
    Ok(head.map(|head| {
        let (method, target) = (head.method.to_owned(), head.target.to_owned());
        (head.length, method, target, head.framing, head.keep_alive, head.fields.len())
    }))
}

fuzz_target!(|input: &[u8]| {
    let whole = next(input, &mut 0);
    let mut scanned = 0;
    let mut by_bytes = Ok(None);
    for length in 1..=input.len() {
        by_bytes = next(&input[..length], &mut scanned);
        if !matches!(by_bytes, Ok(None)) {
            break;
        }
    }
    match &by_bytes {
        Ok(None) => assert!(!matches!(whole, Ok(Some(_)))),
        Ok(Some(_)) => assert_eq!(by_bytes, whole),
        Err(_) => assert!(whole.is_err()),
    }
    if let Ok(Some(summary)) = &whole {
        check_accepted(&input[..summary.0]);
        assert_eq!(head_end(input, &mut 0), Some(summary.0));
    }
    let mut storage = FieldStorage::new();
    let _ = parse_request(input, &mut storage, &HeadLimits::default());
});

fn check_accepted(text: &[u8]) {
    let mut storage = FieldStorage::new();
    let head = parse_request(text, &mut storage, &HeadLimits::default()).expect("accepted before");
    for (index, byte) in text.iter().enumerate() {
        match byte {
            b'\n' => assert_eq!(text[index - 1], b'\r'),
            b'\r' => assert_eq!(text[index + 1], b'\n'),
            _ => assert!(*byte == b'\t' || (*byte >= b' ' && *byte != 0x7f)),
        }
    }
    assert!(head.target.bytes().all(|byte| byte.is_ascii_graphic()));
    let lengths = head.fields.all("content-length").count();
    let codings = head.fields.all("transfer-encoding").count();
    assert!(lengths + codings <= 1);
    match head.framing {
        BodyFraming::None => assert_eq!(lengths + codings, 0),
        BodyFraming::Length(_) => assert_eq!(lengths, 1),
        BodyFraming::Chunked => assert!(codings == 1 && head.version == Version::Http11),
        BodyFraming::UntilClose => panic!("a request never ends with its connection"),
    }
    if head.version == Version::Http11 {
        assert_eq!(head.fields.all("host").count(), 1);
    }
}
