//! Heads that are refused, with their statuses.

use super::*;

#[test]
fn lines_that_parsers_disagree_about_are_refused() {
    check_refused(&[
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: \nY: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX:\nY: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b \t\nY: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\rHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", 400),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nX: b\rContent-Length: 5\r\n\r\n",
            400,
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n folded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tfolded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (
            "\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
        ),
    ]);
}

#[test]
fn malformed_fields_are_refused() {
    check_refused(&[
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost\t: a\r\n\r\n", 400),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\n",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\u{b}: chunked\r\n\r\n",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent\0-Length: 5\r\n\r\n",
            400,
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX(y): b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\u{e9}: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\u{1}b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\u{b}b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\u{7f}b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", 417),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nExpect: x\r\n\r\n",
            417,
        ),
    ]);
}

#[test]
fn ambiguous_framing_is_refused() {
    let with = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
    for (fields, status) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
        ("Transfer-Encoding: gzip\r\nContent-Length: 5", 400),
        ("Content-Length: 5\r\nContent-Length: 5", 400),
        ("Content-Length: 5\r\ncontent-length: 6", 400),
        ("Content-Length: 5, 5", 400),
        ("Content-Length: +2", 400),
        ("Content-Length: -1", 400),
        ("Content-Length:", 400),
        ("Content-Length:  \t ", 400),
        ("Content-Length: 0x5", 400),
        ("Content-Length: 5 5", 400),
        ("Content-Length: 5;", 400),
        ("Content-Length: 1e3", 400),
        ("Content-Length: 5_0", 400),
        ("Content-Length: 18446744073709551616", 400),
        ("Content-Length: 99999999999999999999999", 400),
        ("Content-Length: \u{665}", 400),
        ("Transfer-Encoding: xchunked", 501),
        ("Transfer-Encoding: chunkedx", 501),
        ("Transfer-Encoding: identity", 501),
        ("Transfer-Encoding: gzip", 501),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: \"chunked\"", 501),
        ("Transfer-Encoding: chunked;q=1", 501),
        ("Transfer-Encoding: \u{b}chunked", 400),
        ("Transfer-Encoding: chunked, gzip", 400),
        ("Transfer-Encoding: chunked, chunked", 400),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            400,
        ),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked,", 400),
        ("Transfer-Encoding: ,chunked", 400),
        ("Transfer-Encoding:", 400),
        ("Transfer-Encoding: ,", 400),
    ] {
        assert_eq!(refusal(with(fields).as_bytes()), status, "{fields:?}");
    }
    check_refused(&[
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        (
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            400,
        ),
    ]);
}

#[test]
fn malformed_request_lines_are_refused() {
    check_refused(&[
        ("GET /\r\n\r\n", 400),
        ("GET\r\n\r\n", 400),
        ("\r\nGET\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a\u{7f}b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /\"a\" HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /<a> HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("OPTIONS *a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http://me@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http://a:x/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("G\u{e9}T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 501),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("GET / HTTP/1.2 \r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.2\nHost: a\r\n\r\n", 400),
        (
            "GET / HTTP/1.2\r\nHost: a\r\nContent-Length: 1, 2\r\n\r\n",
            400,
        ),
        ("GET / HTTP/1.9\r\n\r\n", 400),
        ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/11\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTPS/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1x\r\nHost: a\r\n\r\n", 400),
    ]);
}

#[test]
fn wrong_hosts_are_refused() {
    check_refused(&[
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a?b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: me@a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: []\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: [z]\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: \u{e9}\r\n\r\n", 400),
        ("GET http://a/ HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: \t\r\n\r\n", 400),
        ("GET / HTTP/1.0\r\nHost:\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: :80\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: :\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("GET http://:80/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ]);
}
