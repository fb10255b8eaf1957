//! Whatever becomes of a poll, no table keeps anything of it.

mod alike;
mod durations;
mod feeds;
mod forwards;
mod gathered;
mod guards;
mod harness;
mod hints;
mod identity;
mod listeners;
mod missing;
mod model;
mod multi_poll;
mod orders;
mod output;
mod owed;
mod places;
mod poisoning;
mod recall;
mod reload;
mod rough;
mod slices;
mod sockets;
mod usual;
mod waits;
mod work;

use dwell_testkit::Script;
use harness::{App, Client, Edge, cursor, memcached, memcached_without_cas, scripted};
use std::fmt::Display;

/// A poll that waits, because it has the value that is there.
fn wait_for(edge: &Edge, key: &str, value: &str) -> Client {
    let since = cursor(value);
    edge.ask(&format!("GET {key}?since={since}&wait=50s"))
}

#[test]
fn a_poll_that_is_answered_at_once_leaves_nothing() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    let mut client = edge.connect();
    let since = cursor("one");
    for (request, status, body) in [
        ("GET /poll/a".to_owned(), 200, "one"),
        (format!("GET /poll/a?since={since}"), 304, ""),
        (format!("POST /poll/a?since={since}"), 204, ""),
        ("GET /poll/b".to_owned(), 404, "no such key\n"),
        (
            "GET /poll/a?wait=x".to_owned(),
            400,
            "wait is not a number of seconds: x\n",
        ),
        ("PUT /poll/a".to_owned(), 405, "method not allowed\n"),
        (
            "GET /elsewhere".to_owned(),
            404,
            "no route and no upstream\n",
        ),
    ] {
        client.send(&request);
        assert_eq!(
            edge.answer(&mut client),
            (status, body.to_owned()),
            "{request}"
        );
        assert!(edge.driver.front.polls.is_empty());
    }
    edge.assert_nothing_left();
}

#[test]
fn a_wait_ends_by_a_change_by_its_time_or_with_its_client() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    let mut woken = wait_for(&edge, "/poll/a", "one");
    let gone = wait_for(&edge, "/poll/a", "one");
    let half = wait_for(&edge, "/poll/a", "one");
    let since = cursor("one");
    let mut short = edge.ask(&format!("GET /poll/a?since={since}&wait=50ms"));
    edge.turn_until_waiting(4);
    assert_eq!(edge.answer(&mut short).0, 204);
    drop(gone);
    half.socket.shutdown_write().unwrap();
    edge.turn_until_waiting(1);
    edge.set("/poll/a", "one");
    edge.turn();
    assert_eq!(
        edge.driver.front.polls.waiting(),
        1,
        "the same value is no news"
    );
    edge.set("/poll/a", "two");
    assert_eq!(edge.answer(&mut woken), (200, "two".to_owned()));
    edge.assert_nothing_left();
}

#[test]
fn the_last_of_many_waiters_takes_the_watch_along() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    let mut clients: Vec<_> = (0..40).map(|_| wait_for(&edge, "/poll/a", "one")).collect();
    edge.turn_until_waiting(40);
    assert_eq!(edge.store().statistics().watched_keys, 1);
    clients.truncate(1);
    edge.turn_until_waiting(1);
    assert_eq!(edge.store().statistics().watched_keys, 1);
    clients.clear();
    edge.assert_nothing_left();
}

#[test]
fn a_first_value_is_waited_for() {
    let mut edge = Edge::new("");
    let mut client = edge.ask("GET /poll/new?wait=50s");
    let mut short = edge.ask("GET /poll/new?wait=20ms");
    edge.turn_until_waiting(2);
    assert_eq!(edge.answer(&mut short).0, 204);
    edge.set("/poll/new", "first");
    assert_eq!(edge.answer(&mut client), (200, "first".to_owned()));
    edge.assert_nothing_left();
}

#[test]
fn too_many_waits_are_refused_and_answers_are_not() {
    let mut edge = Edge::new("limits.waiters_max = 1");
    edge.set("/poll/a", "one");
    let first = wait_for(&edge, "/poll/a", "one");
    edge.turn_until_waiting(1);
    let mut second = wait_for(&edge, "/poll/b", "one");
    assert_eq!(edge.answer(&mut second).0, 404);
    edge.set("/poll/b", "one");
    let mut second = wait_for(&edge, "/poll/b", "one");
    assert_eq!(edge.answer(&mut second).0, 503);
    second.send("GET /poll/b");
    assert_eq!(edge.answer(&mut second).0, 200);
    drop(first);
    edge.assert_nothing_left();
}

#[test]
fn what_a_deleted_key_means_is_the_routes_to_say() {
    for (rule, status) in [("origin", 404), ("not-found", 404), ("keep-waiting", 200)] {
        let mut edge = Edge::new(&format!(
            "[[route]]\nprefix = \"/poll/\"\non_delete = \"{rule}\""
        ));
        edge.set("/poll/a", "one");
        let mut client = wait_for(&edge, "/poll/a", "one");
        edge.turn_until_waiting(1);
        edge.delete("/poll/a");
        edge.turn();
        edge.set("/poll/a", "two");
        assert_eq!(edge.answer(&mut client).0, status, "{rule}");
        edge.assert_nothing_left();
    }
}

#[test]
fn misses_share_a_request_of_their_method() {
    let app = App::start();
    let mut edge = Edge::before(&app, "[[route]]\nprefix = \"/poll/\"\ncoalesce_post = true");
    let mut first = edge.ask("GET /poll/a");
    let (mut exchange, line) = app.accept(&mut edge);
    assert_eq!(line, "GET /poll/a HTTP/1.1");
    let mut second = edge.ask("GET /poll/a");
    let gone = edge.ask("GET /poll/a");
    let mut head = edge.ask("HEAD /poll/a");
    let (mut of_head, line) = app.accept(&mut edge);
    assert_eq!(line, "HEAD /poll/a HTTP/1.1");
    let mut post = edge.ask("POST /poll/a");
    let (mut of_post, line) = app.accept(&mut edge);
    assert_eq!(line, "POST /poll/a HTTP/1.1");
    edge.turn_until(|edge| edge.front.polls.waiters.polls().len() == 5);
    gone.reset();
    edge.turn_until(|edge| edge.front.polls.waiters.polls().len() == 4);
    exchange.answer(200, "", "fresh");
    assert_eq!(edge.answer(&mut first), (200, "fresh".to_owned()));
    assert_eq!(edge.answer(&mut second), (200, "fresh".to_owned()));
    of_head.answer(200, "", "");
    assert_eq!(edge.answer(&mut head).0, 200);
    of_post.answer(201, "", "made");
    assert_eq!(edge.answer(&mut post), (201, "made".to_owned()));
    edge.assert_nothing_left();
}

#[test]
fn a_cookie_is_for_one_and_the_others_ask_again() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let mut first = edge.ask("GET /poll/a?since=1");
    let (mut exchange, _) = app.accept(&mut edge);
    let mut second = edge.ask("GET /poll/a?since=2");
    let gone = edge.ask("GET /poll/a?since=3");
    edge.turn_until(|edge| edge.front.polls.waiters.polls().len() == 3);
    gone.reset();
    edge.turn_until(|edge| edge.front.polls.waiters.polls().len() == 2);
    exchange.answer(200, "Set-Cookie: session=1\r\n", "for 1");
    assert_eq!(edge.answer(&mut first), (200, "for 1".to_owned()));
    let line = exchange.request(&mut edge);
    assert_eq!(line, "GET /poll/a?since=2 HTTP/1.1");
    exchange.answer(200, "Set-Cookie: session=2\r\n", "for 2");
    assert_eq!(edge.answer(&mut second), (200, "for 2".to_owned()));
    edge.assert_nothing_left();
}

#[test]
fn a_fetch_outlives_its_clients_and_no_longer() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let clients = [edge.ask("GET /poll/a"), edge.ask("GET /poll/b")];
    let (mut one, _) = app.accept(&mut edge);
    let (mut other, _) = app.accept(&mut edge);
    for client in clients {
        client.reset();
    }
    edge.turn_until(|edge| edge.front.polls.is_idle());
    assert_eq!(edge.driver.front.polls.misses.fetches(), 2);
    one.answer(200, "", "late");
    other.answer(200, "", "late");
    edge.assert_nothing_left();
}

#[test]
fn an_application_that_fails_is_said_to_all_who_wait_for_it() {
    let app = App::start();
    let mut edge = Edge::before(&app, "upstream.header_timeout = \"50ms\"");
    let mut slow = [edge.ask("GET /poll/a"), edge.ask("GET /poll/a")];
    for client in &mut slow {
        assert_eq!(edge.answer(client).0, 504);
    }
    let mut broken = edge.ask("POST /poll/a");
    let (first, _) = app.accept(&mut edge);
    drop(first);
    let (second, line) = app.accept(&mut edge);
    assert_eq!(line, "POST /poll/a HTTP/1.1");
    drop(second);
    assert_eq!(edge.answer(&mut broken).0, 502);
    drop(app);
    let mut refused = edge.ask("GET /poll/b");
    assert_eq!(edge.answer(&mut refused).0, 502);
    edge.assert_nothing_left();
}

#[test]
fn held_polls_whose_key_goes_away_share_one_request() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    edge.set("/poll/a", "one");
    let mut clients = [0; 3].map(|_| wait_for(&edge, "/poll/a", "one"));
    let gone = wait_for(&edge, "/poll/a", "one");
    edge.turn_until_waiting(4);
    drop(gone);
    edge.turn_until_waiting(3);
    edge.delete("/poll/a");
    let (mut exchange, _) = app.accept(&mut edge);
    assert_eq!(edge.driver.front.polls.waiting(), 0);
    assert_eq!(edge.driver.front.polls.misses.fetches(), 1);
    assert_eq!(edge.store().statistics().watched_keys, 0);
    exchange.answer(200, "", "anew");
    for client in &mut clients {
        assert_eq!(edge.answer(client), (200, "anew".to_owned()));
    }
    edge.assert_nothing_left();
}

#[test]
fn a_full_table_of_fetches_leaves_no_key_behind() {
    let app = App::start();
    // Two clients who leave: their fetches go on, and fill the table of fetches.
    let mut edge = Edge::before(&app, "limits.connections_max = 2");
    let clients = [edge.ask("GET /poll/a"), edge.ask("GET /poll/b")];
    let (mut one, _) = app.accept(&mut edge);
    let (mut other, _) = app.accept(&mut edge);
    for client in clients {
        client.reset();
    }
    edge.turn_until(|edge| edge.front.polls.is_idle());
    let mut third = edge.ask("GET /poll/c");
    assert_eq!(edge.answer(&mut third).0, 503);
    one.answer(200, "", "");
    other.answer(200, "", "");
    edge.assert_nothing_left();
}

fn before_memcached(address: impl Display, options: &str) -> Edge {
    Edge::new(&format!(
        "memcached.servers = \"{address}\"\nmemcached.sweep_interval = \"10ms\"\n{options}"
    ))
}

#[test]
fn waits_on_memcached_end_by_a_sweep() {
    // Without cas numbers every sweep reads the value.
    for memcached in [memcached(), memcached_without_cas()] {
        let mut edge = before_memcached(memcached.address(), "");
        memcached.set("/poll/a", "one");
        let mut hit = edge.ask("GET /poll/a");
        assert_eq!(edge.answer(&mut hit), (200, "one".to_owned()));
        let mut clients = [0; 2].map(|_| wait_for(&edge, "/poll/a", "one"));
        let gone = wait_for(&edge, "/poll/a", "one");
        edge.turn_until(|edge| edge.front.polls.waiting() == 3);
        drop(gone);
        edge.turn_until(|edge| edge.front.polls.waiting() == 2);
        memcached.set("/poll/a", "two");
        for client in &mut clients {
            assert_eq!(
                edge.answer(client),
                (200, "two".to_owned()),
                "{memcached:?}"
            );
        }
        edge.assert_nothing_left();
    }
}

#[test]
fn a_server_that_comes_back_with_the_same_cas_is_looked_at_anew() {
    let mut memcached = memcached();
    let options = "memcached.connect_timeout = \"200ms\"";
    let mut edge = before_memcached(memcached.address(), options);
    memcached.set("/poll/a", "one");
    let mut client = wait_for(&edge, "/poll/a", "one");
    edge.turn_until(|edge| edge.front.polls.waiting() == 1);
    memcached.kill();
    memcached.restart();
    // The first item of either life has the same number.
    memcached.set("/poll/a", "two");
    assert_eq!(edge.answer(&mut client).0 / 100, 2);
    edge.assert_nothing_left();
}

#[test]
fn clients_that_leave_during_a_lookup_leave_nothing() {
    let server = scripted([Script::new()
        .expect("version\r\n")
        .send("VERSION 1.6.18\r\n")
        .expect("gets /poll/b\r\n")
        .send("END\r\n")
        .expect("gets /poll/a\r\n")
        .hang()]);
    let mut edge = before_memcached(server.address(), "memcached.timeout = \"300ms\"");
    // Once a server has answered, what is asked behind an answer it owes is held.
    let mut known = edge.ask("GET /poll/b");
    assert_eq!(edge.answer(&mut known).0, 404);
    let first = edge.ask("GET /poll/a");
    edge.turn_until(|edge| edge.front.polls.lookups.len() == 1);
    let mut second = edge.ask("GET /poll/a");
    edge.turn_until(|edge| edge.front.polls.lookups.len() == 2);
    first.reset();
    edge.turn_until(|edge| edge.front.polls.waiters.polls().len() == 1);
    assert_eq!(edge.answer(&mut second).0, 503, "nobody knows");
    edge.assert_nothing_left();
}

#[test]
fn a_drain_ends_waits_and_lookups_and_in_its_time_everything() {
    let app = App::start();
    let mut edge = Edge::before(&app, "limits.drain_timeout = \"200ms\"");
    edge.set("/poll/a", "one");
    let mut held = wait_for(&edge, "/poll/a", "one");
    let mut fetched = edge.ask("GET /poll/b");
    edge.turn_until_waiting(1);
    let _never_answered = app.accept(&mut edge);
    edge.driver.fleet.advance(dwell_evloop::Lifecycle::Drain);
    assert_eq!(edge.answer(&mut held).0, 204);
    assert!(!edge.event_loop.context().is_stopped());
    while !edge.event_loop.context().is_stopped() {
        edge.turn();
    }
    assert_eq!(edge.answer(&mut fetched).0, 0, "closed without an answer");
    assert!(edge.driver.front.polls.is_idle());
}

#[test]
fn a_second_signal_stops_at_once() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let fetched = edge.ask("GET /poll/b");
    edge.turn_until(|edge| edge.front.polls.waiters.polls().len() == 1);
    for _ in 0..2 {
        assert!(!edge.event_loop.context().is_stopped());
        let context = edge.event_loop.context();
        dwell_evloop::Driver::signal(&mut edge.driver, context, 15);
        edge.turn();
    }
    assert!(edge.event_loop.context().is_stopped());
    drop(fetched);
}
