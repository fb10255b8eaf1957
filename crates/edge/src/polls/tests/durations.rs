//! Response times: each response counts once, unless its poll was held for a change.

use super::harness::{App, Client, Edge, Exchange, cursor};
use super::wait_for;
use crate::metrics::{LoopMetrics, PollOutcome, StatusClass};
use dwell_metrics::HistogramSum;
use std::time::Duration;

const LONG: Duration = Duration::from_millis(200);

/// Lets time pass.
fn wait(edge: &mut Edge) {
    let end = edge.elapsed() + LONG;
    while edge.elapsed() < end {
        edge.turn();
    }
}

/// Asserts the number of response times, of all requests and of those of the route, and that `long`
/// of the latter are at least [`LONG`].
#[track_caller]
fn assert_counted(edge: &Edge, all: u64, of_route: u64, long: u64) {
    let metrics = &edge.driver.metrics;
    let (histogram, route) = (&metrics.http_request_duration, &metrics.routes[0].duration);
    let mut sum = HistogramSum::default();
    route.add_to(&mut sum);
    let is_short = |(bound, _): &&(f64, u64)| *bound < LONG.as_secs_f64();
    let buckets = sum.buckets();
    let short: u64 = (buckets.iter().filter(is_short).map(|(_, count)| *count)).sum();
    let counted = (histogram.count(), route.count(), route.count() - short);
    assert_eq!(counted, (all, of_route, long));
}

fn responses(edge: &Edge) -> u64 {
    let responses = &edge.driver.metrics.routes[0].responses;
    let of = |class: &StatusClass| responses.of(*class).value();
    StatusClass::ALL.iter().map(of).sum()
}

#[test]
fn a_poll_that_was_held_does_not_count_whatever_its_response() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    edge.set("/poll/a", "one");
    let mut client = edge.ask("GET /poll/a");
    assert_eq!(edge.answer(&mut client), (200, "one".to_owned()));
    assert_counted(&edge, 1, 1, 0);
    let mut woken = wait_for(&edge, "/poll/a", "one");
    let mut ended = edge.ask(&format!("GET /poll/b?since={}&wait=1s", cursor("x")));
    let (mut exchange, _) = app.accept(&mut edge);
    exchange.answer(200, "", "x");
    assert_eq!(edge.answer(&mut ended).0, 200);
    edge.turn_until_waiting(1);
    edge.set("/poll/a", "two");
    assert_eq!(edge.answer(&mut woken), (200, "two".to_owned()));
    assert_counted(&edge, 2, 2, 0);
    let mut missing = wait_for(&edge, "/poll/a", "two");
    edge.turn_until_waiting(1);
    edge.delete("/poll/a");
    assert_eq!(exchange.request(&mut edge), "GET /poll/a HTTP/1.1");
    wait(&mut edge);
    exchange.answer(200, "", "three");
    assert_eq!(edge.answer(&mut missing), (200, "three".to_owned()));
    assert_counted(&edge, 2, 2, 0);
    assert_eq!(responses(&edge), 4);
    edge.assert_nothing_left();
}

#[test]
fn the_time_of_an_access_subrequest_is_part_of_that_of_its_poll() {
    let app = App::start();
    let mut edge = Edge::before(&app, "[[route]]\nprefix = \"/poll/\"\nauth = \"/auth\"");
    let mut client = edge.ask("GET /poll/a");
    let (mut exchange, _) = app.accept(&mut edge);
    wait(&mut edge);
    exchange.answer(200, "", "");
    assert_eq!(exchange.request(&mut edge), "GET /poll/a HTTP/1.1");
    exchange.answer(200, "", "one");
    assert_eq!(edge.answer(&mut client), (200, "one".to_owned()));
    assert_counted(&edge, 1, 1, 1);
    edge.set("/poll/b", "two");
    let mut client = edge.ask("GET /poll/b\nCookie: other=1\r\n");
    assert_eq!(exchange.request(&mut edge), "GET /auth HTTP/1.1");
    wait(&mut edge);
    exchange.answer(200, "", "");
    assert_eq!(edge.answer(&mut client), (200, "two".to_owned()));
    assert_counted(&edge, 2, 2, 2);
    edge.assert_nothing_left();
}

/// Asks for a key whose value has gone from the cache, once the application has given it.
fn ask_for_stale(edge: &mut Edge, app: &App) -> (Client, Exchange) {
    let mut client = edge.ask("GET /poll/a");
    let (mut exchange, _) = app.accept(edge);
    exchange.answer(200, "Cache-Control: public, max-age=1\r\n", "one");
    assert_eq!(edge.answer(&mut client), (200, "one".to_owned()));
    edge.turn_until(|edge| edge.metrics.fills.value() == 1);
    edge.delete("/poll/a");
    client.send("GET /poll/a");
    (client, exchange)
}

#[test]
fn stale_values_count_as_other_responses_do() {
    for (option, long) in [("stale_if_error", 1), ("stale_while_revalidate", 0)] {
        let app = App::start();
        let route = format!("[[route]]\nprefix = \"/poll/\"\nfill = true\n{option} = \"60s\"");
        let mut edge = Edge::before(&app, &route);
        let (mut client, mut exchange) = ask_for_stale(&mut edge, &app);
        if long > 0 {
            assert_eq!(exchange.request(&mut edge), "GET /poll/a HTTP/1.1");
            wait(&mut edge);
            exchange.answer(503, "", "");
        }
        assert_eq!(edge.answer(&mut client), (200, "one".to_owned()));
        assert_counted(&edge, 2, 2, long);
        assert_eq!(edge.driver.metrics.polls.of(PollOutcome::Stale).value(), 1);
        edge.assert_nothing_left();
    }
}

#[test]
fn a_large_response_counts_for_its_route() {
    let app = App::start();
    let mut edge = Edge::before(&app, "upstream.answer_bytes_max = \"1KiB\"");
    let mut client = edge.ask("GET /poll/a");
    let (mut exchange, _) = app.accept(&mut edge);
    wait(&mut edge);
    let large = "x".repeat(10_000);
    exchange.answer(200, "", &large);
    assert_eq!(edge.answer(&mut client), (200, large.clone()));
    assert_counted(&edge, 1, 1, 1);
    assert_eq!(responses(&edge), 1);
    edge.set("/poll/b", "two");
    let mut held = wait_for(&edge, "/poll/b", "two");
    edge.turn_until_waiting(1);
    edge.delete("/poll/b");
    assert_eq!(exchange.request(&mut edge), "GET /poll/b HTTP/1.1");
    exchange.answer(200, "", &large);
    assert_eq!(edge.answer(&mut held), (200, large));
    assert_counted(&edge, 1, 1, 1);
    assert_eq!(responses(&edge), 2);
    let misses = |of: &LoopMetrics| {
        let polls = [&of.polls, &of.routes[0].polls];
        polls.map(|polls| polls.of(PollOutcome::Miss).value())
    };
    assert_eq!(misses(&edge.driver.metrics), [2, 2]);
    edge.assert_nothing_left();
}

#[test]
fn failures_and_refusals_count_once() {
    let app = App::start();
    let mut edge = Edge::before(&app, "");
    let mut page = edge.ask("GET /page");
    drop(app.accept(&mut edge));
    assert_eq!(edge.answer(&mut page).0, 502);
    assert_counted(&edge, 1, 0, 0);
    let mut poll = edge.ask("DELETE /poll/a");
    assert_eq!(edge.answer(&mut poll).0, 405);
    assert_counted(&edge, 2, 1, 0);
    let mut several = edge.ask("GET /poll/?k=a&k=b");
    for _ in 0..2 {
        let (mut exchange, _) = app.accept(&mut edge);
        exchange.answer(404, "", "");
    }
    assert_eq!(edge.answer(&mut several).0, 200);
    assert_counted(&edge, 3, 2, 0);
    edge.assert_nothing_left();
}
