//! Responses that are refused.

use super::*;
use crate::http1::error::BodyError;

const AMBIGUOUS_FIELDS: &[&str] = &[
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 5, 6",
    "Content-Length: 5,",
    "Content-Length: ,5",
    "Content-Length: 5,,5",
    "Content-Length: 5 5",
    "Content-Length: +5",
    "Content-Length: -5",
    "Content-Length: 0x5",
    "Content-Length: 5;5",
    "Content-Length:",
    "Content-Length: 99999999999999999999",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: chunked, gzip",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: gzip",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding:",
    "Transfer-Encoding : chunked",
    "Content-Length : 5",
    " Content-Length: 5",
    "X: a\r\n Content-Length: 5",
    "X: a\rContent-Length: 5",
    "X: a\nContent-Length: 5",
    "X: a\0b",
    "X: a\r\r\nContent-Length: 5",
    "Content-Length\r\nX: 5",
    ": 5",
    "X\x0b: 5",
];

#[test]
fn what_splits_or_smuggles_a_response_is_refused() {
    for fields in AMBIGUOUS_FIELDS {
        // A response without body is held to the same.
        for (method, status) in [("GET", 200), ("HEAD", 200), ("GET", 204), ("GET", 103)] {
            let input = format!("HTTP/1.1 {status} OK\r\n{fields}\r\n\r\n");
            let seen = whole(method, &input);
            assert!(
                matches!(seen, Err(ResponseError::Head(_))),
                "{input:?}: {seen:?}"
            );
        }
    }
    for input in [
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 200 OK\r\n\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        " HTTP/1.1 200 OK\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200\r OK\r\n\r\n",
        "HTTP/1.1\t200 OK\r\n\r\n",
        "HTTP/1.1 0200 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.10 200 OK\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let seen = whole("GET", input);
        assert!(
            matches!(seen, Err(ResponseError::Head(_))),
            "{input:?}: {seen:?}"
        );
    }
    for chunks in [
        "5\nhello",
        "5\r\nhello0\r\n",
        "+5\r\n",
        "0x5\r\n",
        " 5\r\n",
        "\r\n",
        "5 \r\n",
    ] {
        let seen = whole("GET", &format!("{CHUNKED}{chunks}"));
        assert!(
            matches!(seen, Err(ResponseError::Body(_))),
            "{chunks:?}: {seen:?}"
        );
    }
}

#[test]
fn nobody_waits_for_the_rest_of_what_is_no_head() {
    let refused = |input| whole("GET", input).unwrap_err();
    assert_eq!(
        refused("SSH-2"),
        ResponseError::Head(HeadError::VersionSyntax)
    );
    assert_eq!(
        refused("HTTP/2"),
        ResponseError::Head(HeadError::VersionUnsupported)
    );
    assert_eq!(
        refused("HTTP/1x"),
        ResponseError::Head(HeadError::VersionSyntax)
    );
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(300));
    let (limit, length) = (200, endless.len());
    let too_long = HeadError::HeadTooLong { limit, length };
    assert_eq!(refused(&endless), ResponseError::Head(too_long));
    assert_eq!(
        refused("HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n"),
        ResponseError::Body(BodyError::TooLarge {
            limit: BODY_BYTES_MAX
        })
    );
}
