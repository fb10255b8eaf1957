//! Operations that wait for the answers under way, to be sent together.

use crate::harness::{End, Harness, PATIENCE, hit, patient};
use dwell_memcache::on_loop::{ClientOptions, Failure};
use std::time::{Duration, Instant};

fn holding(held_max: usize) -> ClientOptions {
    ClientOptions {
        held_max,
        ..patient()
    }
}

/// Asks for `count` keys in one turn; returns the request for them.
fn ask_together(harness: &mut Harness, count: u64) -> String {
    let keys: Vec<_> = (0..count).map(|number| format!("k{number}")).collect();
    for (key, tag) in keys.iter().zip(0..) {
        harness.get(key, tag);
    }
    harness.turn();
    format!("gets {}\r\n", keys.join(" "))
}

/// Asks for keys, each in a turn of its own.
fn ask_in_turns(harness: &mut Harness, keys: &[&str]) {
    for (tag, key) in keys.iter().enumerate() {
        harness.get(key, 100 + tag as u64);
        harness.turn();
    }
}

#[test]
fn what_is_asked_for_behind_many_answers_goes_together() {
    let (mut harness, _listener, mut peer) = Harness::connected(holding(16));
    settle_probe(&mut harness);
    let request = ask_together(&mut harness, 16);
    peer.expect(&request);
    ask_in_turns(&mut harness, &["a", "b", "c"]);
    peer.send("VALUE k0 0 1 7\r\nx\r\nEND\r\n");
    let ends = harness.wait_for_ends(16);
    assert_eq!((&ends[0], &ends[15]), (&hit(b"x", 0, 7), &End::Miss));
    peer.expect("gets a b c\r\n");
    peer.send("END\r\n");
    assert_eq!(harness.wait_for_ends(3), [End::Miss, End::Miss, End::Miss]);
}

#[test]
fn a_quarter_of_what_is_under_way_goes_at_once() {
    let (mut harness, _listener, mut peer) = Harness::connected(holding(16));
    settle_probe(&mut harness);
    let request = ask_together(&mut harness, 8);
    ask_in_turns(&mut harness, &["a", "b"]);
    peer.expect(&format!("{request}gets a b\r\n"));
    // The answers make fewer of those under way, and then one is no longer held.
    ask_in_turns(&mut harness, &["c"]);
    peer.send("END\r\n");
    harness.wait_for(8);
    peer.expect("gets c\r\n");
    peer.send("END\r\nEND\r\n");
    assert_eq!(harness.wait_for_ends(3), [End::Miss, End::Miss, End::Miss]);
}

#[test]
fn nothing_is_held_behind_a_few() {
    let (mut harness, _listener, mut peer) = Harness::connected(holding(16));
    settle_probe(&mut harness);
    ask_in_turns(&mut harness, &["a", "b", "c", "d"]);
    peer.expect("gets a\r\ngets b\r\ngets c\r\ngets d\r\n");
}

#[test]
fn as_many_as_may_be_held_go_at_once() {
    let (mut harness, _listener, mut peer) = Harness::connected(holding(3));
    settle_probe(&mut harness);
    let request = ask_together(&mut harness, 40);
    ask_in_turns(&mut harness, &["b", "c", "d", "e"]);
    peer.expect(&format!("{request}gets b c d\r\n"));
    peer.send("END\r\nEND\r\n");
    harness.wait_for(43);
    peer.expect("gets e\r\n");
    peer.send("END\r\n");
    assert_eq!(harness.wait_for_ends(1), [End::Miss]);
}

/// The time an operation is held is part of its timeout.
#[test]
fn the_time_of_the_hold_counts() {
    let timeout = Duration::from_millis(1500);
    let (mut harness, _listener, mut peer) = Harness::connected(ClientOptions {
        timeout,
        ..holding(16)
    });
    settle_probe(&mut harness);
    ask_together(&mut harness, 8);
    harness.get("b", 100);
    let held_at = Instant::now();
    harness.turn();
    while held_at.elapsed() < timeout / 2 {
        harness.turn_for(Duration::from_millis(10));
    }
    peer.send("END\r\n");
    harness.wait_for(8);
    let sent_at = Instant::now();
    assert_eq!(harness.wait_for_ends(1), [End::Failed(Failure::Timeout)]);
    assert!(held_at.elapsed() >= timeout);
    assert!(sent_at.elapsed() < timeout, "{:?}", sent_at.elapsed());
}

#[test]
fn what_is_held_ends_with_the_connection() {
    let (mut harness, _listener, peer) = Harness::connected(holding(16));
    settle_probe(&mut harness);
    ask_together(&mut harness, 8);
    ask_in_turns(&mut harness, &["b"]);
    drop(peer);
    let ends = harness.wait_for_ends(9);
    assert_eq!(
        ends[7..],
        [
            End::Failed(Failure::Closed),
            End::Failed(Failure::Unavailable)
        ]
    );
}

/// Turns until the answer to the probe has been read: it is owed like any other.
fn settle_probe(harness: &mut Harness) {
    let end = Instant::now() + PATIENCE;
    while harness.event_loop.context().armed() > 0 {
        assert!(Instant::now() < end, "the probe is not answered");
        harness.turn();
    }
}
