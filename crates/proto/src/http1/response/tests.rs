use proptest::prelude::*;

use super::*;
use crate::http1::head_end;

fn parse(input: &str, method: &str) -> Result<(u16, BodyFraming, bool), HeadError> {
    let mut storage = FieldStorage::new();
    let head = parse_response(
        input.as_bytes(),
        &mut storage,
        &HeadLimits::default(),
        method,
    )?;
    Ok((head.status, head.framing, head.keep_alive))
}

#[test]
fn framing_follows_status_method_and_fields() {
    let framing = |status_and_fields: &str, method: &str| {
        let head = format!("HTTP/1.1 {status_and_fields}\r\n\r\n");
        parse(&head, method).map(|(_, framing, _)| framing).unwrap()
    };
    assert_eq!(
        framing("200 OK\r\nContent-Length: 5", "GET"),
        BodyFraming::Length(5)
    );
    assert_eq!(
        framing("200 OK\r\nContent-Length: 5", "HEAD"),
        BodyFraming::None
    );
    assert_eq!(
        framing("200 OK\r\nTransfer-Encoding: chunked", "POST"),
        BodyFraming::Chunked
    );
    assert_eq!(
        framing("200 OK\r\nTransfer-Encoding: chunked", "HEAD"),
        BodyFraming::None
    );
    assert_eq!(framing("200 OK", "GET"), BodyFraming::UntilClose);
    assert_eq!(framing("200 OK", "HEAD"), BodyFraming::None);
    assert_eq!(framing("204 No Content", "GET"), BodyFraming::None);
    assert_eq!(
        framing("304 Not Modified\r\nContent-Length: 5", "GET"),
        BodyFraming::None
    );
    assert_eq!(framing("100 Continue", "GET"), BodyFraming::None);
    assert_eq!(
        framing("103 Early Hints\r\nLink: x", "GET"),
        BodyFraming::None
    );
}

#[test]
fn persistence_follows_version_fields_and_framing() {
    let persists = |head: &str| parse(head, "GET").map(|(_, _, persists)| persists).unwrap();
    assert!(persists("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    assert!(!persists(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    ));
    assert!(!persists("HTTP/1.1 200 OK\r\n\r\n"));
    assert!(!persists("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
    let kept = "HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n";
    assert!(persists(kept));
}

#[test]
fn status_lines_are_read() {
    let mut storage = FieldStorage::new();
    let input = b"HTTP/1.1 404 Not here at all\r\nX: y\r\n\r\n";
    let head = parse_response(input, &mut storage, &HeadLimits::default(), "GET").unwrap();
    assert_eq!((head.version, head.status), (Version::Http11, 404));
    assert_eq!(
        (head.reason, head.fields.find("x")),
        ("Not here at all", Some(&b"y"[..]))
    );
    assert_eq!(
        parse("HTTP/1.1 200\r\n\r\n", "HEAD").map(|parsed| parsed.0),
        Ok(200)
    );
    assert_eq!(
        parse("HTTP/1.1 200 \r\n\r\n", "HEAD").map(|parsed| parsed.0),
        Ok(200)
    );
    assert_eq!(
        parse("HTTP/1.1 999 \r\n\r\n", "HEAD").map(|parsed| parsed.0),
        Ok(999)
    );
}

#[test]
fn hostile_heads_are_refused() {
    for input in [
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 200 OK\nX: y\r\n\r\n",
        "HTTP/1.1 200\nX: y\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: y\n\r\n",
        "HTTP/1.1 200 OK\r\nX: y\r\n\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1 +20 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 O\0K\r\n\r\n",
        "<html>\r\n\r\n",
        "200 OK\r\n\r\n",
        "\r\n\r\n",
    ] {
        assert!(parse(input, "GET").is_err(), "{input:?}");
    }
}

#[test]
fn limits_hold() {
    let limits = HeadLimits {
        head_bytes_max: 40,
        field_count_max: 1,
        target_bytes_max: 0,
    };
    let error = |input: &str| {
        let mut storage = FieldStorage::new();
        parse_response(input.as_bytes(), &mut storage, &limits, "GET").err()
    };
    let long = "HTTP/1.1 200 OK\r\nX: yyyyyyyyyyyyyyyyyyyyyyyy\r\n\r\n";
    assert_eq!(
        error(long),
        Some(HeadError::HeadTooLong {
            limit: 40,
            length: long.len()
        })
    );
    let many = "HTTP/1.1 200 OK\r\nX: y\r\nX: y\r\n\r\n";
    assert_eq!(error(many), Some(HeadError::TooManyFields { limit: 1 }));
}

proptest! {
    #[test]
    fn any_bytes_are_answered(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut storage = FieldStorage::new();
        let _ = parse_response(&input, &mut storage, &HeadLimits::default(), "GET");
    }

    #[test]
    fn any_tail_after_a_status_line_is_answered(
        tail in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let input = [b"HTTP/1.1 200 OK\r\n", &tail[..]].concat();
        let Some(end) = head_end(&input, &mut 0) else { return Ok(()) };
        let mut storage = FieldStorage::new();
        let _ = parse_response(&input[..end], &mut storage, &HeadLimits::default(), "GET");
    }
}
