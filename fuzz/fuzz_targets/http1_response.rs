//! Response heads: the end is found however the bytes come, and framing is never doubtful.
#![no_main]

use dwell_proto::http1::{BodyFraming, FieldStorage, HeadLimits, head_end, parse_response};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let whole = head_end(input, &mut 0);
    let mut scanned = 0;
    let by_bytes = (1..=input.len()).find_map(|length| head_end(&input[..length], &mut scanned));
    assert_eq!(by_bytes, whole);

    let text = &input[..whole.unwrap_or(input.len())];
    for method in ["GET", "HEAD"] {
        let mut storage = FieldStorage::new();
        let Ok(head) = parse_response(text, &mut storage, &HeadLimits::default(), method) else {
            continue;
        };
        assert!(whole.is_some() && head.status >= 100);
        // A length may be said several times over, but not differently.
        let lengths = head.fields.all("content-length").count().min(1);
        let codings = head.fields.all("transfer-encoding").count();
        assert!(lengths + codings <= 1);
        assert_eq!(head.content_length.is_some(), lengths == 1);
        match head.framing {
            BodyFraming::Length(length) => assert_eq!(head.content_length, Some(length)),
            BodyFraming::Chunked => assert_eq!(codings, 1),
            BodyFraming::UntilClose => assert!(!head.keep_alive),
            BodyFraming::None => {
                assert!(method == "HEAD" || matches!(head.status, 100..=199 | 204 | 304));
            }
        }
    }
});
