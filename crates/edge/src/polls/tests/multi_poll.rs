//! Polls of several keys.

use super::before_memcached;
use super::harness::{Client, Edge, cursor, memcached};

fn joined(values: &[&str]) -> String {
    let one = |value: &&str| match *value {
        "" => String::new(),
        value => cursor(value),
    };
    values.iter().map(one).collect::<Vec<_>>().join(".")
}

fn body(cursor: &str, values: &str) -> String {
    format!("{{\"cursor\":\"{cursor}\",\"values\":{{{values}}}}}\n")
}

fn entry(key: &str, value: &str) -> String {
    let cursor = cursor(value);
    format!("\"{key}\":{{\"v\":\"{value}\",\"c\":\"{cursor}\"}}")
}

/// A poll of the keys a and b that has these values.
fn wait_for(edge: &Edge, has: &[&str]) -> Client {
    let since = joined(has);
    edge.ask(&format!("GET /poll/?k=a&k=b&since={since}&wait=50s"))
}

#[test]
fn all_that_is_new_is_one_answer() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    edge.set("/poll/b", "two");
    let (one, two) = (entry("a", "one"), entry("b", "two"));
    let both = joined(&["one", "two"]);
    let only_b = joined(&["", "two"]);
    let mut client = edge.connect();
    for (request, status, values) in [
        ("GET /poll/?k=a&k=b".to_owned(), 200, format!("{one},{two}")),
        (
            format!("GET /poll/?k=a&k=b&since={only_b}"),
            200,
            one.clone(),
        ),
        (
            format!("GET /poll/?k=a&k=b&since={both}"),
            304,
            String::new(),
        ),
        (
            format!("POST /poll/?k=a&k=b&since={both}"),
            204,
            String::new(),
        ),
        (
            format!("QUERY /poll/?k=a&k=b&since={both}"),
            304,
            String::new(),
        ),
        (
            format!("GET /poll/?k=a&k=b&since={both}&wait=20ms"),
            204,
            String::new(),
        ),
    ] {
        client.send(&request);
        let wanted = match status {
            200 => body(&both, &values),
            _ => String::new(),
        };
        assert_eq!(edge.answer(&mut client), (status, wanted), "{request}");
    }
    edge.assert_nothing_left();
}

#[test]
fn a_change_of_any_key_ends_the_wait() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    let mut client = wait_for(&edge, &["one", ""]);
    let mut other = wait_for(&edge, &["one", ""]);
    let gone = wait_for(&edge, &["one", ""]);
    edge.turn_until_waiting(6);
    gone.reset();
    edge.turn_until_waiting(4);
    edge.set("/poll/a", "one");
    edge.set("/poll/b", "new");
    edge.set("/poll/b", "newer");
    let wanted = body(&joined(&["one", "newer"]), &entry("b", "newer"));
    assert_eq!(edge.answer(&mut client), (200, wanted.clone()));
    assert_eq!(edge.answer(&mut other), (200, wanted));
    client = wait_for(&edge, &["one", "newer"]);
    edge.turn_until_waiting(2);
    edge.delete("/poll/a");
    let wanted = body(&joined(&["", "newer"]), "\"a\":null");
    assert_eq!(edge.answer(&mut client), (200, wanted));
    edge.assert_nothing_left();
}

#[test]
fn polls_of_one_key_and_of_several_wait_together() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    let since = cursor("one");
    let mut single = edge.ask(&format!("GET /poll/a?since={since}&wait=50s"));
    let mut several = wait_for(&edge, &["one", ""]);
    edge.turn_until_waiting(3);
    edge.set("/poll/a", "two");
    assert_eq!(edge.answer(&mut single), (200, "two".to_owned()));
    assert_eq!(edge.answer(&mut several).0, 200);
    edge.assert_nothing_left();
}

#[test]
fn each_key_counts_as_a_wait() {
    let mut edge = Edge::new("limits.waiters_max = 3");
    let first = wait_for(&edge, &["", ""]);
    edge.turn_until_waiting(2);
    let mut second = wait_for(&edge, &["", ""]);
    assert_eq!(edge.answer(&mut second).0, 503);
    second.send("GET /poll/?k=a&k=b");
    assert_eq!(edge.answer(&mut second), (200, body(".", "")));
    drop(first);
    edge.assert_nothing_left();
}

#[test]
fn what_is_too_much_for_one_answer_comes_with_the_next() {
    let mut edge = Edge::new("");
    let values = [b'a', b'b', b'c'].map(|byte| (byte as char).to_string().repeat(200_000));
    for (key, value) in ["a", "b", "c"].into_iter().zip(&values) {
        edge.set(&format!("/poll/{key}"), value);
    }
    let mut client = edge.ask("GET /poll/?k=a&k=b&k=c");
    let (_, first) = edge.answer(&mut client);
    assert!(first.contains("\"b\":{") && !first.contains("\"c\":{"));
    let since = joined(&[&values[0], &values[1], ""]);
    assert!(first.starts_with(&format!("{{\"cursor\":\"{since}\"")));
    client.send(&format!("GET /poll/?k=a&k=b&k=c&wait=50s&since={since}"));
    assert!(edge.answer(&mut client).1.contains(&values[2]));
    edge.assert_nothing_left();
}

#[test]
fn more_keys_than_a_poll_may_name_are_refused() {
    let mut edge = Edge::new("");
    let keys: Vec<_> = (0..65).map(|key| format!("k={key}")).collect();
    let mut client = edge.ask(&format!("GET /poll/?{}", keys.join("&")));
    let refused = (400, "more than 64 keys\n".to_owned());
    assert_eq!(edge.answer(&mut client), refused);
    client.send(&format!("GET /poll/?{}", keys[1..].join("&")));
    assert_eq!(edge.answer(&mut client).0, 200);
    edge.assert_nothing_left();
}

#[test]
fn a_drain_ends_them_too() {
    let mut edge = Edge::new("");
    let mut client = wait_for(&edge, &["", ""]);
    edge.turn_until_waiting(2);
    edge.driver.fleet.advance(dwell_evloop::Lifecycle::Drain);
    assert_eq!(edge.answer(&mut client).0, 204);
    edge.turn_until(|edge| edge.front.polls.is_empty());
}

#[test]
fn memcached_is_asked_for_all_keys_at_once() {
    let memcached = memcached();
    let mut edge = before_memcached(memcached.address(), "");
    memcached.set("/poll/a", "one");
    let mut client = edge.ask("GET /poll/?k=a&k=b");
    let wanted = body(&joined(&["one", ""]), &entry("a", "one"));
    assert_eq!(edge.answer(&mut client), (200, wanted));
    edge.assert_nothing_left();
    let mut clients = [0; 2].map(|_| wait_for(&edge, &["one", ""]));
    let gone = wait_for(&edge, &["one", ""]);
    edge.turn_until_waiting(6);
    gone.reset();
    edge.turn_until_waiting(4);
    memcached.set("/poll/b", "two");
    for client in &mut clients {
        let wanted = body(&joined(&["one", "two"]), &entry("b", "two"));
        assert_eq!(edge.answer(client), (200, wanted));
    }
    edge.assert_nothing_left();
}

#[test]
fn a_memcached_that_fails_says_nothing_of_the_keys() {
    let mut memcached = memcached();
    let mut edge = before_memcached(memcached.address(), "memcached.timeout = \"200ms\"");
    memcached.set("/poll/a", "one");
    let mut known = edge.ask("GET /poll/?k=a&k=b");
    assert_eq!(edge.answer(&mut known).0, 200);
    memcached.kill();
    let since = joined(&["one", ""]);
    let mut now = edge.ask(&format!("GET /poll/?k=a&k=b&since={since}"));
    assert_eq!(edge.answer(&mut now).0, 503);
    let mut held = wait_for(&edge, &["one", ""]);
    edge.turn_until_waiting(2);
    memcached.restart();
    memcached.set("/poll/a", "two");
    let answer = edge.answer(&mut held);
    assert!(answer.1.contains(&entry("a", "two")), "{answer:?}");
    edge.assert_nothing_left();
}
