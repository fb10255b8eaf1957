//! What is held goes by its route over reloads.

use super::harness::{App, Client, Edge, cursor};
use super::sockets::Socket;
use crate::config::{self, EmptyAnswer, RouteConfig, RouteId};
use std::sync::Arc;

/// Reads another configuration, which has these routes.
fn reload(edge: &mut Edge, routes: Vec<RouteConfig>) {
    let mut config = (*edge.driver.front.polls.config).clone();
    config.routes = routes.into_iter().map(Arc::new).collect();
    edge.driver.front.reconfigure(&config.into());
}

/// A route that answers an empty value with 204.
fn silent(prefix: &str) -> RouteConfig {
    RouteConfig {
        empty: EmptyAnswer::NoContent,
        ..RouteConfig::new(prefix)
    }
}

fn wait_for(edge: &Edge, key: &str) -> Client {
    edge.ask(&format!("GET {key}?since={}&wait=50s", cursor("one")))
}

#[test]
fn a_poll_goes_by_its_route_as_it_is_now_or_was_last() {
    let mut edge = Edge::new("[[route]]\nprefix = \"/a/\"\n[[route]]\nprefix = \"/b/\"");
    edge.set("/a/x", "one");
    edge.set("/b/x", "one");
    let mut clients = ["/a/x", "/b/x"].map(|key| wait_for(&edge, key));
    edge.turn_until_waiting(2);
    reload(&mut edge, vec![silent("/b/"), silent("/a/")]);
    reload(
        &mut edge,
        vec![RouteConfig::new("/c/"), RouteConfig::new("/b/")],
    );
    reload(&mut edge, vec![RouteConfig::new("/b/")]);
    edge.set("/a/x", "");
    edge.set("/b/x", "");
    let statuses = clients.each_mut().map(|client| edge.answer(client).0);
    assert_eq!(statuses, [204, 200]);
    edge.assert_nothing_left();
}

#[test]
fn a_route_that_has_gone_is_kept_for_everything_that_is_held_under_it() {
    let both = format!("{0}.{0}", cursor("one"));
    let events = "Accept: text/event-stream\r\n";
    for request in [
        format!("GET /gone/a?since={}&wait=50s", cursor("one")),
        format!("GET /gone/?k=a&k=b&since={both}&wait=50s"),
        format!("GET /gone/a\n{events}"),
        format!("GET /gone/?k=a&k=b\n{events}"),
        format!("GET /gone/a\n{}", Socket::FIELDS),
        format!("GET /gone/?k=a\n{}", Socket::FIELDS),
    ] {
        let mut edge = Edge::new("[[route]]\nprefix = \"/gone/\"");
        for key in ["/gone/", "/gone/a", "/gone/b"] {
            edge.set(key, "one");
        }
        let client = edge.ask(&request);
        edge.turn_until(|edge| edge.front.polls.waiting() > 0);
        for round in 0..3 {
            reload(&mut edge, vec![RouteConfig::new(&format!("/{round}/"))]);
            let polls = &edge.driver.front.polls;
            assert_eq!(
                polls.routes.get(RouteId::FIRST).prefix,
                "/gone/",
                "{request}"
            );
            assert_eq!(polls.routes.by_id().len(), 2, "{request}");
        }
        client.reset();
        edge.assert_nothing_left();
        reload(&mut edge, vec![RouteConfig::new("/last/")]);
        assert_eq!(edge.driver.front.polls.routes.by_id().len(), 1, "{request}");
    }
}

#[test]
fn an_application_that_decides_on_access_is_asked_again_after_a_reload() {
    let route = |key: &str| {
        format!(
            "[[route]]\nprefix = \"/poll/\"\nauth = \"/auth\"\nauth_time = \"1h\"\n\
             key = \"{key}\""
        )
    };
    let app = App::start();
    let mut edge = Edge::before(&app, &route("{path}"));
    edge.set("/poll/a", "of all");
    edge.set("/poll/a:alice", "of alice");
    let mut client = edge.ask("GET /poll/a");
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.answer(200, "X-User: alice\r\n", "");
    assert_eq!(edge.answer(&mut client), (200, "of all".to_owned()));
    // The decision that is cached names no user.
    let text = format!(
        "upstream.url = \"http://{}\"\n{}",
        app.address(),
        route("{path}:{auth.x-user}")
    );
    let other = config::parse("test.toml", &text, &[]).unwrap();
    let mut config = (*edge.driver.front.polls.config).clone();
    config.routes = other.routes;
    edge.driver.front.reconfigure(&config.into());
    let mut client = edge.ask("GET /poll/a");
    exchange.request(&mut edge);
    exchange.answer(200, "X-User: alice\r\n", "");
    assert_eq!(edge.answer(&mut client), (200, "of alice".to_owned()));
    edge.assert_nothing_left();
}
