//! Keys without a value, of streams, WebSockets and polls of several keys.

use super::before_memcached;
use super::feeds::Events;
use super::harness::{App, Client, Edge, cursor, memcached};
use super::recall::note;
use super::sockets::Socket;
use crate::metrics::{PollOutcome, WakeOutcome};

fn frame(key: &str, value: &str) -> String {
    let cursor = cursor(value);
    format!(r#"{{"k":"{key}","v":"{value}","c":"{cursor}"}}"#)
}

fn unnamed(value: &str) -> String {
    format!(r#"{{"v":"{value}","c":"{}"}}"#, cursor(value))
}

fn entry(key: &str, value: &str) -> String {
    format!(r#""{key}":{{"v":"{value}","c":"{}"}}"#, cursor(value))
}

#[test]
fn a_socket_shares_the_request_of_a_poll_and_waits_for_the_cache() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let mut poll = edge.ask("GET /poll/a?since=x&wait=5");
    let (mut exchange, _) = app.accept(&mut edge);
    let mut socket = Socket::open(&edge, "/poll/a");
    edge.turn_until_waiting(1);
    exchange.answer(200, "", "fresh");
    assert_eq!(edge.answer(&mut poll), (200, "fresh".to_owned()));
    socket.await_last(&mut edge, &unnamed("fresh"));
    edge.set("/poll/a", "fresh");
    edge.set("/poll/a", "stored");
    socket.await_last(&mut edge, &unnamed("stored"));
    assert_eq!(socket.frames.len(), 2);
    edge.delete("/poll/a");
    socket.await_last(&mut edge, r#"{"c":null}"#);
    drop(socket);
    edge.assert_nothing_left();
}

#[test]
fn each_key_is_asked_for_as_a_poll_of_it_would() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    edge.set("/poll/b", "two");
    let mut socket = Socket::open(&edge, "/poll/?k=a&k=b&room=1&since=.");
    let (mut exchange, line) = app.accept(&mut edge);
    assert_eq!(line, "GET /poll/a?room=1 HTTP/1.1");
    socket.await_last(&mut edge, &frame("b", "two"));
    exchange.answer(200, "", "one");
    socket.await_last(&mut edge, &frame("a", "one"));
    socket.say(r#"{"subscribe":["c","d"],"since":{"d":"AAAAAAAAAAA"}}"#);
    assert_eq!(exchange.request(&mut edge), "GET /poll/c HTTP/1.1");
    let (mut other, line) = app.accept(&mut edge);
    assert_eq!(line, "GET /poll/d HTTP/1.1");
    exchange.answer(200, "", "three");
    socket.await_last(&mut edge, &frame("c", "three"));
    other.answer(404, "", "");
    socket.await_last(&mut edge, r#"{"k":"d","c":null}"#);
    assert_eq!(socket.frames.len(), 4);
    drop(socket);
    edge.assert_nothing_left();
}

#[test]
fn memcached_is_looked_at_first() {
    let (app, memcached) = (App::start(), memcached());
    let upstream = format!("upstream.url = \"http://{}\"", app.address());
    let mut edge = before_memcached(memcached.address(), &upstream);
    memcached.set("/poll/b", "two");
    let mut socket = Socket::open(&edge, "/poll/?k=a&k=b");
    let mut stream = Events::follow(&edge, "/poll/?k=a&k=b", "");
    let mut poll = edge.ask("GET /poll/?k=a&k=b");
    let (mut exchange, line) = app.accept(&mut edge);
    assert_eq!(line, "GET /poll/a HTTP/1.1");
    socket.await_last(&mut edge, &frame("b", "two"));
    edge.turn_until(|edge| edge.front.polls.misses.sub_fetches() == 3);
    exchange.answer(200, "", "one");
    socket.await_last(&mut edge, &frame("a", "one"));
    edge.turn_until(|_| stream.text().contains("data: one\n"));
    let answer = edge.answer(&mut poll).1;
    assert!(answer.contains(&entry("a", "one")) && answer.contains(&entry("b", "two")));
    memcached.set("/poll/a", "stored");
    socket.await_last(&mut edge, &frame("a", "stored"));
    edge.turn_until(|_| stream.text().contains("data: stored\n"));
    drop((socket, stream));
    edge.assert_nothing_left();
}

#[test]
fn a_refusal_is_remembered_and_a_failure_says_nothing() {
    let app = App::start();
    let route = "[[route]]\nprefix = \"/poll/\"\nnegative_not_found = \"1h\"\nnegative = \"1h\"";
    let mut edge = Edge::before(&app, route);
    let since = cursor("before");
    let mut first = Socket::open(&edge, &format!("/poll/a?since={since}"));
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.answer(404, "", "");
    first.await_last(&mut edge, r#"{"c":null}"#);
    let mut second = Socket::open(&edge, &format!("/poll/a?since={since}"));
    second.await_last(&mut edge, r#"{"c":null}"#);
    let mut third = Socket::open(&edge, &format!("/poll/?k=b&since={since}"));
    assert_eq!(exchange.request(&mut edge), format!("GET /poll/b HTTP/1.1"));
    exchange.answer(500, "", "");
    edge.turn_until(|edge| edge.front.polls.misses.sub_fetches() == 0);
    edge.set("/poll/b", "back");
    third.await_last(&mut edge, &frame("b", "back"));
    assert_eq!(third.frames.len(), 1);
    drop((first, second, third));
    edge.assert_nothing_left();
}

#[test]
fn what_is_for_one_client_is_told_to_no_other() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let mut first = Socket::open(&edge, "/poll/a");
    let (mut exchange, _) = app.accept(&mut edge);
    let mut second = Socket::open(&edge, "/poll/a");
    edge.turn_until(|edge| edge.front.polls.misses.sub_fetches() == 2);
    exchange.answer(200, "Set-Cookie: session=1\r\n", "for 1");
    first.await_last(&mut edge, &unnamed("for 1"));
    assert_eq!(exchange.request(&mut edge), "GET /poll/a HTTP/1.1");
    exchange.answer(200, "Set-Cookie: session=2\r\n", "for 2");
    second.await_last(&mut edge, &unnamed("for 2"));
    assert_eq!((first.read(), second.read()), (1, 1));
    drop((first, second));
    edge.assert_nothing_left();
}

#[test]
fn a_poll_of_several_keys_waits_for_the_application_and_then_for_the_cache() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    edge.set("/poll/b", "two");
    let (one, two) = (cursor("one"), cursor("two"));
    let mut client = edge.ask("GET /poll/?k=a&k=b");
    let (mut exchange, line) = app.accept(&mut edge);
    assert_eq!(line, "GET /poll/a HTTP/1.1");
    exchange.answer(200, "", "one");
    let both = format!("{},{}", entry("a", "one"), entry("b", "two"));
    let body = format!("{{\"cursor\":\"{one}.{two}\",\"values\":{{{both}}}}}\n");
    assert_eq!(edge.answer(&mut client), (200, body));
    // It has what the application says, so it is held; that the cache has none is no news.
    client.send(&format!("GET /poll/?k=a&k=b&since={one}.{two}&wait=50s"));
    assert_eq!(exchange.request(&mut edge), "GET /poll/a HTTP/1.1");
    exchange.answer(200, "", "one");
    edge.turn_until(|edge| {
        edge.front
            .polls
            .waiters
            .all_multi_polls_mut()
            .any(|poll| poll.is_held)
    });
    edge.set("/poll/b", "new");
    let answer = edge.answer(&mut client).1;
    assert!(
        answer.contains("\"values\":{\"b\":") && !answer.contains("\"a\""),
        "{answer}"
    );
    // What is new is told at once, whoever else has to be asked.
    client.send(&format!("GET /poll/?k=a&k=b&since=.{two}&wait=50s"));
    assert!(edge.answer(&mut client).1.contains(&entry("b", "new")));
    edge.assert_nothing_left();
}

#[test]
fn a_head_of_several_keys_asks_for_what_a_get_would_bring() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let head = edge.ask("HEAD /poll/?k=a");
    let (mut exchange, line) = app.accept(&mut edge);
    assert_eq!(line, "GET /poll/a HTTP/1.1");
    // Its answer is that of all who share the request, and may be remembered.
    let mut poll = edge.ask("GET /poll/?k=a");
    edge.turn_until(|edge| edge.front.polls.misses.sub_fetches() == 2);
    exchange.answer(200, "", "one");
    assert!(edge.answer(&mut poll).1.contains(&entry("a", "one")));
    drop((head, poll));
    edge.assert_nothing_left();
}

#[test]
fn a_poll_of_several_keys_outlives_an_application_that_fails() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let mut client = edge.ask("GET /poll/?k=a");
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.answer(500, "", "");
    assert_eq!(edge.answer(&mut client).0, 503);
    let since = cursor("one");
    client.send(&format!("GET /poll/?k=a&since={since}&wait=50s"));
    edge.turn_until(|edge| {
        edge.front
            .polls
            .waiters
            .all_multi_polls_mut()
            .any(|poll| poll.is_held)
    });
    edge.set("/poll/a", "back");
    assert!(edge.answer(&mut client).1.contains(&entry("a", "back")));
    edge.assert_nothing_left();
}

#[test]
fn whoever_leaves_while_the_application_is_asked_leaves_nothing() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let socket = Socket::open(&edge, "/poll/?k=a&k=b");
    let stream = Events::follow(&edge, "/poll/?k=a&k=b", "");
    let poll = edge.ask("GET /poll/?k=a&k=b");
    let (mut of_a, _) = app.accept(&mut edge);
    let (mut of_b, _) = app.accept(&mut edge);
    edge.turn_until(|edge| edge.front.polls.misses.sub_fetches() == 6);
    drop((socket, stream));
    poll.reset();
    edge.turn_until(|edge| edge.front.polls.is_idle());
    of_a.answer(200, "", "one");
    of_b.answer(200, "", "two");
    edge.assert_nothing_left();
}

/// Has a poll take the room for all requests to the application, which does not answer.
fn take_all_room(edge: &mut Edge) -> Client {
    let poll = edge.ask("GET /poll/?k=1&k=2&k=3&k=4&k=5&k=6&wait=60");
    edge.turn_until(|edge| edge.front.polls.misses.fetches() == 6);
    poll
}

#[test]
fn the_watch_of_a_key_ends_though_the_application_cannot_be_asked_for_it() {
    let app = App::start();
    let mut edge = Edge::before(&app, "limits.connections_max = 6");
    edge.driver.front.polls.tell_presence();
    let all = take_all_room(&mut edge);
    for _ in 0..2 {
        edge.set("/poll/k", "value");
        let since = cursor("value");
        let mut poll = edge.ask(&format!("GET /poll/k?since={since}&wait=60"));
        edge.turn_until(|edge| edge.front.polls.watched_keys() == 7);
        edge.driver.front.polls.take_presence();
        edge.delete("/poll/k");
        assert_eq!(edge.answer(&mut poll).0, 503);
        let ended = edge.driver.front.polls.take_presence();
        assert!(ended.len() == 1 && !ended[0].begins, "{ended:?}");
    }
    edge.set("/poll/k", "unseen");
    edge.turn();
    let unwatched = edge.driver.metrics.wakeups.of(WakeOutcome::Unwatched);
    assert_eq!(unwatched.value(), 0);
    drop(all);
}

#[test]
fn a_poll_waits_for_a_key_that_another_cannot_have_asked_for() {
    let (app, memcached) = (App::start(), memcached());
    let options = format!(
        "upstream.url = \"http://{}\"\nlimits.connections_max = 6",
        app.address()
    );
    let mut edge = before_memcached(memcached.address(), &options);
    memcached.set("/poll/j", "there");
    let all = take_all_room(&mut edge);
    let since = cursor("there");
    // Both share the lookup of k.
    let mut one = edge.ask("GET /poll/k");
    let mut several = edge.ask(&format!("GET /poll/?k=k&k=j&wait=60&since=.{since}"));
    assert_eq!(edge.answer(&mut one).0, 503);
    edge.turn_until(|edge| edge.front.polls.watched_keys() == 8);
    memcached.set("/poll/k", "news");
    let (status, body) = edge.answer(&mut several);
    assert!(
        status == 200 && body.contains(&entry("k", "news")),
        "{body}"
    );
    drop(all);
}

#[test]
fn a_stream_that_the_application_begins_is_told_of_what_others_were_told_before_it() {
    let (app, memcached) = (App::start(), memcached());
    let options = format!("upstream.url = \"http://{}\"", app.address());
    let mut edge = before_memcached(memcached.address(), &options);
    let mut stream = Events::follow(&edge, "/poll/a", "");
    let (mut exchange, _) = app.accept(&mut edge);
    memcached.set("/poll/a", "stored");
    // From here on the loop knows the version of the value.
    let socket = Socket::open(&edge, "/poll/a");
    edge.turn_until_waiting(1);
    exchange.answer(200, "", "fresh");
    edge.turn_until(|_| stream.data() == ["fresh", "stored"]);
    drop((stream, socket));
    edge.assert_nothing_left();
}

#[test]
fn a_poll_that_is_held_on_by_a_stale_value_is_told_of_what_others_were_told_before_it() {
    let (app, memcached) = (App::start(), memcached());
    let options = format!(
        "upstream.url = \"http://{}\"\n[[route]]\nprefix = \"/poll/\"\nfill = true\n\
         stale_if_error = \"60s\"",
        app.address()
    );
    let mut edge = before_memcached(memcached.address(), &options);
    memcached.set("/poll/a", "value");
    let mut hit = edge.ask("GET /poll/a");
    assert_eq!(edge.answer(&mut hit), (200, "value".to_owned()));
    memcached.delete("/poll/a");
    let since = cursor("value");
    let mut poll = edge.ask(&format!("GET /poll/a?since={since}&wait=50s"));
    let (mut exchange, _) = app.accept(&mut edge);
    memcached.set("/poll/a", "two");
    let socket = Socket::open(&edge, "/poll/a");
    edge.turn_until_waiting(1);
    // Another loop had read it before, and says so now.
    let now = edge.now();
    note(&edge, now);
    exchange.answer(500, "", "");
    assert_eq!(edge.answer(&mut poll), (200, "two".to_owned()));
    assert_eq!(edge.driver.metrics.polls.of(PollOutcome::Woken).value(), 1);
    drop(socket);
    edge.assert_nothing_left();
}
