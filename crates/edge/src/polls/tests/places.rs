//! The moves that real polls make, beside the table of them.

use super::harness::{App, Edge, cursor, memcached};
use super::recall::{followers, forget, note, recheck};
use super::{before_memcached, wait_for};
use crate::polls::places::{MOVES, seen};
use std::collections::BTreeSet;

/// Misses and waits before the embedded store: a response for one client, and a key that goes.
fn before_the_embedded_store() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let mut one = edge.ask("GET /poll/a?since=1");
    let (mut exchange, _) = app.accept(&mut edge);
    let mut other = edge.ask("GET /poll/a?since=2");
    edge.turn_until(|edge| edge.front.polls.waiters.polls().len() == 2);
    exchange.answer(200, "Set-Cookie: session=1\r\n", "for one");
    assert_eq!(edge.answer(&mut one), (200, "for one".to_owned()));
    exchange.request(&mut edge);
    exchange.answer(200, "", "for the other");
    assert_eq!(edge.answer(&mut other), (200, "for the other".to_owned()));
    edge.set("/poll/a", "one");
    let mut held = wait_for(&edge, "/poll/a", "one");
    edge.turn_until_waiting(1);
    edge.set("/poll/a", "two");
    assert_eq!(edge.answer(&mut held), (200, "two".to_owned()));
    let mut held = wait_for(&edge, "/poll/a", "two");
    edge.turn_until_waiting(1);
    edge.delete("/poll/a");
    exchange.request(&mut edge);
    exchange.answer(404, "", "");
    assert_eq!(edge.answer(&mut held).0, 404);
}

/// A poll whose client has the value that stands for the response of the application.
fn with_a_stale_value() {
    let app = App::start();
    let route = "[[route]]\nprefix = \"/poll/\"\nfill = true\nstale_if_error = \"60s\"";
    let mut edge = Edge::before(&app, route);
    let now = edge.now();
    note(&edge, now);
    let mut held = wait_for(&edge, "/poll/a", "value");
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.answer(500, "", "");
    edge.turn_until_waiting(1);
    edge.set("/poll/a", "newer");
    assert_eq!(edge.answer(&mut held), (200, "newer".to_owned()));
}

/// A poll that shares the request of another loop, and asks itself in the end.
fn beside_another_loop() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let (mut poll, _socket) = followers(&mut edge);
    forget(&edge);
    recheck(&mut edge);
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.answer(200, "", "one");
    assert_eq!(edge.answer(&mut poll), (200, "one".to_owned()));
}

fn on_a_guarded_route() {
    let app = App::start();
    let route = "[[route]]\nprefix = \"/poll/\"\nauth = \"/auth\"";
    let mut edge = Edge::before(&app, route);
    edge.set("/poll/a", "one");
    let mut client = edge.ask("GET /poll/a");
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.answer(204, "", "");
    assert_eq!(edge.answer(&mut client), (200, "one".to_owned()));
}

/// Lookups that end in a value, a wait and a miss, and a value that is published.
fn before_a_memcached() {
    let (app, memcached) = (App::start(), memcached());
    let options = format!(
        "upstream.url = \"http://{}\"\npublish.token = \"0123456789abcdef0123\"\n\
         [[route]]\nprefix = \"/poll/\"\npublish = true",
        app.address()
    );
    let mut edge = before_memcached(memcached.address(), &options);
    memcached.set("/poll/a", "one");
    let mut hit = edge.ask("GET /poll/a");
    assert_eq!(edge.answer(&mut hit), (200, "one".to_owned()));
    let mut held = edge.ask(&format!("GET /poll/a?since={}&wait=50s", cursor("one")));
    edge.turn_until_waiting(1);
    memcached.set("/poll/a", "two");
    assert_eq!(edge.answer(&mut held), (200, "two".to_owned()));
    let mut missed = edge.ask("GET /poll/b");
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.answer(200, "", "fresh");
    assert_eq!(edge.answer(&mut missed), (200, "fresh".to_owned()));
    let put = "PUT /poll/a\nAuthorization: Bearer 0123456789abcdef0123\r\nContent-Length: 0\r\n";
    let mut publisher = edge.ask(put);
    assert_eq!(edge.answer(&mut publisher).0, 204);
}

#[test]
fn polls_make_every_move_of_the_table_and_no_other() {
    seen::take();
    before_the_embedded_store();
    with_a_stale_value();
    beside_another_loop();
    on_a_guarded_route();
    before_a_memcached();
    assert_eq!(seen::take(), BTreeSet::from(MOVES));
}
