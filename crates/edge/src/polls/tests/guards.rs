//! Nobody gets past what a route asks of its clients.

use super::harness::{App, Edge};
use super::sockets::Socket;
use crate::config;
use std::sync::Arc;

/// A route that anybody may ask, and one below it that asks the application.
const ABOVE: &str = r#"
    [[route]]
    prefix = "/poll/"
    [[route]]
    prefix = "/poll/private/"
    auth = "/auth"
"#;

#[test]
fn a_key_named_beside_the_path_is_one_of_the_same_route() {
    let app = App::start();
    let mut edge = Edge::before(&app, ABOVE);
    edge.set("/poll/private/a", "secret");
    let refusal = "a key is named that is another route's\n";
    for request in [
        "GET /poll/?k=private/a",
        "GET /poll/?k=b&k=private%2Fa",
        "GET /poll/private?k=/a",
        "POST /poll/pri?k=vate/a",
        "GET /poll/?k=private/a\nAccept: text/event-stream\r\n",
    ] {
        let mut client = edge.ask(request);
        let answer = edge.answer(&mut client);
        assert_eq!(answer, (400, refusal.to_owned()), "{request}");
    }
    let mut socket = Socket::open(&edge, "/poll/?k=b");
    socket.say(r#"{"subscribe":["private/a"]}"#);
    let error = r#"{"error":"a key is named that is another route's","k":"private/a"}"#;
    socket.await_last(&mut edge, error);
    assert_eq!(socket.frames.len(), 1);
}

/// The application says once that whoever asks may.
fn grant_once(app: &App, edge: &mut Edge) {
    let (mut exchange, line) = app.accept(edge);
    assert_eq!(line, "GET /auth HTTP/1.1");
    exchange.answer(204, "", "");
}

#[test]
fn a_socket_follows_no_key_that_the_application_was_not_asked_about() {
    let app = App::start();
    let mut edge = Edge::before(&app, "[[route]]\nprefix = \"/live/\"\nauth = \"/auth\"");
    edge.set("/live/alice", "secret");
    let mut socket = Socket::open(&edge, "/live/a");
    grant_once(&app, &mut edge);
    edge.turn_until_waiting(1);
    socket.say(r#"{"subscribe":["lice"]}"#);
    let error = r#"{"error":"keys of this route are named in the request","k":"lice"}"#;
    socket.await_last(&mut edge, error);
    assert_eq!(socket.frames.len(), 1);
}

#[test]
fn a_yes_for_one_path_is_none_for_another_that_begins_like_it() {
    let app = App::start();
    let mut edge = Edge::before(&app, "[[route]]\nprefix = \"/live/\"\nauth = \"/auth\"");
    edge.set("/live/alice", "secret");
    edge.set("/live/team/one", "news");
    let mut client = edge.ask("GET /live/a?k=lice");
    grant_once(&app, &mut edge);
    let refusal = "keys of this route are named behind a path that ends with a slash\n";
    assert_eq!(edge.answer(&mut client), (400, refusal.to_owned()));
    let mut client = edge.ask("GET /live/team/?k=one");
    grant_once(&app, &mut edge);
    assert_eq!(edge.answer(&mut client).0, 200);
}

#[test]
fn a_rate_of_keys_counts_sockets() {
    let mut edge = Edge::new("[[route]]\nprefix = \"/poll/\"\nrate_per_key = \"1/h\"");
    let mut client = edge.ask("GET /poll/a");
    assert_eq!(edge.answer(&mut client).0, 404);
    let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for target in ["/poll/a", "/poll/?k=b&k=a"] {
        let mut client = edge.ask(&format!("GET {target}\n{fields}"));
        assert_eq!(edge.answer(&mut client).0, 429, "{target}");
    }
    let mut socket = Socket::open(&edge, "/poll/?k=c");
    socket.say(r#"{"subscribe":["a"]}"#);
    socket.await_last(&mut edge, r#"{"error":"more than 1/1h","k":"a"}"#);
    socket.say(r#"{"subscribe":["d","d"]}"#);
    edge.turn_until_waiting(2);
    assert_eq!(socket.frames.len(), 1);
}

#[test]
fn a_rate_of_clients_counts_the_keys_that_sockets_take_up() {
    let mut edge = Edge::new("[[route]]\nprefix = \"/poll/\"\nrate_per_address = \"2/h\"");
    let mut socket = Socket::open(&edge, "/poll/?k=a");
    socket.say(r#"{"subscribe":["b","c"]}"#);
    socket.await_last(&mut edge, r#"{"error":"more than 2/1h","k":"c"}"#);
    edge.turn_until_waiting(2);
}

#[test]
fn a_route_that_goes_while_the_application_is_asked_lets_nobody_in() {
    let app = App::start();
    let mut edge = Edge::before(&app, ABOVE);
    edge.set("/poll/private/a", "secret");
    let mut client = edge.ask("GET /poll/private/a");
    let (mut exchange, _) = app.accept(&mut edge);
    let text = format!(
        "server.admin = \"off\"\nstore.listen = \"off\"\nupstream.url = \"http://{}\"\n\
         [[route]]\nprefix = \"/poll/\"",
        app.address()
    );
    let config = config::parse("test.toml", &text, &[]).unwrap();
    edge.driver.front.polls.reconfigure(&Arc::new(config));
    exchange.answer(204, "", "");
    let answer = edge.answer(&mut client);
    assert_eq!(answer, (503, "the route is gone\n".to_owned()));
    edge.assert_nothing_left();
}

#[test]
fn a_socket_whose_time_is_over_is_told_nothing_more() {
    let mut edge = Edge::new("limits.stream_lifetime = \"100ms\"");
    let mut socket = Socket::open(&edge, "/poll/a");
    edge.turn_until_waiting(1);
    let feeds = &edge.driver.front.polls.waiters.feeds;
    let feed = feeds.tokens().next().unwrap();
    let ends = feeds.end_of(feed.into()).unwrap();
    while !ends.is_due(edge.event_loop.context().tick()) {
        edge.turn();
    }
    edge.set("/poll/a", "secret");
    edge.turn_until(|edge| edge.front.polls.sockets() == 0);
    for _ in 0..4 {
        edge.turn();
        assert_eq!(socket.read(), 0);
    }
}
