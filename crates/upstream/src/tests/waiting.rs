//! Requests that wait for a connection.

use super::super::{UpstreamError, UpstreamOptions};
use super::harness::{App, Edge, OK, ok, read_request, read_to_end, request};
use std::io::Write;
use std::time::Duration;

#[test]
fn requests_queue_for_a_connection() {
    let app = App::answering(OK);
    let options = UpstreamOptions {
        connections_max: 1,
        queue_max: 3,
        ..app.options.clone()
    };
    let mut edge = Edge::new(options);
    for tag in 0..4 {
        edge.send(tag, if tag % 2 == 0 { "GET" } else { "POST" })
            .unwrap();
        // The answers are not looked at before all are sent, or there would be no queue.
        if tag == 0 {
            assert_eq!(edge.driver.upstream.queued(), 0);
        }
    }
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (tag, answer) = edge.next();
        assert_eq!(answer, ok(b"ok"));
        seen.push(tag);
    }
    assert_eq!((seen, app.connections()), (vec![0, 1, 2, 3], 1));
}

/// An edge with fifty connections to an application that answers `/good` alone.
fn fifty_connections() -> Edge {
    let app = App::new(|_, stream| match read_request(stream) {
        Some(head) if head.starts_with("GET /good ") => stream.write_all(OK).unwrap(),
        _ => read_to_end(stream),
    });
    Edge::new(UpstreamOptions {
        connections_max: 50,
        ..app.options.clone()
    })
}

#[test]
fn a_client_whose_requests_are_not_answered_leaves_connections_to_others() {
    let mut edge = fifty_connections();
    for tag in 0..100 {
        edge.send_request(request(tag, "GET", "/slow", Some(1)))
            .unwrap();
    }
    // Four for each that is free.
    assert_eq!(edge.driver.upstream.queued(), 100 - 41);
    for tag in 100..110 {
        edge.send_request(request(tag, "GET", "/good", Some(2)))
            .unwrap();
        assert_eq!(edge.next(), (tag, ok(b"ok")));
    }
    assert_eq!(edge.driver.upstream.queued(), 100 - 41);
    // What one of its own leaves free it has itself.
    edge.driver.upstream.cancel(edge.event_loop.context(), 0);
    edge.turn_until(|driver| driver.upstream.queued() == 100 - 42);
}

#[test]
fn who_asks_for_the_same_lends_it_a_shorter_line() {
    let mut edge = fifty_connections();
    for tag in 0..60 {
        edge.send_request(request(tag, "GET", "/slow", Some(1)))
            .unwrap();
    }
    edge.send_request(request(60, "GET", "/good", Some(1)))
        .unwrap();
    for tag in 70..76 {
        edge.send_request(request(tag, "GET", "/slow", Some(2)))
            .unwrap();
    }
    let also_for = |edge: &mut Edge, number| {
        let client = Some([192, 0, 2, number].into());
        let context = edge.event_loop.context();
        edge.driver.upstream.also_for(context, 60, client);
        edge.driver.upstream.may_be_given(60)
    };
    // The second has too many under way to be sure of another connection.
    assert!(also_for(&mut edge, 1) && also_for(&mut edge, 2));
    assert!(!also_for(&mut edge, 3));
    assert_eq!(edge.next(), (60, ok(b"ok")));
    assert_eq!(edge.driver.upstream.queued(), 60 - 41);
}

#[test]
fn the_queue_is_bounded_in_length_and_time() {
    let app = App::new(|_, stream| read_to_end(stream));
    let options = UpstreamOptions {
        connections_max: 1,
        queue_max: 1,
        header_timeout: Duration::from_millis(50),
        ..app.options.clone()
    };
    let mut edge = Edge::new(options);
    edge.send(1, "GET").unwrap();
    edge.send(2, "GET").unwrap();
    let full = UpstreamError::QueueFull { limit: 1 };
    assert_eq!(
        (edge.send(3, "GET"), full.status()),
        (Err(full.clone()), 503)
    );
    let mut failed = [edge.next(), edge.next()];
    failed.sort_by_key(|(tag, _)| *tag);
    let timeout = Duration::from_millis(50);
    assert_eq!(failed[0], (1, Err(UpstreamError::HeaderTimeout(timeout))));
    // It may have got the connection in the turn that gave the first one up.
    let (tag, error) = &failed[1];
    assert_eq!((*tag, error.is_err()), (2, true));
}

#[test]
fn whoever_waits_too_long_is_told_so() {
    let app = App::new(|_, stream| {
        read_request(stream);
        // The head in time, the body never.
        stream.write_all(&OK[..OK.len() - 1]).unwrap();
        read_to_end(stream);
    });
    let timeout = Duration::from_millis(50);
    let options = UpstreamOptions {
        connections_max: 1,
        queue_timeout: timeout,
        ..app.options.clone()
    };
    let mut edge = Edge::new(options);
    edge.send(1, "GET").unwrap();
    edge.send(2, "GET").unwrap();
    let error = UpstreamError::QueueTimeout(timeout);
    assert_eq!(error.status(), 503);
    assert_eq!(edge.next(), (2, Err(error)));
    assert_eq!(
        (
            edge.driver.upstream.queued(),
            edge.driver.upstream.connections()
        ),
        (0, 1)
    );
}

#[test]
fn a_cancelled_request_is_forgotten_and_makes_room() {
    let app = App::new(|number, stream| {
        if number == 0 {
            read_to_end(stream);
        } else {
            while read_request(stream).is_some() {
                stream.write_all(OK).unwrap();
            }
        }
    });
    let mut edge = Edge::new(UpstreamOptions {
        connections_max: 1,
        ..app.options.clone()
    });
    for tag in 1..=3 {
        edge.send(tag, "GET").unwrap();
    }
    // The first must have its connection before it loses it, or it would not be number 0.
    edge.turn_until(|_| app.connections() == 1);
    for tag in [2, 1, 7] {
        edge.driver.upstream.cancel(edge.event_loop.context(), tag);
    }
    assert_eq!(edge.next(), (3, ok(b"ok")));
    assert!(edge.driver.events.is_empty());
    edge.driver.upstream.cancel(edge.event_loop.context(), 3);
    assert_eq!(edge.ask(4, "GET"), ok(b"ok"));
    assert_eq!(app.connections(), 2);
}

#[test]
fn what_waits_is_told_when_the_application_goes_away() {
    let app = App::new(|_, stream| {
        read_request(stream);
    });
    let mut edge = Edge::new(UpstreamOptions {
        connections_max: 1,
        ..app.options.clone()
    });
    for tag in 0..5 {
        edge.send(tag, "GET").unwrap();
    }
    for tag in 0..5 {
        assert_eq!(edge.next(), (tag, Err(UpstreamError::Closed)));
    }
    assert_eq!(
        (
            edge.driver.upstream.queued(),
            edge.driver.upstream.connections()
        ),
        (0, 0)
    );
}
