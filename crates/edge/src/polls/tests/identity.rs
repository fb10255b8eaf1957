//! Requests that carry an identity: their answers go to no other client, at once or later.

use super::harness::{App, Edge};
use super::sockets::Socket;
use std::sync::Arc;

const OF_ONE: [&str; 3] = [
    "Cookie: session=alice\r\n",
    "X-Api-Key: alice\r\n",
    "Authorization: Basic YWxpY2U=\r\n",
];

fn route(options: &str) -> String {
    format!("[[route]]\nprefix = \"/poll/\"\nidentity_headers = [\"x-api-key\"]\n{options}")
}

/// Two requests while the first is in progress: how many of them reach the application?
fn sent(options: &str, first: &str, second: &str) -> usize {
    let app = App::start();
    let mut edge = Edge::before(&app, &route(options));
    let mut clients = [first, second].map(|request| {
        let client = edge.ask(request);
        edge.turn_until(|edge| edge.front.polls.misses.fetches() > 0);
        client
    });
    edge.turn_until(|edge| {
        edge.front.polls.waiters.polls().len() + edge.front.polls.waiters.multi_polls().len() == 2
    });
    let sent = edge.driver.front.polls.misses.fetches();
    for number in 0..sent {
        let (mut exchange, _) = app.accept(&mut edge);
        exchange.answer(200, "", &format!("answer {number}"));
    }
    for client in &mut clients {
        assert_eq!(edge.answer(client).0, 200);
    }
    edge.assert_nothing_left();
    sent
}

#[test]
fn a_request_that_says_who_asks_shares_nothing_with_others() {
    for field in OF_ONE {
        let named = format!("GET /poll/a\n{field}");
        let several = format!("GET /poll/?k=a\n{field}");
        let other = named.replace("alice", "bob");
        for (first, second) in [
            (&*named, &*other),
            (&*named, "GET /poll/a"),
            ("GET /poll/a", &*named),
            (&*several, "GET /poll/a"),
            ("GET /poll/a", &*several),
        ] {
            assert_eq!(sent("", first, second), 2, "{first} {second}");
        }
        let post = named.replace("GET", "POST");
        let both = sent("coalesce_post = true", &post, &post.replace("alice", "bob"));
        assert_eq!(both, 2, "{post}");
    }
    assert_eq!(sent("", "GET /poll/a", "GET /poll/a"), 1);
}

#[test]
fn a_key_made_of_who_asks_and_a_route_that_says_so_share() {
    let named = "GET /poll/a\nCookie: session=alice\r\n";
    let bob = "GET /poll/a\nCookie: session=bob\r\n";
    assert_eq!(sent("share_cookies = true", named, bob), 1);
    let key = "key = \"{path}:{cookie.session}\"";
    assert_eq!(sent(key, named, named), 1);
    assert_eq!(sent(key, named, bob), 2);
    let (alice, bob) = (
        "GET /poll/a\nX-Api-Key: alice\r\n",
        "GET /poll/a\nX-Api-Key: bob\r\n",
    );
    let key = "key = \"{path}:{header.x-api-key}\"";
    assert_eq!(sent(key, alice, alice), 1);
    assert_eq!(sent(key, alice, bob), 2);
}

#[test]
fn an_answer_to_one_client_is_not_given_later_when_the_application_fails() {
    for field in OF_ONE {
        let app = App::start();
        let mut edge = Edge::before(&app, &route("fill = true\nstale_while_revalidate = \"1h\""));
        let mut named = edge.ask(&format!("GET /poll/a\n{field}"));
        let (mut exchange, _) = app.accept(&mut edge);
        exchange.answer(200, "Cache-Control: max-age=60\r\n", "for alice");
        assert_eq!(edge.answer(&mut named), (200, "for alice".to_owned()));
        // No cache has it, and what fails after it fails.
        for who in [String::new(), field.replace("alice", "bob")] {
            let mut other = edge.ask(&format!("GET /poll/a\n{who}"));
            exchange.request(&mut edge);
            exchange.answer(500, "", "broken");
            assert_eq!(edge.answer(&mut other).0, 500, "{field} {who}");
        }
        edge.assert_nothing_left();
    }
}

#[test]
fn a_failure_of_one_clients_request_is_remembered_for_nobody() {
    let app = App::start();
    let mut edge = Edge::before(&app, &route("negative = \"1h\""));
    let mut named = edge.ask("GET /poll/a\nCookie: session=alice\r\n");
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.answer(500, "", "broken");
    assert_eq!(edge.answer(&mut named).0, 500);
    let mut other = edge.ask("GET /poll/a");
    exchange.request(&mut edge);
    exchange.answer(200, "", "fine");
    assert_eq!(edge.answer(&mut other), (200, "fine".to_owned()));
    edge.assert_nothing_left();
}

#[test]
fn a_handshake_with_a_cookie_has_a_request_of_its_own() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let mut poll = edge.ask("GET /poll/a\nCookie: session=alice\r\n");
    let (mut exchange, _) = app.accept(&mut edge);
    let mut socket = Socket::open(&edge, "/poll/a");
    let (mut of_socket, _) = app.accept(&mut edge);
    exchange.answer(200, "", "for alice");
    assert_eq!(edge.answer(&mut poll), (200, "for alice".to_owned()));
    of_socket.answer(200, "", "for all");
    let cursor = super::cursor("for all");
    socket.await_last(&mut edge, &format!(r#"{{"v":"for all","c":"{cursor}"}}"#));
    assert_eq!(socket.frames.len(), 1);
    drop(socket);
    edge.assert_nothing_left();
}

#[test]
fn a_reload_changes_what_says_who_asks() {
    let app = App::start();
    let mut edge = Edge::before(&app, &route("share_cookies = true"));
    let mut config = (*edge.driver.front.polls.config).clone();
    Arc::make_mut(&mut config.routes[0]).share_cookies = false;
    edge.driver.front.polls.reconfigure(&config.into());
    let mut clients =
        ["alice", "bob"].map(|who| edge.ask(&format!("GET /poll/a\nCookie: session={who}\r\n")));
    edge.turn_until(|edge| edge.front.polls.misses.fetches() == 2);
    for _ in &clients {
        let (mut exchange, _) = app.accept(&mut edge);
        exchange.answer(200, "", "own");
    }
    for client in &mut clients {
        assert_eq!(edge.answer(client).0, 200);
    }
    edge.assert_nothing_left();
}
