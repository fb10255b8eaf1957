use dwell_proto::memcache::ResponseDecoder;
use proptest::prelude::*;

use super::*;
use crate::blocking::options::KeyPolicy;

const REQUESTS: [Request<'static>; 11] = [
    Request::Get { with_cas: true },
    Request::GetAndTouch {
        exptime: 1,
        with_cas: false,
    },
    Request::Store {
        verb: StoreVerb::Set,
        value: b"value",
        flags: 1,
        exptime: 0,
    },
    Request::Delete,
    Request::Arithmetic {
        mode: ArithmeticMode::Increment,
        delta: 1,
    },
    Request::Touch { exptime: 1 },
    Request::MetaGet(MetaGet {
        value: true,
        cas_unique: true,
        size: true,
        ttl: true,
        last_access: true,
        was_read: true,
        no_bump: true,
        exptime: None,
        vivify: None,
        recache: None,
    }),
    Request::MetaSet {
        value: b"value",
        options: MetaSet {
            flags: 0,
            exptime: super::super::value::Exptime::Never,
            mode: MetaSetMode::Set,
            cas_unique: None,
            invalidate: false,
            cas_new: None,
            vivify: None,
        },
    },
    Request::MetaDelete(MetaDelete {
        cas_unique: None,
        invalidate: false,
        exptime: None,
        remove_value: false,
    }),
    Request::MetaArithmetic(MetaArithmetic {
        mode: ArithmeticMode::Increment,
        delta: 1,
        vivify: None,
        exptime: None,
        cas_unique: None,
    }),
    Request::MetaDebug,
];

/// What the bytes are to a request, shown so many at a time.
fn meaning(request: &Request<'_>, protocol: Protocol, bytes: &[u8], chunk: usize) -> String {
    let key = WireKey::new(b"a", KeyPolicy::Refuse, false).unwrap();
    let mut answer = Answer::new(request, key, protocol, 1);
    let mut decoder = ResponseDecoder::default();
    let mut start = 0;
    for end in (0..bytes.len()).map(|end| end + 1) {
        if !end.is_multiple_of(chunk) && end != bytes.len() {
            continue;
        }
        loop {
            match decoder.decode(&bytes[start..end]) {
                Err(_) => return "malformed".to_owned(),
                Ok(None) => break,
                Ok(Some((consumed, reply))) => {
                    start += consumed;
                    match answer.take(&reply) {
                        Err(fault) => return format!("{fault:?}"),
                        Ok(Progress::More) => {}
                        Ok(Progress::Done) => return format!("{:?}", answer.into_response()),
                    }
                }
            }
        }
    }
    "more".to_owned()
}

/// Bytes that are mostly replies.
fn replies() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just("VALUE a 0 3\r\nabc\r\n"),
        Just("VALUE b 0 0 7\r\n\r\n"),
        Just("END\r\n"),
        Just("STORED\r\n"),
        Just("NOT_FOUND\r\n"),
        Just("EXISTS\r\n"),
        Just("12\r\n"),
        Just("HD O1 c5 W\r\n"),
        Just("HD O2\r\n"),
        Just("HD\r\n"),
        Just("VA 2 O1 f0 t-1 Z\r\n10\r\n"),
        Just("VA 1 O1 f0\r\nx\r\n"),
        Just("EN\r\n"),
        Just("NF O1\r\n"),
        Just("MN\r\n"),
        Just("ME a exp=-1 la=0\r\n"),
        Just("ERROR\r\n"),
        Just("ERROR Too many open connections\r\n"),
        Just("CLIENT_ERROR bad data chunk\r\n"),
        Just("SERVER_ERROR out of memory\r\n"),
    ];
    let lines = prop::collection::vec(line, 0..4);
    (lines, prop::collection::vec(any::<u8>(), 0..6)).prop_map(|(lines, rest)| {
        let mut bytes = lines.concat().into_bytes();
        bytes.extend(rest);
        bytes
    })
}

proptest! {
    #[test]
    fn a_byte_at_a_time_means_what_the_whole_does(
        bytes in replies(),
        place in 0..REQUESTS.len(),
        is_meta in any::<bool>(),
        chunk in 1..20_usize,
    ) {
        let protocol = if is_meta { Protocol::Meta } else { Protocol::Text };
        let whole = meaning(&REQUESTS[place], protocol, &bytes, bytes.len().max(1));
        prop_assert_eq!(&whole, &meaning(&REQUESTS[place], protocol, &bytes, 1));
        prop_assert_eq!(&whole, &meaning(&REQUESTS[place], protocol, &bytes, chunk));
    }
}

#[test]
fn every_request_is_one_line_and_its_data() {
    for request in &REQUESTS {
        for protocol in [Protocol::Text, Protocol::Meta] {
            let key = WireKey::new(b"a", KeyPolicy::Refuse, false).unwrap();
            let mut wire = Vec::new();
            request.encode(&mut wire, &key, protocol, 1).unwrap();
            let text = String::from_utf8(wire).unwrap();
            let lines = 1 + usize::from(request.data().is_some());
            assert_eq!(text.matches("\r\n").count(), lines, "{text}");
            assert!(text.ends_with("\r\n"), "{text}");
        }
    }
}
