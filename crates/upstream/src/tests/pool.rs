//! Connections that are kept, used again and replaced.

use super::super::{UpstreamError, UpstreamOptions};
use super::harness::{App, Edge, KIND, OK, ok, read_request, request};
use dwell_evloop::{Readiness, Token};
use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

#[test]
fn a_connection_is_used_again() {
    let app = App::answering(OK);
    let mut edge = app.edge();
    for tag in 0..5 {
        assert_eq!(
            edge.ask(tag, if tag == 2 { "POST" } else { "GET" }),
            ok(b"ok")
        );
    }
    assert_eq!((app.connections(), edge.driver.upstream.idle()), (1, 1));
    // Without a group nothing would take them.
    assert!(edge.driver.upstream.first_bytes.is_empty());
}

#[test]
fn the_connection_that_came_free_last_is_taken_first() {
    let app = App::new(|number, stream| {
        while read_request(stream).is_some() {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let mut edge = app.edge();
    edge.send(1, "GET").unwrap();
    edge.send(2, "GET").unwrap();
    assert!(edge.next().1.is_ok());
    let last = edge.next().1;
    assert_eq!(edge.driver.upstream.idle(), 2);
    for tag in 3..6 {
        assert_eq!(edge.ask(tag, "GET"), last);
    }
    assert_eq!(app.connections(), 2);
}

#[test]
fn a_connection_that_says_close_or_too_much_is_not_kept() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"[..],
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok?",
    ] {
        let app = App::answering(answer);
        let mut edge = app.edge();
        assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
        assert_eq!(edge.driver.upstream.connections(), 0);
    }
}

#[test]
fn an_unused_connection_is_dropped_after_a_while() {
    let app = App::answering(OK);
    let idle_timeout = Duration::from_millis(30);
    let mut edge = Edge::new(UpstreamOptions {
        idle_timeout,
        ..app.options.clone()
    });
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    assert_eq!(edge.driver.upstream.idle(), 1);
    edge.turn_until(|driver| driver.upstream.connections() == 0);
    assert_eq!(edge.driver.upstream.idle(), 0);
    assert_eq!(edge.ask(2, "GET"), ok(b"ok"));
    assert_eq!(app.connections(), 2);
}

#[test]
fn no_more_than_the_allowed_connections_are_kept() {
    let app = App::answering(OK);
    let mut edge = Edge::new(UpstreamOptions {
        idle_max: 1,
        ..app.options.clone()
    });
    for tag in 0..3 {
        edge.send(tag, "GET").unwrap();
    }
    for _ in 0..3 {
        assert!(edge.next().1.is_ok());
    }
    assert_eq!(
        (
            edge.driver.upstream.idle(),
            edge.driver.upstream.connections()
        ),
        (1, 1)
    );
}

/// Answers the first request of each connection, and hangs up when it has read the second.
fn hanging_up() -> App {
    App::new(|_, stream| {
        if read_request(stream).is_some() {
            stream.write_all(OK).unwrap();
            read_request(stream);
        }
    })
}

#[test]
fn a_used_connection_that_ends_without_an_answer_is_replaced_once() {
    let app = hanging_up();
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    assert_eq!(edge.ask(2, "GET"), ok(b"ok"));
    assert_eq!(app.connections(), 2);

    let app = App::new(|number, stream| {
        if read_request(stream).is_some() && number == 0 {
            stream.write_all(OK).unwrap();
            read_request(stream);
        }
    });
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    assert_eq!(edge.ask(2, "GET"), Err(UpstreamError::Closed));
    assert_eq!(app.connections(), 2);
}

#[test]
fn a_request_that_was_sent_and_may_not_be_sent_twice_is_not() {
    let app = hanging_up();
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    assert_eq!(edge.ask(2, "POST"), Err(UpstreamError::Closed));
    assert_eq!(app.connections(), 1);
}

#[test]
fn a_connection_that_is_already_closed_costs_no_request() {
    let app = App::new(|_, stream| {
        if read_request(stream).is_some() {
            stream.write_all(OK).unwrap();
        }
    });
    for method in ["GET", "POST"] {
        let mut edge = app.edge();
        for tag in 0..20 {
            assert_eq!(edge.ask(tag, "GET"), ok(b"ok"));
            // Whether the loop has heard of the end or not, a request that may not be sent twice
            // gets its answer, once the end has come.
            if method == "POST" {
                edge.turn_until(|driver| driver.upstream.connections() == 0);
            }
            assert_eq!(edge.ask(100 + tag, method), ok(b"ok"));
        }
    }
}

#[test]
fn a_connection_is_looked_at_before_it_gets_what_cannot_be_repeated() {
    let (ended, has_ended) = std::sync::mpsc::channel();
    let app = App::new(move |_, stream| {
        if read_request(stream).is_some() {
            stream.write_all(OK).unwrap();
            stream.shutdown(Shutdown::Both).unwrap();
            ended.send(()).unwrap();
        }
    });
    let mut edge = app.edge();
    edge.send(1, "GET").unwrap();
    edge.turn_until(|driver| !driver.events.is_empty());
    edge.driver.events.clear();
    has_ended.recv().unwrap();
    // No turn in between: the loop has not heard of the end.
    edge.send_now(request(2, "POST", "/", None)).unwrap();
    assert_eq!(edge.next(), (2, ok(b"ok")));
}

#[test]
fn news_of_nobody_changes_nothing() {
    let app = App::answering(OK);
    let mut edge = app.edge();
    let stranger = Token::new(KIND, 77, 12);
    let context = edge.event_loop.context();
    edge.driver
        .upstream
        .ready(context, stranger, Readiness::READABLE, &mut |_, _| ());
    edge.driver
        .upstream
        .expired(context, stranger, &mut |_, _| ());
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
}
