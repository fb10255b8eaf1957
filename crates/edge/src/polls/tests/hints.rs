//! A hint makes a loop read, once for many, and answers nobody by itself.

use super::harness::{Client, Edge, cursor, memcached, scripted};
use super::wait_for;
use crate::metrics::{LookupOutcome, ServerState};
use dwell_memcache::watch::{HintOutcome, ResyncReason};
use dwell_testkit::Script;
use std::fmt::Display;

/// An edge that looks for itself long after these tests.
fn unswept(address: impl Display, options: &str) -> Edge {
    Edge::new(&format!(
        "memcached.servers = \"{address}\"\nmemcached.sweep_interval = \"60s\"\n{options}"
    ))
}

fn hint(edge: &mut Edge, keys: &[&str]) {
    let names: Vec<Box<[u8]>> = keys.iter().map(|key| key.as_bytes().into()).collect();
    edge.driver.front.polls.hinted(&names);
}

/// How many hints were read, joined and of nobody.
fn hints(edge: &Edge) -> [u64; 3] {
    let hints = &edge.driver.metrics.feed.hints;
    [
        HintOutcome::Read,
        HintOutcome::Joined,
        HintOutcome::Unwatched,
    ]
    .map(|of| hints.of(of).value())
}

fn hits(edge: &Edge) -> u64 {
    let lookups = &edge.driver.metrics.memcached_lookups;
    lookups.of(LookupOutcome::Hit).value()
}

/// Turns until memcached owes nothing.
fn turn_until_quiet(edge: &mut Edge) {
    edge.turn();
    edge.turn_until(|edge| {
        let operations = edge.cache.operations();
        operations == 0 && !edge.front.polls.lookups.is_sweeping()
    });
}

#[test]
fn a_hint_has_a_key_read_that_polls_wait_for() {
    let memcached = memcached();
    let mut edge = unswept(memcached.address(), "");
    memcached.set("/poll/a", "one");
    let mut client = wait_for(&edge, "/poll/a", "one");
    edge.turn_until_waiting(1);
    hint(&mut edge, &["/poll/a", "/poll/b", "/poll/a"]);
    assert_eq!(hints(&edge), [1, 1, 1]);
    turn_until_quiet(&mut edge);
    assert_eq!(
        edge.driver.front.polls.waiting(),
        1,
        "the same value is no news"
    );
    memcached.set("/poll/a", "two");
    hint(&mut edge, &["/poll/a"]);
    assert_eq!(edge.answer(&mut client), (200, "two".to_owned()));
    hint(&mut edge, &["/poll/a"]);
    assert_eq!(hints(&edge), [2, 1, 2], "nobody waits any more");
    edge.assert_nothing_left();
}

#[test]
fn hints_during_a_read_are_one_more_read_after_it() {
    let value = |cas: u8, value: &str| format!("VALUE /poll/a 0 3 {cas}\r\n{value}\r\nEND\r\n");
    let server = scripted([Script::new()
        .expect("version\r\n")
        .send("VERSION 1.6.18\r\n")
        .expect("gets /poll/a\r\n")
        .send(value(1, "one"))
        .expect("gets /poll/a\r\n")
        .send(value(1, "one"))
        .expect("gets /poll/a\r\n")
        .send(value(2, "two"))
        .hang()]);
    let mut edge = unswept(server.address(), "");
    let mut client = wait_for(&edge, "/poll/a", "one");
    edge.turn_until_waiting(1);
    hint(&mut edge, &["/poll/a"]);
    // It is asked for when a turn ends, and nothing is read in the turn before that.
    edge.turn();
    hint(&mut edge, &["/poll/a", "/poll/a"]);
    assert_eq!(hints(&edge), [1, 2, 0]);
    assert_eq!(edge.answer(&mut client), (200, "two".to_owned()));
    edge.assert_nothing_left();
}

#[test]
fn a_stream_is_told_of_no_read_that_had_begun_before_it_named_the_key() {
    let value = |cas: u8, value: &str| format!("VALUE /poll/a 0 3 {cas}\r\n{value}\r\nEND\r\n");
    let server = scripted([Script::new()
        .expect("version\r\n")
        .send("VERSION 1.6.18\r\n")
        .expect("gets /poll/a\r\n")
        .send(value(1, "one"))
        .expect("gets /poll/a\r\n")
        // The reply is slow, and there is nothing any more when the second client comes.
        .expect("gets /poll/a\r\n")
        .send(value(2, "two"))
        .send("END\r\n")
        .hang()]);
    let mut edge = unswept(server.address(), "");
    let stream = |edge: &Edge, fields: &str| {
        edge.ask(&format!(
            "GET /poll/?k=a\nAccept: text/event-stream\r\n{fields}"
        ))
    };
    let told = |edge: &mut Edge, client: &mut Client, what: &str| {
        edge.turn_until(|_| {
            client.receive();
            String::from_utf8_lossy(&client.received).contains(what)
        });
        String::from_utf8_lossy(&client.received).into_owned()
    };
    let mut before = stream(&edge, "");
    told(&mut edge, &mut before, "data: one");
    hint(&mut edge, &["/poll/a"]);
    edge.turn();
    let mut behind = stream(&edge, &format!("Last-Event-ID: {}\r\n", cursor("one")));
    let text = told(&mut edge, &mut behind, "event: delete");
    assert!(!text.contains("two"), "{text}");
    let text = told(&mut edge, &mut before, "event: delete");
    assert!(text.contains("data: two"), "{text}");
    drop((before, behind));
    edge.assert_nothing_left();
}

#[test]
fn a_look_at_everything_of_a_server_spares_the_others() {
    let memcached = memcached();
    let mut edge = unswept(memcached.address(), "");
    let mut clients = ["/poll/a", "/poll/b"].map(|key| {
        memcached.set(key, "one");
        wait_for(&edge, key, "one")
    });
    edge.turn_until_waiting(2);
    memcached.set("/poll/a", "two");
    memcached.set("/poll/b", "two");
    let [first, second] = &mut clients;
    edge.driver
        .front
        .polls
        .resync(|name| name == b"/poll/b", false);
    assert_eq!(edge.answer(second), (200, "two".to_owned()));
    assert_eq!(edge.driver.front.polls.waiting(), 1);
    edge.driver.front.polls.resync(|_| true, false);
    assert_eq!(edge.answer(first), (200, "two".to_owned()));
    edge.assert_nothing_left();
}

#[test]
fn versions_that_are_distrusted_have_the_value_read() {
    let memcached = memcached();
    let mut edge = unswept(memcached.address(), "");
    memcached.set("/poll/a", "one");
    let mut client = wait_for(&edge, "/poll/a", "one");
    edge.turn_until_waiting(1);
    let before = hits(&edge);
    edge.driver.front.polls.resync(|_| true, false);
    turn_until_quiet(&mut edge);
    assert_eq!(hits(&edge), before, "the version says that it is the same");
    edge.driver.front.polls.resync(|_| true, true);
    turn_until_quiet(&mut edge);
    assert_eq!(hits(&edge), before + 1);
    assert_eq!(edge.driver.front.polls.waiting(), 1);
    memcached.set("/poll/a", "two");
    hint(&mut edge, &["/poll/a"]);
    assert_eq!(edge.answer(&mut client), (200, "two".to_owned()));
    edge.assert_nothing_left();
}

#[test]
fn a_server_that_is_reached_again_is_looked_at() {
    let mut memcached = memcached();
    let mut edge = unswept(memcached.address(), "memcached.watch = true");
    memcached.set("/poll/a", "one");
    let mut client = wait_for(&edge, "/poll/a", "one");
    edge.turn_until_waiting(1);
    // From here on nobody tells anything.
    edge.driver.hints.end_feed();
    memcached.kill();
    edge.turn_until(|edge| edge.metrics.servers[0].state() != ServerState::Up);
    memcached.restart();
    memcached.set("/poll/a", "two");
    assert_eq!(edge.answer(&mut client), (200, "two".to_owned()));
    let resyncs = &edge.driver.metrics.feed.resyncs;
    assert!(resyncs.of(ResyncReason::Returned).value() >= 1);
    edge.assert_nothing_left();
}
