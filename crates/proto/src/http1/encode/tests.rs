use proptest::prelude::*;

use super::*;
use crate::http1::{FieldStorage, HeadLimits, is_hop_by_hop, parse_request, parse_response};

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn start_lines_are_written() {
    assert_eq!(
        written(|out| status_line(out, Version::Http11, 200)),
        "HTTP/1.1 200 OK\r\n"
    );
    assert_eq!(
        written(|out| status_line(out, Version::Http10, 299)),
        "HTTP/1.0 299 \r\n"
    );
    let line = written(|out| request_line(out, "GET", "/a?b", Version::Http11));
    assert_eq!(line, "GET /a?b HTTP/1.1\r\n");
    let line = written(|out| request_line(out, "GE T", "/a\r\nX: y", Version::Http11));
    assert_eq!(line, "GET /aX:y HTTP/1.1\r\n");
}

#[test]
fn a_field_stays_on_its_line() {
    assert_eq!(written(|out| field(out, "X", b"a b")), "X: a b\r\n");
    assert_eq!(
        written(|out| field(out, "X", b"a\r\nY: b\0")),
        "X: a  Y: b \r\n"
    );
    for name in [
        "",
        "X\r\n: Y",
        "Content-Length ",
        "Content\tLength",
        "\u{e9}",
        "A:",
    ] {
        assert_eq!(written(|out| field(out, name, b"1")), "", "{name:?}");
        assert_eq!(written(|out| field_u64(out, name, 1)), "", "{name:?}");
    }
    let trailers: [(&str, &[u8]); 2] = [("Content-Length", b"3"), ("Digest", b"a")];
    let section = "0\r\nDigest: a\r\n\r\n";
    assert_eq!(written(|out| last_chunk_with(out, &trailers)), section);
    assert_eq!(
        written(|out| field_u64(out, "X", u64::MAX)),
        "X: 18446744073709551615\r\n"
    );
}

#[test]
fn chunks_are_written() {
    assert_eq!(written(|out| chunk(out, b"")), "");
    assert_eq!(written(|out| chunk(out, b"hello")), "5\r\nhello\r\n");
    assert_eq!(written(|out| chunk_size(out, 0)), "0\r\n");
    assert_eq!(written(|out| chunk_size(out, 0x1a2f)), "1a2f\r\n");
    assert_eq!(written(|out| chunk_size(out, 16)), "10\r\n");
    assert_eq!(
        written(|out| chunk_size(out, usize::MAX)),
        "ffffffffffffffff\r\n"
    );
    assert_eq!(written(last_chunk), "0\r\n\r\n");
}

#[test]
fn hop_by_hop_names_are_known_in_any_case() {
    for name in [
        "Connection",
        "keep-alive",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "UPGRADE",
    ] {
        assert!(is_hop_by_hop(name), "{name}");
    }
    for name in [
        "Proxy-Connection",
        "Proxy-Authenticate",
        "Proxy-Authorization",
    ] {
        assert!(is_hop_by_hop(name), "{name}");
    }
    for name in ["Host", "Content-Length", "ETag", "", "Connections"] {
        assert!(!is_hop_by_hop(name), "{name}");
    }
}

#[test]
fn every_common_status_has_a_reason() {
    for status in [
        200, 204, 206, 301, 304, 400, 404, 408, 413, 414, 417, 429, 431,
    ] {
        assert_ne!(reason(status), "", "{status}");
    }
    for status in [500, 501, 502, 503, 504, 505] {
        assert_ne!(reason(status), "", "{status}");
    }
    assert_eq!((reason(299), reason(499), reason(600)), ("", "", ""));
}

proptest! {
    #[test]
    fn no_value_breaks_the_head(
        name in "[A-Za-z-]{1,10}",
        value in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut out = Vec::new();
        status_line(&mut out, Version::Http11, 200);
        field(&mut out, &name, &value);
        let line_end = out.len();
        end_of_head(&mut out);
        let lines = memchr::memchr_iter(b'\n', &out[..line_end]).count();
        prop_assert_eq!(lines, 2);
        prop_assert!(!out.contains(&0));
    }

    #[test]
    fn what_was_written_is_read(
        target in "/[a-z0-9?=&%]{0,30}",
        value in "[!-~]([ -~]{0,20}[!-~])?",
    ) {
        let mut out = Vec::new();
        request_line(&mut out, "PATCH", &target, Version::Http11);
        field(&mut out, "Host", b"a");
        field(&mut out, "X-Value", value.as_bytes());
        end_of_head(&mut out);
        let mut storage = FieldStorage::new();
        let head = parse_request(&out, &mut storage, &HeadLimits::default()).unwrap();
        prop_assert_eq!((head.method, head.target), ("PATCH", &target[..]));
        prop_assert_eq!(head.fields.find("x-value"), Some(value.as_bytes()));
    }

    #[test]
    fn any_status_is_read_back(status in 100_u16..=999) {
        let mut out = Vec::new();
        status_line(&mut out, Version::Http11, status);
        end_of_head(&mut out);
        let mut storage = FieldStorage::new();
        let head = parse_response(&out, &mut storage, &HeadLimits::default(), "GET").unwrap();
        prop_assert_eq!((head.status, head.reason), (status, reason(status)));
    }
}

#[test]
fn a_reason_of_ones_own_stays_on_its_line() {
    let line = |reason: &[u8]| {
        let mut out = b"before".to_vec();
        status_line_with(&mut out, Version::Http11, 418, reason);
        out
    };
    assert_eq!(
        line(b"Short\tAnd Stout"),
        b"beforeHTTP/1.1 418 Short\tAnd Stout\r\n"
    );
    assert_eq!(line(b""), b"beforeHTTP/1.1 418 \r\n");
    assert_eq!(
        line(b"a\r\nb\0\x7f\xfc"),
        b"beforeHTTP/1.1 418 a  b  \xfc\r\n"
    );
}
