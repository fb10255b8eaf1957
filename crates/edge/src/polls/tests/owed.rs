//! What is owed an answer that never comes, as it should not happen: its time ends, and the looks
//! at everything that waits find it before.

use super::feeds::Events;
use super::harness::{App, Client, Edge, cursor, scripted};
use super::{before_memcached, wait_for};
use crate::event_loop::{EdgeLoop, kind};
use dwell_evloop::{Driver, Token};
use dwell_testkit::Script;

/// The deadline of a connection passes.
fn expire(edge: &mut Edge, connection: Token) {
    let (context, driver) = (edge.event_loop.context(), &mut edge.driver);
    driver.expired(context, connection);
}

fn recheck(edge: &mut Edge) {
    let (context, driver) = (edge.event_loop.context(), &mut edge.driver);
    driver
        .front
        .polls
        .recheck_owed(context, &mut driver.servers.http);
}

/// The connection of the first client, where its request is held.
fn held(edge: &EdgeLoop) -> Option<Token> {
    let of = |generation| Token::new(kind::CLIENT, generation, 0);
    (0..8)
        .map(of)
        .find(|token| edge.servers.http.exchange_on(*token).is_some())
}

/// Whatever is asked for is lost.
fn lose_everything(edge: &mut Edge) {
    let polls = &mut edge.driver.front.polls;
    polls.misses.lose_all(&mut polls.waiters.keys);
    polls.lookups.lose_all(&mut polls.waiters.keys);
    let keys: Vec<_> = ["/poll/a", "/poll/b"]
        .iter()
        .filter_map(|name| polls.waiters.keys.find(name.as_bytes()))
        .collect();
    for key in keys {
        polls.waiters.keys.release(key);
    }
}

#[test]
fn every_kind_that_waits_for_the_application_has_a_deadline() {
    for request in [
        "GET /poll/a",
        "GET /poll/a?wait=50s",
        "POST /poll/a",
        "GET /poll/?k=a&k=b",
        "GET /poll/?k=a&k=b&wait=50s",
    ] {
        let app = App::start();
        let mut edge = Edge::before(&app, "");
        let mut client = edge.ask(request);
        edge.turn_until(|edge| edge.front.polls.misses.fetches() > 0);
        let connection = held(&edge.driver).unwrap();
        assert!(edge.event_loop.context().is_armed(connection), "{request}");
        lose_everything(&mut edge);
        expire(&mut edge, connection);
        let answer = (504, "no answer in time\n".to_owned());
        assert_eq!(edge.answer(&mut client), answer, "{request}");
        edge.assert_nothing_left();
    }
}

#[test]
fn every_kind_that_waits_for_memcached_has_a_deadline() {
    for request in ["GET /poll/a", "GET /poll/?k=a&k=b&wait=50s", "PUT /poll/a"] {
        let server = scripted([Script::new().hang()]);
        let options = "memcached.timeout = \"30s\"\npublish.token = \"0123456789abcdef0123\"\n\
            [[route]]\nprefix = \"/poll/\"\npublish = true";
        let mut edge = before_memcached(server.address(), options);
        let token = "Authorization: Bearer 0123456789abcdef0123\r\nContent-Length: 0\r\n";
        let fields = if request.starts_with("PUT") {
            token
        } else {
            ""
        };
        let mut client = edge.ask(&format!("{request}\n{fields}"));
        edge.turn_until(|edge| held(edge).is_some());
        let connection = held(&edge.driver).unwrap();
        assert!(edge.event_loop.context().is_armed(connection), "{request}");
        expire(&mut edge, connection);
        let status = if request.starts_with("PUT") { 502 } else { 504 };
        assert_eq!(edge.answer(&mut client).0, status, "{request}");
    }
}

#[test]
fn a_request_whose_key_has_no_room_is_refused() {
    let since = format!("?since={}&wait=50s", cursor("one"));
    for request in [
        format!("GET /poll/a{since}"),
        "GET /poll/a\nAccept: text/event-stream\r\n".to_owned(),
    ] {
        let mut edge = Edge::new("");
        edge.set("/poll/a", "one");
        edge.driver.front.polls.waiters.keys.leave_no_room();
        let mut client = edge.ask(&request);
        let answer = (503, "too many requests are in progress\n".to_owned());
        assert_eq!(edge.answer(&mut client), answer, "{request}");
        edge.assert_nothing_left();
    }
}

#[test]
fn what_lost_its_place_is_found() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let mut one = edge.ask("GET /poll/a");
    edge.turn_until(|edge| edge.front.polls.misses.fetches() == 1);
    lose_everything(&mut edge);
    recheck(&mut edge);
    assert_eq!(edge.answer(&mut one).0, 504);
    edge.assert_nothing_left();
    let mut held = hold_multi_poll(&mut edge);
    for poll in edge.driver.front.polls.waiters.all_multi_polls_mut() {
        poll.is_held = false;
    }
    recheck(&mut edge);
    edge.set("/poll/a", "two");
    assert!(edge.answer(&mut held).1.contains("\"v\":\"two\""));
    let waiting = wait_for(&edge, "/poll/a", "two");
    edge.turn_until_waiting(1);
    recheck(&mut edge);
    assert_eq!(
        edge.driver.front.polls.waiting(),
        1,
        "it is where it belongs"
    );
    drop((waiting, held, one));
    edge.assert_nothing_left();
}

#[test]
fn a_stream_ends_whose_key_has_lost_its_record() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    let mut stream = Events::follow(&edge, "/poll/a", "");
    edge.turn_until(|_| stream.data() == ["one"]);
    recheck(&mut edge);
    assert_eq!(
        edge.driver.front.polls.streams(),
        1,
        "it is told of changes"
    );
    let waiters = &mut edge.driver.front.polls.waiters;
    let key = waiters.keys.find(b"/poll/a").unwrap();
    waiters.take_members(key).unwrap();
    waiters.end_watch(key);
    recheck(&mut edge);
    edge.turn_until(|_| stream.ends_with("\r\n0\r\n\r\n"));
    edge.assert_nothing_left();
}

fn hold_multi_poll(edge: &mut Edge) -> Client {
    edge.set("/poll/a", "one");
    edge.set("/poll/b", "two");
    let since = format!("{}.{}", cursor("one"), cursor("two"));
    let client = edge.ask(&format!("GET /poll/?k=a&k=b&since={since}&wait=50s"));
    edge.turn_until_waiting(2);
    client
}
