use super::*;
use crate::http2::{HpackDecoder, SectionLimits, encode_field};

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/a?b"),
    (":authority", "example.org:8443"),
];

fn section(lines: &[(&str, &str)]) -> FieldSection {
    let mut block = Vec::new();
    for (name, value) in lines {
        encode_field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    let mut section = FieldSection::new(SectionLimits::default());
    let decoded = HpackDecoder::new(0).decode(&block, true, &mut section);
    decoded.expect("a block that is well formed");
    section
}

fn error(lines: &[(&str, &str)]) -> Option<MessageError> {
    let section = section(lines);
    request_head(&section, &mut FieldStorage::new(), 100).err()
}

/// The lines of a request, one of them changed and others behind.
fn with(
    changed: (&'static str, &'static str),
    more: &[(&'static str, &'static str)],
) -> Vec<(&'static str, &'static str)> {
    let change =
        |line: (&'static str, &'static str)| if line.0 == changed.0 { changed } else { line };
    GET.into_iter()
        .map(change)
        .chain(more.iter().copied())
        .collect()
}

#[test]
fn a_request_has_its_parts() {
    let lines = with(
        (":method", "POST"),
        &[("content-length", "5"), ("te", "trailers"), ("x", "y")],
    );
    let section = section(&lines);
    let mut storage = FieldStorage::new();
    let head = request_head(&section, &mut storage, 100).expect("a request");
    assert_eq!(
        (head.method, head.scheme, head.host),
        ("POST", "https", &b"example.org:8443"[..])
    );
    assert_eq!(
        (head.target, head.path, head.query),
        ("/a?b", "/a", Some("b"))
    );
    assert_eq!((head.content_length, head.protocol), (Some(5), None));
    assert_eq!(
        (head.fields.len(), head.fields.find("X")),
        (3, Some(&b"y"[..]))
    );
}

#[test]
fn requests_that_are_rare() {
    for lines in [
        with((":path", "*"), &[])
            .into_iter()
            .map(|line| {
                if line.0 == ":method" {
                    (":method", "OPTIONS")
                } else {
                    line
                }
            })
            .collect(),
        with((":method", "CONNECT"), &[])
            .into_iter()
            .chain([(":protocol", "websocket")])
            .collect(),
        with(("", ""), &[("host", "EXAMPLE.org:8443")]),
        vec![
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            ("host", "a"),
        ],
    ] {
        assert_eq!(error(&lines), None, "{lines:?}");
    }
}

#[test]
fn what_is_no_request() {
    use MessageError as E;
    let none = ("", "");
    let cases: [(Vec<(&str, &str)>, MessageError); 28] = [
        (with((":method", "G T"), &[]), E::Method),
        (with((":method", ""), &[]), E::Method),
        (with((":method", "CONNECT"), &[]), E::Connect),
        (with((":scheme", "ftp"), &[]), E::Scheme),
        (with((":path", ""), &[]), E::Target),
        (with((":path", "*"), &[]), E::Target),
        (with((":path", "a"), &[]), E::Target),
        (with((":path", "http://a/"), &[]), E::Target),
        (with((":path", "/a b"), &[]), E::Target),
        (with((":path", "/a\r\nx: y"), &[]), E::Target),
        (with((":authority", "a b"), &[]), E::HostInvalid),
        (with((":authority", "a@b"), &[]), E::HostInvalid),
        (with((":authority", ""), &[]), E::HostInvalid),
        (GET[..3].to_vec(), E::HostMissing),
        (GET[1..].to_vec(), E::PseudoMissing),
        (with(none, &[("host", "other")]), E::HostRepeated),
        (
            with(
                none,
                &[("host", "example.org:8443"), ("host", "example.org:8443")],
            ),
            E::HostRepeated,
        ),
        (with(none, &[(":path", "/b")]), E::PseudoRepeated),
        (with(none, &[(":authority", "a")]), E::PseudoRepeated),
        (
            with(none, &[("x", "y"), (":protocol", "websocket")]),
            E::PseudoLate,
        ),
        (with(none, &[(":protocol", "websocket")]), E::Pseudo),
        (with(none, &[(":status", "200")]), E::Pseudo),
        (with(none, &[("Upper", "y")]), E::FieldName),
        (with(none, &[("", "y")]), E::FieldName),
        (with(none, &[("x", " y")]), E::FieldValue),
        (with(none, &[("x", "y\0")]), E::FieldValue),
        (with(none, &[("content-length", "+5")]), E::LengthInvalid),
        (
            with(none, &[("content-length", "5"), ("content-length", "5")]),
            E::LengthInvalid,
        ),
    ];
    for (lines, expected) in cases {
        assert_eq!(error(&lines), Some(expected), "{lines:?}");
    }
    for name in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ] {
        assert_eq!(error(&with(none, &[(name, "x")])), Some(E::ConnectionField));
    }
    assert_eq!(error(&with(none, &[("te", "gzip")])), Some(E::Te));
    for colon in ["x:", "x y", "x\r"] {
        assert_eq!(error(&with(none, &[(colon, "y")])), Some(E::FieldName));
    }
}

#[test]
fn what_is_answered_by_a_status() {
    let long = format!("/{}", "a".repeat(100));
    let lines = [GET[0], GET[1], (":path", &*long), GET[3]];
    let too_long = MessageError::TargetTooLong {
        limit: 100,
        length: 101,
    };
    assert_eq!(
        (error(&lines), too_long.status()),
        (Some(too_long), Some(414))
    );
    let value = "x".repeat(16_384);
    let large = [&GET[..], &[("x", &value)]].concat();
    assert_eq!(error(&large).and_then(MessageError::status), Some(431));
    assert_eq!(MessageError::Connect.status(), Some(501));
    assert_eq!(MessageError::FieldName.status(), None);
}

#[test]
fn trailers_have_no_pseudo_header_fields() {
    assert_eq!(
        check_trailers(&section(&[("x", "y"), ("grpc-status", "0")])),
        Ok(())
    );
    assert_eq!(
        check_trailers(&section(&[(":path", "/")])),
        Err(MessageError::Pseudo)
    );
    assert_eq!(
        check_trailers(&section(&[("upgrade", "x")])),
        Err(MessageError::ConnectionField)
    );
}

#[test]
fn trailers_tell_no_length() {
    assert_eq!(
        check_trailers(&section(&[("x", "y"), ("content-length", "5")])),
        Err(MessageError::LengthInvalid)
    );
}
