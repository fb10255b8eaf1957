//! What is no poll, and the application that ends in the middle of it.

use super::harness::{App, Edge};
use crate::event_loop::EdgeLoop;
use crate::ids::kind;
use crate::metrics::UpstreamOutcome;
use dwell_evloop::Token;
use std::io::Write;

/// Requests to the application, by what they came to.
fn counts(edge: &EdgeLoop) -> Vec<(UpstreamOutcome, u64)> {
    let of = |outcome: &UpstreamOutcome| edge.metrics.upstream_requests.of(*outcome).value();
    let all = UpstreamOutcome::ALL.iter();
    let counts = all.map(|outcome| (*outcome, of(outcome)));
    counts.filter(|(_, count)| *count > 0).collect()
}

#[test]
fn an_answer_that_is_cut_off_counts_once() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let _client = edge.ask("GET /page");
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    edge.turn_until(|edge| edge.metrics.http_request_duration.count() == 1);
    drop(exchange);
    edge.assert_nothing_left();
    let [(_, count)] = counts(&edge.driver)[..] else {
        panic!("{:?}", counts(&edge.driver));
    };
    assert_eq!(count, 1);
}

#[test]
fn a_client_that_leaves_an_answer_leaves_one_that_was_given() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let client = edge.ask("GET /page");
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    edge.turn_until(|edge| edge.metrics.http_request_duration.count() == 1);
    client.reset();
    edge.assert_nothing_left();
    assert_eq!(counts(&edge.driver), [(UpstreamOutcome::Answered, 1)]);
}

#[test]
fn a_piece_of_a_body_waits_for_the_connection_that_its_request_changes_to() {
    let app = App::start();
    let mut edge = Edge::before(&app, "upstream.request_buffer_bytes = \"0\"\n");
    let mut client = edge.ask("GET /page");
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.answer(200, "", "ok");
    assert_eq!(edge.answer(&mut client), (200, "ok".to_owned()));
    client.send("PUT /up\nTransfer-Encoding: chunked\r\n");
    assert_eq!(exchange.request(&mut edge), "PUT /up HTTP/1.1");
    // The application closes the connection that was used before, as it may at any time.
    drop(exchange);
    let tags: Vec<u64> = (0..4)
        .map(|generation| Token::new(kind::PROXIED, generation, 0).to_bits())
        .collect();
    edge.turn_until(|edge| tags.iter().any(|tag| edge.upstreams.is_unannounced(*tag)));
    client.socket.write_all(b"4\r\nbody\r\n0\r\n\r\n").unwrap();
    let mut exchange = app.connection(&mut edge);
    let text = exchange.read_until(&mut edge, "4\r\nbody\r\n0\r\n\r\n");
    assert!(text.starts_with("PUT /up HTTP/1.1\r\n"), "{text}");
    exchange.answer(200, "", "stored");
    assert_eq!(edge.answer(&mut client), (200, "stored".to_owned()));
    edge.assert_nothing_left();
}

#[test]
fn the_time_to_the_head_of_an_answer_is_counted_for_its_server() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let heads = |edge: &EdgeLoop| edge.metrics.upstream_heads[0].count();
    let mut client = edge.ask("GET /page");
    let (mut exchange, _) = app.accept(&mut edge);
    assert_eq!(heads(&edge.driver), 0);
    exchange.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
    edge.turn_until(|edge| heads(edge) == 1);
    exchange.say("ok");
    assert_eq!(edge.answer(&mut client), (200, "ok".to_owned()));
    edge.assert_nothing_left();
    assert_eq!(heads(&edge.driver), 1);
}

#[test]
fn connections_that_have_left_http_count_among_those_allowed() {
    let app = App::start();
    let mut edge = Edge::before(&app, "limits.connections_max = 2\n");
    let mut tunnel = edge.ask("GET /socket\nConnection: Upgrade\r\nUpgrade: other\r\n");
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.say("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n");
    edge.turn_until(|edge| edge.metrics.tunnels_open.value() == 1);
    assert_eq!(edge.answer(&mut tunnel).0, 101);
    assert_eq!(edge.driver.metrics.connections_open.value(), 1);
    let mut second = edge.ask("GET /poll/a?wait=0");
    edge.turn_until(|edge| edge.metrics.connections_open.value() == 2);
    let (mut other, _) = app.accept(&mut edge);
    other.answer(404, "", "");
    assert_eq!(edge.answer(&mut second).0, 404);
    let mut third = edge.connect();
    edge.turn_until(|_| third.take_answer().is_some_and(|(status, _)| status == 0));
    drop((tunnel, exchange));
    edge.turn_until(|edge| edge.metrics.tunnels_open.value() == 0);
    let mut fourth = edge.ask("GET /poll/b");
    let line = other.request(&mut edge);
    assert_eq!(line, "GET /poll/b HTTP/1.1");
    other.answer(404, "", "");
    assert_eq!(edge.answer(&mut fourth).0, 404);
}
