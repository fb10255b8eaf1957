//! The times for which polls are held, and the outcomes of requests that are no valid polls.

use super::harness::{Edge, cursor, scripted};
use crate::metrics::PollOutcome;
use dwell_testkit::Script;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(2);
/// A wait may take a sixteenth longer; turns take some time, too.
const LONGEST: Duration = Duration::from_millis(2_200);

#[test]
fn the_time_of_a_lookup_is_part_of_the_wait() {
    let (reply, pause) = (
        "VALUE /poll/a 0 3 1\r\none\r\nEND\r\n",
        Duration::from_millis(40),
    );
    let server = scripted([Script::new()
        .expect("version\r\n")
        .send("VERSION 1.6.18\r\n")
        .expect("gets /poll/a\r\n")
        .drip(reply, pause)
        .hang()]);
    let mut edge = Edge::new(&format!(
        "memcached.servers = \"{}\"\nmemcached.sweep_interval = \"60s\"\n\
         memcached.timeout = \"10s\"",
        server.address()
    ));
    let target = format!("GET /poll/a?since={}&wait=2s", cursor("one"));
    let (mut client, began) = (edge.ask(&target), edge.elapsed());
    edge.turn_until_waiting(1);
    let looked_up = edge.elapsed().saturating_sub(began);
    assert!(looked_up > WAIT / 2, "{looked_up:?}");
    assert_eq!(edge.answer(&mut client).0, 204);
    let took = edge.elapsed().saturating_sub(began);
    assert!((WAIT..LONGEST).contains(&took), "{took:?}");
    edge.assert_nothing_left();
}

#[test]
fn a_request_that_is_no_valid_poll_has_an_outcome() {
    let mut edge = Edge::new("");
    for (request, status) in [("GET /poll/a?wait=soon", 400), ("DELETE /poll/a", 405)] {
        let before = edge
            .driver
            .metrics
            .polls
            .of(PollOutcome::BadRequest)
            .value();
        let mut client = edge.ask(request);
        assert_eq!(edge.answer(&mut client).0, status);
        let after = edge
            .driver
            .metrics
            .polls
            .of(PollOutcome::BadRequest)
            .value();
        assert_eq!(after - before, 1, "{request}");
    }
}

#[test]
fn a_wait_that_is_over_before_its_key_is_known_ends_also_where_none_may_wait() {
    for (target, status) in [
        ("GET /poll/a?since=CURSOR&wait=1s", 204),
        ("GET /poll/a?since=CURSOR&wait=9s", 503),
        ("GET /poll/?k=a&since=CURSOR&wait=1s", 204),
        ("GET /poll/?k=a&since=CURSOR&wait=9s", 503),
    ] {
        let (reply, pause) = (
            "VALUE /poll/a 0 3 1\r\none\r\nEND\r\n",
            Duration::from_millis(40),
        );
        let server = scripted([Script::new()
            .expect("version\r\n")
            .send("VERSION 1.6.18\r\n")
            .expect("gets /poll/b\r\n")
            .expect("gets /poll/a\r\n")
            .send("VALUE /poll/b 0 3 1\r\none\r\nEND\r\n")
            .drip(reply, pause)
            .hang()]);
        let mut edge = Edge::new(&format!(
            "memcached.servers = \"{}\"\nmemcached.sweep_interval = \"60s\"\n\
             memcached.timeout = \"10s\"\nlimits.waiters_max = 1",
            server.address()
        ));
        let of = |target: &str| target.replace("CURSOR", &cursor("one"));
        let _other = edge.ask(&of("GET /poll/b?since=CURSOR&wait=9s"));
        let asked = edge.elapsed() + Duration::from_millis(100);
        while edge.elapsed() < asked {
            edge.turn();
        }
        let mut client = edge.ask(&of(target));
        assert_eq!(edge.answer(&mut client).0, status, "{target}");
    }
}
