//! Bodies of requests, and what is kept of them.

use super::super::connection::Connection;
use super::super::{Taking, UpstreamEvent, UpstreamRequest, Written};
use super::harness::{App, Edge, EdgeDriver, OK, ok, read_request, read_to_end};
use bytes::Bytes;
use std::io::{Read, Write};
use std::net::Shutdown;

#[test]
fn long_bodies_pass_both_ways() {
    const LENGTH: usize = 6 << 20;
    let app = App::new(|_, stream| {
        read_request(stream);
        let mut body = vec![0; LENGTH];
        stream.read_exact(&mut body).unwrap();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n"
        )
        .unwrap();
        stream.write_all(&body).unwrap();
        read_to_end(stream);
    });
    let mut edge = app.edge();
    let body: Vec<u8> = (0..LENGTH).map(|index| (index / 1000) as u8).collect();
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n");
    let bytes = [head.as_bytes(), &body].concat();
    edge.send_request(UpstreamRequest::new(bytes.into(), 1))
        .unwrap();
    let (_, answer) = edge.next();
    assert!(answer.unwrap().1 == body);
    assert_eq!(edge.driver.upstream.idle(), 1);
}

#[test]
fn an_answer_before_the_end_of_the_request_counts() {
    let app = App::new(|_, stream| {
        read_request(stream);
        stream
            .write_all(b"HTTP/1.1 413 \r\nContent-Length: 0\r\n\r\n")
            .unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        read_to_end(stream);
    });
    let mut edge = app.edge();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n";
    let bytes = [&head[..], &vec![0; 30_000_000]].concat();
    edge.send_request(UpstreamRequest::new(bytes.into(), 1))
        .unwrap();
    assert_eq!(edge.next(), (1, Ok((413, Bytes::new()))));
    assert_eq!(edge.driver.upstream.connections(), 0);
}

#[test]
fn what_is_not_sent_again_is_not_kept() {
    let app = App::new(|_, stream| {
        read_request(stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nok").unwrap();
        read_to_end(stream);
    });
    let mut edge = app.edge();
    let kept = |driver: &EdgeDriver| -> usize {
        let connections = &driver.upstream.connections;
        let all = connections
            .tokens()
            .filter_map(|token| connections.get(token));
        let exchanges = all.filter_map(Connection::exchange);
        exchanges.map(|exchange| exchange.request.bytes.len()).sum()
    };
    let request = |tag, body_follows| {
        let bytes = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n".into();
        UpstreamRequest {
            body_follows,
            taking: Taking::Parts,
            ..UpstreamRequest::new(bytes, tag)
        }
    };
    edge.send_now(request(1, false)).unwrap();
    assert!(kept(&edge.driver) > 0);
    edge.turn_until(|driver| !driver.events.is_empty());
    assert_eq!(kept(&edge.driver), 0);
    edge.driver.events.clear();

    let silent = App::new(|_, stream| read_to_end(stream));
    let mut edge = silent.edge();
    edge.send_now(request(2, true)).unwrap();
    edge.turn_until(|driver| !driver.events.is_empty());
    let UpstreamEvent::Started { connection, .. } = edge.driver.events.remove(0) else {
        panic!("it has no connection");
    };
    assert!(kept(&edge.driver) > 0);
    let (context, piece) = (edge.event_loop.context(), Bytes::from_static(b"bo"));
    edge.driver
        .upstream
        .write_body(context, connection, 2, piece);
    assert_eq!(kept(&edge.driver), 0);
}

#[test]
fn a_body_that_lost_its_connection_is_to_be_told_of_another() {
    let app = App::new(|number, stream| {
        read_request(stream);
        if number == 0 {
            stream.write_all(OK).unwrap();
            // The head of the second request, and never its body.
            read_request(stream);
        } else {
            stream.read_exact(&mut [0; 4]).unwrap();
            stream.write_all(OK).unwrap();
        }
    });
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    let bytes = "PUT /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n".into();
    let request = UpstreamRequest {
        is_idempotent: true,
        body_follows: true,
        ..UpstreamRequest::new(bytes, 2)
    };
    edge.send_now(request).unwrap();
    let started = |edge: &mut Edge| {
        edge.turn_until(|driver| !driver.events.is_empty());
        match edge.driver.events.remove(0) {
            UpstreamEvent::Started { connection, .. } => connection,
            other => panic!("{other:?}"),
        }
    };
    let first = started(&mut edge);
    // It hangs up, and the request is sent to it again.
    edge.turn_until(|driver| driver.upstream.is_unannounced(2));
    let context = edge.event_loop.context();
    let piece = Bytes::from_static(b"body");
    let upstream = &mut edge.driver.upstream;
    let written = upstream.finish_body(context, first, 2, piece.clone());
    assert_eq!(written, Written::Gone);
    let second = started(&mut edge);
    let context = edge.event_loop.context();
    let written = edge.driver.upstream.finish_body(context, second, 2, piece);
    assert_ne!(written, Written::Gone);
    assert_eq!(edge.next(), (2, ok(b"ok")));
}
