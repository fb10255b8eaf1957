//! What loops know together, at times that the test names: values and verdicts that take the place
//! of a request, and requests that another loop sends.

use super::harness::{App, Edge, cursor};
use super::sockets::Socket;
use crate::config::RouteId;
use crate::cursor::Cursor;
use crate::ids::FetchId;
use crate::polls::ask::plain_ask;
use crate::polls::common::Variant;
use crate::polls::fetch::{common_of, head_limits};
use crate::polls::freshness::Freshness;
use crate::polls::misses::memory::{NewValue, Role};
use crate::polls::misses::{CachedOutcome, LoopFetch, UpstreamResult};
use bytes::Bytes;
use dwell_proto::http1::{FieldStorage, parse_request};
use dwell_upstream::{Answer, UpstreamError};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAME: &[u8] = b"/poll/a";

/// The variant of a plain GET of the key.
fn get(edge: &Edge) -> Variant {
    let polls = &edge.driver.front.polls;
    let text = b"GET /poll/a HTTP/1.1\r\nHost: edge\r\n\r\n";
    let mut storage = FieldStorage::new();
    let head = parse_request(text, &mut storage, &head_limits(&polls.config)).unwrap();
    let (ask, route) = (plain_ask(&head), RouteId::FIRST);
    common_of(&polls.routes, &polls.misses, &head, &ask, route).variant
}

/// Notes a value of the application that is fresh for five seconds.
pub(super) fn note(edge: &Edge, now: Instant) {
    let bytes = Bytes::from_static(b"value");
    let value = NewValue {
        bytes: &bytes,
        shared: Some(&bytes),
        flags: 0,
        cursor: Cursor::of(&bytes, 0),
        freshness: Freshness {
            lifetime: Some(Duration::from_secs(5)),
            ..Freshness::default()
        },
        of: Some(get(edge).digest),
    };
    edge.driver
        .front
        .polls
        .misses
        .memory()
        .note(NAME, &value, now);
}

#[test]
fn a_value_stands_in_for_as_long_as_the_route_says() {
    let app = App::start();
    let route = "[[route]]\nprefix = \"/poll/\"\nfill = true\nstale_while_revalidate = \"10s\"\n\
        stale_if_error = \"60s\"";
    let mut edge = Edge::before(&app, route);
    let start = edge.now();
    let polls = &edge.driver.front.polls;
    let after = |seconds| start + Duration::from_secs(seconds);
    let recalls = |seconds| match polls.misses.cached(
        polls.routes.get(RouteId::FIRST),
        NAME,
        get(&edge),
        after(seconds),
    ) {
        Some(recall @ CachedOutcome::Stale(_)) => Some(recall.is_for_renewal()),
        _ => None,
    };
    assert_eq!(recalls(0), None, "nothing is known");
    note(&edge, start);
    // One that has just come is not asked for again.
    assert_eq!(
        [0, 1, 15, 16].map(recalls),
        [Some(false), Some(true), Some(true), None]
    );
    let stands_in = |seconds| {
        polls
            .misses
            .stale_if_error(
                polls.routes.get(RouteId::FIRST),
                NAME,
                get(&edge).digest,
                after(seconds),
            )
            .is_some()
    };
    assert_eq!([16, 65, 66].map(stands_in), [true, true, false]);
}

#[test]
fn a_failure_is_remembered_before_a_value_and_for_its_time() {
    let app = App::start();
    let route = "[[route]]\nprefix = \"/poll/\"\nfill = true\nstale_while_revalidate = \"10s\"";
    let mut edge = Edge::before(&app, route);
    let start = edge.now();
    let polls = &edge.driver.front.polls;
    note(&edge, start);
    let verdict = Err(UpstreamError::Unavailable);
    let until = start + Duration::from_secs(2);
    let memory = &polls.misses.memory();
    memory.refuse(NAME, get(&edge), verdict, until, start);
    let recall = |at| {
        polls
            .misses
            .cached(polls.routes.get(RouteId::FIRST), NAME, get(&edge), at)
    };
    let just_before = until.checked_sub(Duration::from_millis(1)).unwrap();
    assert!(matches!(
        recall(just_before),
        Some(CachedOutcome::Result(Err(_)))
    ));
    assert!(matches!(recall(until), Some(CachedOutcome::Stale(_))));
}

/// Another loop asks for the key, and a poll and a WebSocket of this one follow it.
pub(super) fn followers(edge: &mut Edge) -> (super::Client, Socket) {
    let other = LoopFetch {
        of_loop: 1,
        fetch: FetchId::nth(0),
    };
    let begun = edge
        .driver
        .front
        .polls
        .misses
        .memory()
        .begin(NAME, get(edge), other);
    assert!(matches!(begun, Role::Leader));
    let (poll, socket) = (edge.ask("GET /poll/a"), Socket::open(edge, "/poll/a"));
    edge.turn_until(|edge| {
        edge.front.polls.waiters.polls().len() + edge.front.polls.misses.sub_fetches() == 2
    });
    assert_eq!(edge.driver.front.polls.misses.following(), 1);
    (poll, socket)
}

/// The other loop has been answered, and its word for this one is lost.
pub(super) fn forget(edge: &Edge) {
    let memory = &edge.driver.front.polls.misses.memory();
    assert_eq!(memory.end(NAME, get(edge)).len(), 1);
}

pub(super) fn recheck(edge: &mut Edge) {
    let (context, driver) = (edge.event_loop.context(), &mut edge.driver);
    driver
        .front
        .polls
        .recheck_flights(context, &mut driver.servers.http);
}

fn tell(edge: &mut Edge, verdict: Option<&UpstreamResult>) {
    let fetch = edge.driver.front.polls.misses.first().unwrap();
    let (context, driver) = (edge.event_loop.context(), &mut edge.driver);
    let http = &mut driver.servers.http;
    driver.front.polls.followed(context, http, fetch, verdict);
}

fn frame(value: &str) -> String {
    format!(r#"{{"v":"{value}","c":"{}"}}"#, cursor(value))
}

#[test]
fn a_word_that_is_lost_is_asked_for() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let (mut poll, mut socket) = followers(&mut edge);
    recheck(&mut edge);
    assert_eq!(
        edge.driver.front.polls.misses.following(),
        1,
        "the other loop asks still"
    );
    forget(&edge);
    recheck(&mut edge);
    assert_eq!(edge.driver.front.polls.misses.following(), 0);
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.answer(200, "", "one");
    assert_eq!(edge.answer(&mut poll), (200, "one".to_owned()));
    socket.await_last(&mut edge, &frame("one"));
    drop(socket);
    edge.assert_nothing_left();
}

#[test]
fn what_another_loop_was_answered_is_for_those_who_follow() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let (mut poll, mut socket) = followers(&mut edge);
    forget(&edge);
    let answer = Answer {
        status: 200,
        fields: Vec::new(),
        content_length: None,
        body: Bytes::from_static(b"one"),
    };
    tell(&mut edge, Some(&Ok(Arc::new(answer))));
    assert_eq!(edge.answer(&mut poll), (200, "one".to_owned()));
    socket.await_last(&mut edge, &frame("one"));
    drop(socket);
    edge.assert_nothing_left();
}

#[test]
fn those_who_followed_for_nothing_ask_for_themselves() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let (mut poll, mut socket) = followers(&mut edge);
    forget(&edge);
    tell(&mut edge, None);
    let (mut of_poll, _) = app.accept(&mut edge);
    let (mut of_socket, _) = app.accept(&mut edge);
    of_poll.answer(200, "", "one");
    of_socket.answer(200, "", "two");
    assert_eq!(edge.answer(&mut poll), (200, "one".to_owned()));
    socket.await_last(&mut edge, &frame("two"));
    edge.set("/poll/a", "stored");
    socket.await_last(&mut edge, &frame("stored"));
    assert_eq!(socket.frames.len(), 2);
    drop(socket);
    edge.assert_nothing_left();
}
