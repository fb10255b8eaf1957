//! Responses by listener: each is counted once for the listener of its connection, whichever
//! component sends it.

use super::harness::{App, Edge};
use super::wait_for;
use crate::metrics::StatusClass;

/// The responses and rejections of the one listener, after the check that the former are those of
/// the loop.
#[track_caller]
fn responses(edge: &Edge) -> (Vec<(StatusClass, u64)>, u64) {
    let metrics = &edge.driver.metrics;
    let cells = &metrics.listeners[0];
    let counts = StatusClass::ALL.iter().map(|class| {
        let of_listener = cells.responses.of(*class).value();
        assert_eq!(metrics.http_requests.of(*class).value(), of_listener);
        (*class, of_listener)
    });
    let counts = counts.filter(|(_, count)| *count > 0).collect();
    (counts, cells.rejected.value())
}

#[test]
fn whatever_answers_counts_for_the_listener() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    edge.set("/poll/a", "one");
    let mut client = edge.ask("GET /poll/a\nConnection: close\r\n");
    assert_eq!(edge.answer(&mut client).0, 200);
    let mut held = wait_for(&edge, "/poll/a", "one");
    edge.turn_until_waiting(1);
    edge.set("/poll/a", "two");
    assert_eq!(edge.answer(&mut held).0, 200);
    assert_eq!(responses(&edge), (vec![(StatusClass::Success, 2)], 0));

    // A connection that ends with the response, which the application sends.
    let mut client = edge.ask("GET /page\nConnection: close\r\n");
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.answer(404, "", "none");
    assert_eq!(edge.answer(&mut client).0, 404);
    // A poll that the cache has no value for.
    let mut client = edge.ask("GET /poll/missing\nConnection: close\r\n");
    exchange.request(&mut edge);
    exchange.answer(404, "", "none");
    assert_eq!(edge.answer(&mut client).0, 404);
    let client_errors = (StatusClass::ClientError, 2);
    let expected = vec![(StatusClass::Success, 2), client_errors];
    assert_eq!(responses(&edge), (expected, 0));

    // Connections that leave HTTP.
    let upgrade = "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nUpgrade: websocket\r\n";
    let _socket = edge.ask(&format!("GET /poll/a\n{upgrade}"));
    edge.turn_until(|edge| edge.servers.websockets.connections() == 1);
    let mut tunnel = edge.ask("GET /socket\nConnection: Upgrade\r\nUpgrade: other\r\n");
    exchange.request(&mut edge);
    exchange.say("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n");
    assert_eq!(edge.answer(&mut tunnel).0, 101);
    let switched = (StatusClass::Informational, 2);
    let expected = vec![switched, (StatusClass::Success, 2), client_errors];
    assert_eq!(responses(&edge), (expected, 0));

    // An application that ends, and a request that cannot be read.
    let mut client = edge.ask("GET /page\nConnection: close\r\n");
    let (exchange, _) = app.accept(&mut edge);
    drop((exchange, app));
    assert_eq!(edge.answer(&mut client).0, 502);
    let mut client = edge.ask("GET /poll/a\nTransfer-Encoding: none\r\n");
    assert_eq!(edge.answer(&mut client).0, 501);
    let server_errors = (StatusClass::ServerError, 2);
    let expected = vec![
        switched,
        (StatusClass::Success, 2),
        client_errors,
        server_errors,
    ];
    assert_eq!(responses(&edge), (expected, 1));
}
