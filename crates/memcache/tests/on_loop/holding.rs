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

#[test]
fn what_is_asked_for_while_an_answer_is_owed_goes_together() {
    let (mut harness, _listener, mut peer) = Harness::connected(holding(16));
    settle_probe(&mut harness);
    harness.get("a", 0);
    harness.turn();
    peer.expect("gets a\r\n");
    for (tag, key) in [(1, "b"), (2, "c")] {
        harness.get(key, tag);
        harness.turn();
    }
    peer.send("VALUE a 0 1 7\r\nx\r\nEND\r\n");
    assert_eq!(harness.wait_for_ends(1), [hit(b"x", 0, 7)]);
    peer.expect("gets b c\r\n");
    peer.send("END\r\n");
    assert_eq!(harness.wait_for_ends(2), [End::Miss, End::Miss]);
}

#[test]
fn as_many_as_may_be_held_go_at_once() {
    let (mut harness, _listener, mut peer) = Harness::connected(holding(3));
    settle_probe(&mut harness);
    for (tag, key) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        harness.get(key, tag as u64);
        harness.turn();
    }
    peer.expect("gets a\r\ngets b c d\r\n");
    peer.send("END\r\nEND\r\n");
    harness.wait_for(4);
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
    harness.get("a", 0);
    harness.turn();
    harness.get("b", 1);
    let held_at = Instant::now();
    harness.turn();
    while held_at.elapsed() < timeout / 2 {
        harness.turn_for(Duration::from_millis(10));
    }
    peer.send("END\r\n");
    assert_eq!(harness.wait_for_ends(1), [End::Miss]);
    let sent_at = Instant::now();
    assert_eq!(harness.wait_for_ends(1), [End::Failed(Failure::Timeout)]);
    assert!(held_at.elapsed() >= timeout);
    assert!(sent_at.elapsed() < timeout, "{:?}", sent_at.elapsed());
}

#[test]
fn what_is_held_ends_with_the_connection() {
    let (mut harness, _listener, peer) = Harness::connected(holding(16));
    settle_probe(&mut harness);
    harness.get("a", 0);
    harness.turn();
    harness.get("b", 1);
    harness.turn();
    drop(peer);
    assert_eq!(
        harness.wait_for_ends(2),
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
