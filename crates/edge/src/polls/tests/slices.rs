//! Changes that are told over several turns.

use super::feeds::Events;
use super::harness::{Client, Edge, cursor};
use super::orders::{complete, hit, silent};
use super::sockets::Socket;
use crate::event_loop::EdgeLoop;
use dwell_evloop::Lifecycle;
use dwell_memcache::on_loop::Outcome;

const COUNT: usize = 40;
/// A turn has room for some twenty of them at once, and for as many at its end.
const VALUE_BYTES: usize = 24 * 1024;

/// The clients that wait for one key, all of them with the value "one".
struct Waiting {
    polls: Vec<Client>,
    streams: Vec<Events>,
}

impl Waiting {
    /// An edge whose key has that value, and the clients that wait for another one.
    fn begin() -> (Edge, Self) {
        let mut edge = Edge::new("");
        edge.set("/poll/a", "one");
        let since = cursor("one");
        let poll = format!("GET /poll/a?since={since}&wait=50s");
        let streams = (0..COUNT).map(|place| {
            // Those of several keys are told in the same order.
            let several = if place % 2 == 0 { "a" } else { "?k=a" };
            Events::follow(&edge, &format!("/poll/{several}"), &since)
        });
        let streams = streams.collect();
        let polls = (0..COUNT).map(|_| edge.ask(&poll)).collect();
        edge.turn_until_waiting(2 * COUNT);
        (edge, Self { polls, streams })
    }

    /// Every poll has one answer, and every stream has come to the newest value, each once.
    fn assert_told(&mut self, edge: &mut Edge, values: &[&str]) -> Vec<usize> {
        let mut told = vec![0; values.len()];
        for client in &mut self.polls {
            let (status, body) = edge.answer(client);
            let place = values.iter().position(|value| *value == body);
            assert_eq!(status, 200);
            told[place.expect("a value that there was")] += 1;
            assert!(is_all(client), "one answer");
        }
        for stream in &mut self.streams {
            let newest = values.last();
            edge.turn_until(|_| stream.data().last() == newest);
            let place = |data: &&str| values.iter().position(|value| value == data);
            let places: Option<Vec<_>> = stream.data().iter().map(place).collect();
            let places = places.expect("only values that there were");
            assert!(places.is_sorted_by(|one, next| one < next), "{places:?}");
        }
        told
    }
}

/// The numbers of polls and of streams that have been told.
fn told(edge: &EdgeLoop) -> (usize, usize) {
    let events = edge.metrics.stream_events.value() as usize;
    let left = edge.front.polls.waiters.polls().len();
    (COUNT.saturating_sub(left), events)
}

/// Gives the key a large value, and tells a part of those that wait for it; returns the value.
fn begin_change(edge: &mut Edge) -> String {
    let large = "a".repeat(VALUE_BYTES);
    edge.set("/poll/a", &large);
    edge.turn_until(|edge| told(edge) != (0, 0));
    let (polls, events) = told(&edge.driver);
    assert!(
        (2..COUNT + 8).contains(&(polls + events)),
        "{polls} {events}"
    );
    assert!(edge.driver.front.polls.has_left());
    large
}

/// True if there is no second answer; a server that ends closes the connection.
fn is_all(client: &mut Client) -> bool {
    client.take_answer().is_none_or(|(status, _)| status == 0)
}

#[test]
fn a_client_that_is_told_later_is_told_the_newest() {
    let (mut edge, mut waiting) = Waiting::begin();
    let large = begin_change(&mut edge);
    let (told_first, _) = told(&edge.driver);
    edge.set("/poll/a", "last");
    let told = waiting.assert_told(&mut edge, &[&large, "last"]);
    // The turn that brings the newest tells nobody what was before.
    assert_eq!(told, [told_first, COUNT - told_first]);
    drop(waiting);
    edge.assert_nothing_left();
}

#[test]
fn others_are_served_while_many_are_told() {
    let (mut edge, mut waiting) = Waiting::begin();
    edge.set("/poll/other", "two");
    let since = cursor("two");
    let mut other = edge.ask(&format!("GET /poll/other?since={since}&wait=50s"));
    edge.turn_until_waiting(2 * COUNT + 1);
    let large = begin_change(&mut edge);
    edge.set("/poll/other", "three");
    assert_eq!(edge.answer(&mut other), (200, "three".to_owned()));
    let (polls, events) = told(&edge.driver);
    assert!(polls + events < 2 * COUNT, "{polls} {events}");
    waiting.assert_told(&mut edge, &[&large]);
    drop((waiting, other));
    edge.assert_nothing_left();
}

#[test]
fn a_client_that_is_told_later_is_told_before_the_server_ends() {
    for order in [Lifecycle::Drain, Lifecycle::HandOver] {
        let (mut edge, mut waiting) = Waiting::begin();
        let large = begin_change(&mut edge);
        edge.driver.fleet.advance(order);
        waiting.assert_told(&mut edge, &[&large]);
    }
}

#[test]
fn what_memcached_has_said_is_told_before_the_server_ends() {
    let (_server, mut edge) = silent();
    let poll = format!("GET /poll/a?since={}&wait=50s", cursor("one"));
    let mut clients: Vec<_> = (0..2 * COUNT).map(|_| edge.ask(&poll)).collect();
    edge.turn_until(|edge| edge.front.polls.waiters.polls().len() == 2 * COUNT);
    while !edge.driver.front.polls.lookups.is_empty() {
        complete(&mut edge, "/poll/a", false, hit("one", 1));
    }
    assert_eq!(edge.driver.front.polls.waiting(), 2 * COUNT);
    let large = "a".repeat(VALUE_BYTES);
    let version = Outcome::Version { cas_unique: 2 };
    complete(&mut edge, "/poll/a", true, version);
    complete(&mut edge, "/poll/a", false, hit(&large, 2));
    let waiting = edge.driver.front.polls.waiting();
    assert!((1..2 * COUNT).contains(&waiting), "{waiting}");
    edge.driver.fleet.advance(Lifecycle::Drain);
    for client in &mut clients {
        assert_eq!(edge.answer(client), (200, large.clone()));
        assert!(is_all(client));
    }
}

#[test]
fn a_socket_is_told_behind_those_that_came_before_it() {
    let (mut edge, mut waiting) = Waiting::begin();
    let target = format!("/poll/a?since={}", cursor("one"));
    let mut socket = Socket::open(&edge, &target);
    edge.turn_until_waiting(2 * COUNT + 1);
    edge.turn_until(|edge| edge.servers.websockets.connections() == 1);
    let large = begin_change(&mut edge);
    edge.set("/poll/a", "last");
    waiting.assert_told(&mut edge, &[&large, "last"]);
    let frame = format!(r#"{{"v":"last","c":"{}"}}"#, cursor("last"));
    socket.await_last(&mut edge, &frame);
    assert_eq!(socket.frames, [frame], "it was told nothing else");
    drop((waiting, socket));
    edge.assert_nothing_left();
}

#[test]
fn a_stream_of_several_keys_is_told_of_them_all_before_the_server_ends() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    edge.set("/poll/quiet", "two");
    let known = format!("{}.{}", cursor("two"), cursor("one"));
    let follow = |_| Events::follow(&edge, "/poll/?k=quiet&k=a", &known);
    let mut streams: Vec<_> = (0..2 * COUNT).map(follow).collect();
    edge.turn_until_waiting(4 * COUNT);
    let large = "a".repeat(VALUE_BYTES);
    edge.set("/poll/a", &large);
    edge.turn_until(|edge| edge.metrics.stream_events.value() > 0);
    assert!(edge.driver.front.polls.has_left());
    edge.driver.fleet.advance(Lifecycle::Drain);
    edge.turn_until(|edge| edge.front.polls.streams() == 0);
    for stream in &mut streams {
        edge.turn_until(|_| stream.ends_with("0\r\n\r\n"));
        assert!(stream.text().contains(&large), "it was told");
    }
}

#[test]
fn polls_that_wait_alone_for_their_keys_are_told_over_several_turns() {
    let mut edge = Edge::new("");
    let ask = |key: usize| edge.ask(&format!("GET /poll/{key}?wait=50s"));
    let mut clients: Vec<_> = (0..2 * COUNT).map(ask).collect();
    edge.turn_until_waiting(2 * COUNT);
    // Small enough to be copied for each.
    let value = "a".repeat(15_000);
    for key in 0..2 * COUNT {
        edge.set(&format!("/poll/{key}"), &value);
    }
    edge.turn_until(|edge| edge.front.polls.waiting() < 2 * COUNT);
    let waiting = edge.driver.front.polls.waiting();
    assert!((1..COUNT).contains(&waiting), "{waiting}");
    for client in &mut clients {
        assert_eq!(edge.answer(client), (200, value.clone()));
        assert!(is_all(client), "one answer");
    }
    drop(clients);
    edge.assert_nothing_left();
}
