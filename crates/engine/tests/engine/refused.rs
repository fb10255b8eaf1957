//! Requests that are refused with a status, after which the connection ends.

use crate::support::{End, Fixture, get, rejected};
use dwell_engine::HttpEvent;

/// Sends `bytes` behind a good request; the good one is answered, the others with `status`.
fn check(fixture: &mut Fixture, bytes: &str, status: u16) {
    fixture.server.app.seen.clear();
    fixture.server.app.events.clear();
    let mut client = fixture.connect();
    fixture.send(&mut client, get("/good") + bytes);
    assert_eq!(fixture.answer(&mut client).text(), "GET /good []");
    let answer = fixture.answer(&mut client);
    assert_eq!(answer.status, status, "{bytes:?}");
    assert_eq!(answer.field("Connection"), Some("close"), "{bytes:?}");
    // What comes behind it is not looked at, and does not reset the answer away.
    client.send(get("/smuggled").repeat(1000).as_bytes());
    client.finish_sending();
    assert_eq!(fixture.end(&mut client), End::InOrder, "{bytes:?}");
    assert!(client.received.is_empty(), "{bytes:?}");
    assert_eq!(fixture.server.app.seen, ["GET /good"], "{bytes:?}");
    assert_eq!(fixture.server.app.count(rejected(status)), 1);
    assert_eq!(fixture.connections_left(), 0);
}

#[test]
fn each_fault_has_its_status() {
    let mut fixture = Fixture::default();
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "t".repeat(9000));
    let endless_target = format!("GET /{}", "t".repeat(20_000));
    let long_field = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
        "x".repeat(17_000)
    );
    let endless_field = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(17_000));
    let many_fields = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "X: y\r\n".repeat(101)
    );
    let long_chunk = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n186a1\r\n";
    let long_trailer = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: {}",
        "x".repeat(9000)
    );
    let cases: [(&str, u16); 14] = [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("nonsense\r\n\r\n", 400),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n",
            413,
        ),
        (long_chunk, 413),
        (&long_target, 414),
        (&endless_target, 414),
        ("GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", 417),
        (&long_field, 431),
        (&endless_field, 431),
        (&many_fields, 431),
        (&long_trailer, 431),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
            501,
        ),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 501),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    ];
    for (bytes, status) in cases {
        check(&mut fixture, bytes, status);
    }
}

#[test]
fn nothing_is_smuggled() {
    let mut fixture = Fixture::default();
    let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
    let fields = [
        both,
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length:\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding : chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "X: y\r\n folded\r\n",
        "X: a\0b\r\n",
        "X: a\rb\r\n",
        "X: a\nContent-Length: 5\r\n",
        "Host: b\r\n",
        "X\r\n",
        ": nameless\r\n",
    ];
    for field in fields {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\nhello");
        check(&mut fixture, &request, 400);
    }
    let requests = [
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / \r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET /\tx HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
    ];
    for request in requests {
        check(&mut fixture, request, 400);
    }
    let chunks = [
        "\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\n\n",
    ];
    for chunk in chunks {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(&mut fixture, &format!("{head}{chunk}"), 400);
    }
}

#[test]
fn other_protocols_end_at_once() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert_eq!(fixture.ask(&mut client, preface).status, 505);
    let mut client = fixture.connect();
    fixture.send(&mut client, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    // A client of TLS cannot read an answer.
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert!(client.received.is_empty());
    assert_eq!(fixture.server.app.count(HttpEvent::TlsOnPlain), 1);
    // Its first byte may come alone, and is that of no request.
    let mut client = fixture.connect();
    fixture.send(&mut client, b"\x16");
    fixture.turn();
    client.receive();
    assert!(client.received.is_empty() && client.end.is_none());
    fixture.send(&mut client, b"\x03\x01");
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert!(client.received.is_empty());
    assert_eq!(fixture.server.app.count(HttpEvent::TlsOnPlain), 2);
    let mut client = fixture.connect();
    fixture.send(&mut client, b"\x16");
    assert_eq!(fixture.ask(&mut client, "nonsense\r\n\r\n").status, 400);
}

#[test]
fn an_upload_that_is_refused_still_reads_its_answer() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n";
    fixture.send(&mut client, head);
    let body = vec![b'u'; 5_000_000];
    let mut sent = 0;
    while sent < body.len() {
        sent += client.send_some(&body[sent..]);
        fixture.turn();
    }
    client.finish_sending();
    assert_eq!(fixture.end(&mut client), End::InOrder);
    assert_eq!(client.take_answer("POST").unwrap().status, 413);
    assert!(client.received.is_empty());
}

#[test]
fn a_refusal_is_not_framed_like_the_answer_before_it() {
    let mut fixture = Fixture::default();
    let mut client = fixture.connect();
    let request = "HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    fixture.ask(&mut client, request);
    let answer = fixture.ask(&mut client, "nonsense\r\n\r\n");
    assert_eq!((answer.status, answer.text()), (400, "Bad Request\n"));
}
