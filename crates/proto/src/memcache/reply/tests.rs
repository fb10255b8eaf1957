use proptest::prelude::*;

use super::*;

fn transcript(chunks: &[&[u8]], limits: ReplyLimits) -> Vec<String> {
    let mut decoder = ResponseDecoder::new(limits);
    let mut pending = Vec::new();
    let mut seen = Vec::new();
    for chunk in chunks {
        pending.extend_from_slice(chunk);
        let mut consumed = 0;
        loop {
            match decoder.decode(&pending[consumed..]) {
                Ok(Some((bytes, reply))) => {
                    assert!(bytes > 0, "a reply without a byte");
                    consumed += bytes;
                    seen.push(format!("{reply:?}"));
                }
                Ok(None) => {
                    let rest = pending.len() - consumed;
                    assert!(decoder.needed() > rest || rest == 0, "asks for what it has");
                    break;
                }
                Err(_) => {
                    // Which bound is met first may depend on the cuts; that one is met may not.
                    seen.push("error".to_owned());
                    return seen;
                }
            }
        }
        pending.drain(..consumed);
    }
    seen
}

fn reply(input: &[u8]) -> Reply<'_> {
    let (consumed, reply) = ResponseDecoder::default().decode(input).unwrap().unwrap();
    assert_eq!(consumed, input.len());
    reply
}

fn failure(input: &[u8]) -> PeerError {
    ResponseDecoder::default().decode(input).unwrap_err()
}

#[test]
fn values() {
    let value = Reply::Value {
        key: b"a",
        flags: 5,
        cas_unique: None,
        value: b"x\r\ny",
    };
    assert_eq!(reply(b"VALUE a 5 4\r\nx\r\ny\r\n"), value);
    let value = Reply::Value {
        key: b"a",
        flags: 0,
        cas_unique: Some(u64::MAX),
        value: b"",
    };
    assert_eq!(reply(b"VALUE a 0 0 18446744073709551615\r\n\r\n"), value);
}

#[test]
fn fixed_lines() {
    let lines = [
        (&b"END\r\n"[..], Reply::End),
        (b"STORED\r\n", Reply::Stored),
        (b"NOT_STORED\r\n", Reply::NotStored),
        (b"EXISTS\r\n", Reply::Exists),
        (b"NOT_FOUND\r\n", Reply::NotFound),
        (b"DELETED\r\n", Reply::Deleted),
        (b"TOUCHED\r\n", Reply::Touched),
        (b"OK\r\n", Reply::Ok),
        (b"RESET\r\n", Reply::Reset),
        (b"42\r\n", Reply::Number(42)),
        (b"VERSION 1.6.18\r\n", Reply::Version(b"1.6.18")),
        (
            b"STAT pid 1 2\r\n",
            Reply::Stat {
                name: b"pid",
                value: b"1 2",
            },
        ),
        (
            b"STAT empty\r\n",
            Reply::Stat {
                name: b"empty",
                value: b"",
            },
        ),
    ];
    for (line, expected) in lines {
        assert_eq!(reply(line), expected);
    }
}

#[test]
fn meta_replies() {
    let Reply::MetaValue { flags, value } = reply(b"VA 2 s2 t-1 c228229 W O12\r\nhi\r\n") else {
        panic!()
    };
    assert_eq!(value, b"hi");
    assert_eq!(
        (flags.number(b's'), flags.number(b't')),
        (Some(2), Some(-1))
    );
    assert_eq!(flags.cas_unique(), Some(228_229));
    assert_eq!(flags.opaque(), Some(&b"12"[..]));
    assert_eq!((flags.find(b'W'), flags.find(b'Z')), (Some(&b""[..]), None));
    let Reply::Meta {
        status: MetaStatus::End,
        flags,
    } = reply(b"EN O7\r\n")
    else {
        panic!()
    };
    assert_eq!(flags.opaque(), Some(&b"7"[..]));
    assert!(matches!(
        reply(b"MN\r\n"),
        Reply::Meta {
            status: MetaStatus::Noop,
            ..
        }
    ));
    let Reply::MetaDebug { key, attributes } = reply(b"ME m exp=-1 la=0\r\n") else {
        panic!()
    };
    assert_eq!((key, attributes.text()), (&b"m"[..], &b"exp=-1 la=0"[..]));
}

#[test]
fn error_lines_keep_their_text() {
    let error = Reply::Error {
        kind: ErrorKind::ServerError,
        text: b"out of memory",
    };
    assert_eq!(reply(b"SERVER_ERROR out of memory\r\n"), error);
    assert_eq!(
        reply(b"ERROR\r\n"),
        Reply::Error {
            kind: ErrorKind::Error,
            text: b""
        }
    );
    assert!(!reply(b"ERROR\r\n").is_connection_refused());
    assert!(reply(b"ERROR Too many open connections\r\n").is_connection_refused());
    assert_eq!(
        reply(b"ERROR: shutdown not enabled\r\n"),
        Reply::Error {
            kind: ErrorKind::Error,
            text: b"shutdown not enabled"
        },
    );
}

#[test]
fn what_is_no_reply_is_refused() {
    for line in [
        &b"\r\n"[..],
        b"END\n",
        b"HTTP/1.1 400 Bad Request\r\n",
        b"VALUE a 0\r\n",
        b"VALUE a x 1\r\n",
        b"VALUE a 0 1 x\r\n",
        b"VA\r\n",
        b"VA -1\r\n",
        b"STAT\r\n",
        b"-1\r\n",
    ] {
        assert_eq!(failure(line), PeerError::BadReplyLine, "{line:?}");
    }
    assert_eq!(failure(b"VALUE a 0 1\r\nxyz"), PeerError::BadDataBlock);
}

#[test]
fn bounds() {
    let long = failure(&[b'x'; 2049]);
    assert_eq!(
        long,
        PeerError::LineTooLong {
            limit: 2048,
            length: 2049
        }
    );
    assert_eq!(long.to_string(), "reply line exceeds 2048 bytes: 2049");
    let large = failure(b"VALUE a 0 18446744073709551615\r\n");
    assert_eq!(
        large,
        PeerError::ValueTooLarge {
            limit: 1 << 20,
            length: u64::MAX
        }
    );
    assert!(
        ResponseDecoder::default()
            .decode(b"VA 1048576\r\n")
            .unwrap()
            .is_none()
    );
}

fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let whole = prop::sample::select(vec![
        &b"VALUE a 0 3\r\nabc\r\n"[..],
        b"VALUE a 0 3 99\r\na\r\n\r\n",
        b"VALUE a 0 0\r\n\r\n",
        b"VA 2 t-1\r\nhi\r\n",
        b"VA 60\r\n",
        b"END\r\n",
        b"STORED\r\n",
        b"HD k1 O2\r\n",
        b"EN\r\n",
        b"MN\r\n",
        b"12\r\n",
        b"ERROR\r\n",
        b"CLIENT_ERROR bad data chunk\r\n",
        b"\r\n",
    ]);
    prop_oneof![
        8 => whole.prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(prop::sample::select(b" AVEND019\r\n".to_vec()), 0..80),
    ]
}

proptest! {
    #[test]
    fn byte_at_a_time_equals_whole(fragments in prop::collection::vec(fragment(), 0..8)) {
        let limits = ReplyLimits { line_bytes_max: 48, value_bytes_max: 50 };
        let input = fragments.concat();
        let whole = transcript(&[&input], limits);
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        prop_assert_eq!(&transcript(&bytes, limits), &whole);
        let sevens: Vec<&[u8]> = input.chunks(7).collect();
        prop_assert_eq!(&transcript(&sevens, limits), &whole);
    }
}
