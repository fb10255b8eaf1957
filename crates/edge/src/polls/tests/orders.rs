//! The orders in which what a poll of several keys waits for may come: each is played by hand, so
//! that it is the same on every machine. Whatever the order, nothing waits without a deadline, and
//! what is there at the end is told.

use super::before_memcached;
use super::harness::{App, Client, Edge, cursor, scripted};
use crate::polls::misses::UpstreamResult;
use bytes::Bytes;
use dwell_evloop::Id;
use dwell_memcache::on_loop::{Completion, Outcome};
use dwell_testkit::Script;
use dwell_testkit::sim::SimScripted;
use dwell_upstream::{Answer, UpstreamError};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::sync::Arc;

fn answer(status: u16, body: &str) -> Arc<Answer> {
    Arc::new(Answer {
        status,
        fields: Vec::new(),
        content_length: None,
        body: Bytes::copy_from_slice(body.as_bytes()),
    })
}

/// The application answers the request that was sent first of those that are in progress.
fn tell_first(edge: &mut Edge, verdict: &UpstreamResult) -> bool {
    let Some(fetch) = edge.driver.front.polls.misses.first() else {
        return false;
    };
    let (context, driver) = (edge.event_loop.context(), &mut edge.driver);
    let http = &mut driver.servers.http;
    driver
        .front
        .polls
        .result_came(context, http, fetch, verdict, false);
    true
}

/// memcached says this of a key: to the oldest lookup of it, or to the sweep.
pub(super) fn complete(edge: &mut Edge, key: &str, is_sweep: bool, outcome: Outcome<'_>) {
    let polls = &edge.driver.front.polls;
    let of_key = polls.waiters.keys.find(key.as_bytes()).unwrap();
    let lookup = polls.lookups.first_of(of_key).map(Id::to_bits);
    let completion = Completion {
        tag: if is_sweep {
            of_key.to_bits()
        } else {
            lookup.unwrap()
        },
        server: 0,
        epoch: 1,
        outcome,
    };
    let (context, driver) = (edge.event_loop.context(), &mut edge.driver);
    driver
        .front
        .polls
        .completed(context, &mut driver.servers.http, &completion);
}

pub(super) fn hit(value: &str, cas_unique: u64) -> Outcome<'_> {
    Outcome::Hit {
        value: value.as_bytes(),
        flags: 0,
        cas_unique,
    }
}

/// A memcached that takes what it is asked and never answers.
pub(super) fn silent() -> (SimScripted, Edge) {
    let server = scripted([Script::new().hang()]);
    let edge = before_memcached(server.address(), "memcached.timeout = \"30s\"");
    (server, edge)
}

fn is_held(edge: &mut Edge) -> bool {
    edge.driver
        .front
        .polls
        .waiters
        .all_multi_polls_mut()
        .all(|poll| poll.is_held)
}

/// Nothing is left: not in the tables, and not in the figures that a scrape reads.
fn assert_all_gone(edge: &mut Edge) {
    edge.assert_nothing_left();
    edge.turn_until(|edge| edge.servers.http.connections() == 0);
    edge.turn();
    let metrics = &edge.driver.metrics;
    let figures = [
        metrics.connections_open.value(),
        metrics.waits_held.value(),
        metrics.polls_held.value(),
    ];
    assert_eq!(figures, [0; 3]);
}

#[test]
fn a_key_that_is_back_as_it_was_when_the_application_has_none_is_waited_for() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let since = cursor("one");
    let mut client = edge.ask(&format!("GET /poll/?k=a&k=b&since={since}.&wait=50s"));
    edge.turn_until(|edge| edge.front.polls.misses.sub_fetches() == 2);
    // One turn: the application says that there is none, and there is what the client has.
    while tell_first(&mut edge, &Ok(answer(404, ""))) {}
    edge.set("/poll/a", "one");
    edge.turn();
    assert!(is_held(&mut edge), "neither news nor a wait");
    edge.set("/poll/a", "two");
    assert!(edge.answer(&mut client).1.contains("\"v\":\"two\""));
    drop(client);
    assert_all_gone(&mut edge);
}

#[test]
fn a_client_that_leaves_after_its_news_were_taken_back_leaves_nothing() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let since = cursor("one");
    let client = edge.ask(&format!("GET /poll/?k=a&k=b&since={since}.&wait=50s"));
    edge.turn_until(|edge| edge.front.polls.misses.sub_fetches() == 2);
    while tell_first(&mut edge, &Ok(answer(404, ""))) {}
    edge.set("/poll/a", "one");
    edge.turn();
    drop(client);
    assert_all_gone(&mut edge);
}

#[test]
fn news_that_the_sweep_takes_back_in_the_same_turn_are_waited_for() {
    let (_server, mut edge) = silent();
    let mut client = edge.ask("GET /poll/?k=a&k=b&wait=50s");
    edge.turn_until(|edge| edge.front.polls.lookups.len() == 2);
    // One turn: both lookups are answered, and then the sweep says that the value is gone.
    complete(&mut edge, "/poll/a", false, hit("one", 1));
    complete(&mut edge, "/poll/b", false, Outcome::Miss);
    complete(&mut edge, "/poll/a", true, Outcome::Miss);
    edge.turn();
    assert!(is_held(&mut edge), "neither news nor a wait");
    complete(
        &mut edge,
        "/poll/a",
        true,
        Outcome::Version { cas_unique: 2 },
    );
    complete(&mut edge, "/poll/a", false, hit("two", 2));
    assert!(edge.answer(&mut client).1.contains("\"v\":\"two\""));
    drop(client);
    assert_all_gone(&mut edge);
}

#[test]
fn what_had_no_room_beside_news_that_are_gone_is_read_again() {
    let (_server, mut edge) = silent();
    let large = "x".repeat(300_000);
    let mut client = edge.ask("GET /poll/?k=a&k=b&wait=50s");
    edge.turn_until(|edge| edge.front.polls.lookups.len() == 2);
    complete(&mut edge, "/poll/a", false, hit(&large, 1));
    complete(&mut edge, "/poll/b", false, hit("small", 2));
    complete(&mut edge, "/poll/a", true, Outcome::Miss);
    edge.turn();
    complete(&mut edge, "/poll/b", false, hit("small", 2));
    assert!(edge.answer(&mut client).1.contains("\"v\":\"small\""));
    drop(client);
    assert_all_gone(&mut edge);
}

#[test]
fn a_key_that_goes_as_its_value_is_about_to_be_told_is_asked_for() {
    let (app, server) = (App::start(), scripted([Script::new().hang()]));
    let options = format!(
        "memcached.timeout = \"30s\"\nupstream.url = \"http://{}\"",
        app.address()
    );
    let mut edge = before_memcached(server.address(), &options);
    let mut client = edge.ask("GET /poll/?k=a&wait=50s");
    edge.turn_until(|edge| edge.front.polls.lookups.len() == 1);
    complete(&mut edge, "/poll/a", false, hit("one", 1));
    complete(&mut edge, "/poll/a", true, Outcome::Miss);
    let (mut exchange, line) = app.accept(&mut edge);
    assert_eq!(line, "GET /poll/a HTTP/1.1");
    exchange.answer(200, "", "fresh");
    assert!(edge.answer(&mut client).1.contains("\"v\":\"fresh\""));
    drop(client);
    assert_all_gone(&mut edge);
}

const KEYS: [&str; 2] = ["/poll/a", "/poll/b"];
const CLIENTS: usize = 3;
/// What fails is asked for again at once.
const ROUTE: &str = "[[route]]\nprefix = \"/poll/\"\nnegative = \"0s\"";

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client asks, and says that it has these values: 0 for none.
    Ask(usize, [u8; KEYS.len()]),
    Set(usize, u8),
    Delete(usize),
    /// The application answers what it was asked first: with a value, nothing, or not at all.
    Tell(u8),
    /// As that, to all it was asked.
    TellAll(u8),
    /// The end of a turn; what is between two of them comes at once.
    Turn,
    Leave(usize),
}

/// Draws a step in one go: a union would draw a generator for each of its arms.
fn step() -> impl Strategy<Value = Step> {
    let drawn = (0..34_u8, 0..KEYS.len(), 0..60_u8, 0..CLIENTS);
    drawn.prop_map(|(kind, key, number, place)| match kind {
        0..4 => Step::Ask(place, [number % 3, number / 3 % 3]),
        4..10 => Step::Set(key, 1 + number % 2),
        10..16 => Step::Delete(key),
        16..19 => Step::Tell(number % 5),
        19..25 => Step::TellAll(number % 4),
        25..33 => Step::Turn,
        _ => Step::Leave(place),
    })
}

fn value(number: u8) -> String {
    format!("value {number}")
}

fn verdict(number: u8) -> UpstreamResult {
    match number {
        0 => Ok(answer(404, "")),
        1 | 2 => Ok(answer(200, &value(number))),
        3 => Ok(answer(503, "")),
        _ => Err(UpstreamError::Closed),
    }
}

fn ask(edge: &Edge, has: [u8; KEYS.len()]) -> Client {
    let said = has.map(|number| match number {
        0 => String::new(),
        number => cursor(&value(number)),
    });
    let since = said.join(".");
    edge.ask(&format!("GET /poll/?k=a&k=b&since={since}&wait=50s"))
}

fn take(edge: &mut Edge, clients: &mut [Option<Client>; CLIENTS], step: Step) {
    match step {
        Step::Ask(place, has) => {
            if clients[place].is_none() {
                clients[place] = Some(ask(edge, has));
            }
        }
        Step::Set(key, number) => edge.set(KEYS[key], &value(number)),
        Step::Delete(key) => {
            let now = edge.event_loop.context().steady_seconds() as u32;
            edge.store().delete(KEYS[key].as_bytes(), now);
        }
        Step::Tell(number) => {
            tell_first(edge, &verdict(number));
        }
        Step::TellAll(number) => while tell_first(edge, &verdict(number)) {},
        Step::Turn => edge.turn(),
        Step::Leave(place) => clients[place] = None,
    }
}

fn play(steps: Vec<Step>) -> TestCaseResult {
    let app = App::start();
    let mut edge = Edge::before(&app, ROUTE);
    let mut clients = [None, None, None];
    for step in steps {
        take(&mut edge, &mut clients, step);
        if matches!(step, Step::Turn) {
            let mut polls = edge.driver.front.polls.waiters.all_multi_polls_mut();
            let waits = polls.all(|poll| poll.is_held || poll.asking > 0);
            prop_assert!(waits, "a poll waits for nothing");
        }
        for client in &mut clients {
            if client.as_mut().is_some_and(|it| it.take_answer().is_some()) {
                *client = None;
            }
        }
    }
    // The application answers all that it was asked, and every key has another value.
    for _ in 0..3 {
        edge.turn();
        while tell_first(&mut edge, &verdict(0)) {}
    }
    for key in KEYS {
        edge.set(key, "the last");
    }
    for client in clients.iter_mut().flatten() {
        let (status, _) = edge.answer(client);
        prop_assert_eq!(status, 200);
    }
    drop(clients);
    assert_all_gone(&mut edge);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn polls_of_several_keys_are_answered_in_every_order(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        play(steps)?;
    }
}
