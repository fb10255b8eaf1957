//! Answers in every framing, and those that are none.

use super::harness::{App, OK, ok, read_request, read_to_end};
use std::io::Write;
use std::net::Shutdown;
use std::thread;

#[test]
fn every_framing_is_read() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n"[..],
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK,
    ] {
        let app = App::answering(answer);
        let mut edge = app.edge();
        assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
        assert_eq!(edge.ask(2, "GET"), ok(b"ok"));
        assert_eq!(app.connections(), 1);
    }
    let app = App::new(|_, stream| {
        read_request(stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nok").unwrap();
    });
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    assert_eq!(edge.driver.upstream.connections(), 0);

    let app = App::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n");
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "HEAD"), ok(b""));
    assert_eq!(edge.ask(2, "HEAD"), ok(b""));
    assert_eq!(app.connections(), 1);
}

#[test]
fn an_answer_in_single_bytes_is_read() {
    let app = App::new(|_, stream| {
        stream.set_nodelay(true).unwrap();
        while read_request(stream).is_some() {
            for byte in OK {
                stream.write_all(&[*byte]).unwrap();
                thread::yield_now();
            }
        }
    });
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    assert_eq!(edge.ask(2, "GET"), ok(b"ok"));
}

#[test]
fn bad_answers_are_told_apart() {
    for (bytes, expected) in [
        (&b"SSH-2.0-OpenSSH\r\n"[..], "malformed head of the answer"),
        (
            b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
            "malformed head of the answer",
        ),
        (
            b"HTTP/1.1 200 OK\r\nX: ",
            "connection closed before the end of the answer",
        ),
        (b"", "connection closed before the end of the answer"),
        (
            &OK[..OK.len() - 1],
            "connection closed before the end of the answer",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfish\r\n",
            "malformed body of the answer",
        ),
        (
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "unexpected switch of protocols",
        ),
    ] {
        let app = App::new(move |_, stream| {
            read_request(stream);
            stream.write_all(bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            read_to_end(stream);
        });
        let mut edge = app.edge();
        let error = edge.ask(1, "GET").unwrap_err();
        assert_eq!(
            (error.to_string(), error.status()),
            (expected.to_owned(), 502)
        );
        assert_eq!(
            (edge.driver.upstream.connections(), app.connections()),
            (0, 1)
        );
    }
}
