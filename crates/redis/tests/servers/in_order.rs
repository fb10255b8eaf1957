//! Reads that wait for replies on the one connection while the one that tracks comes.

use crate::fakes::{Fake, Gate, bulk, greeted};
use crate::harness::{Harness, PATIENCE, options};
use dwell_redis::{ClientOptions, Endpoint};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Options with which reads go over the other connection behind the first failure of the one that
/// tracks.
fn untracked_after_a_failure() -> ClientOptions {
    ClientOptions {
        failures_max: 1,
        probe: PATIENCE,
        ..options()
    }
}

#[test]
fn reads_that_were_admitted_are_not_refused_where_the_announcements_come() {
    const READS: u64 = 8;
    let untracked = untracked_after_a_failure;
    for options in [
        ClientOptions {
            operations_max: READS as usize,
            ..untracked()
        },
        ClientOptions {
            // All of the reads, of 21 bytes each, but the last.
            request_bytes_max: 7 * 21 + 1,
            ..untracked()
        },
    ] {
        let (to_track, to_reply) = (Gate::default(), Gate::default());
        let (may_track, may_reply) = (to_track.clone(), to_reply.clone());
        let [greetings, reads] = [(); 2].map(|()| Arc::<AtomicUsize>::default());
        let read_by = Arc::clone(&reads);
        let server = Fake::start(move |words, _| {
            let count = |of: &AtomicUsize| of.fetch_add(1, Ordering::SeqCst);
            match words {
                "CLIENT TRACKING ON" if count(&greetings) == 0 => return "no protocol".to_owned(),
                "CLIENT TRACKING ON" => may_track.wait(),
                "GET r0" if count(&reads) == 0 => {
                    may_reply.wait();
                    return bulk("old");
                }
                _ => {}
            }
            greeted(words, "master").unwrap_or_else(|| bulk("new"))
        });
        let mut harness = Harness::of(Endpoint::Tcp(server.address), options);
        assert_eq!(harness.get("c"), "new");
        harness.app.client.wait(b"a", 7);
        let metrics = Arc::clone(&harness.metrics);
        harness.turn_until(|_| metrics.protocol_errors.value() == 1);
        for read in 0..READS {
            let (name, context) = (format!("r{read}"), harness.event_loop.context());
            let taken = harness.app.client.read(context, name.as_bytes(), 10 + read);
            assert_eq!(taken, Ok(()));
        }
        harness.turn_until(|_| read_by.load(Ordering::SeqCst) > 0);
        to_track.open();
        let told = |harness: &Harness| -> Vec<_> {
            let ended = &harness.app.ended;
            let of = |read| ended.get(&(10 + read)).cloned().unwrap_or_default();
            (0..READS).map(of).collect()
        };
        harness.turn_until(|app| (0..READS).all(|read| app.count(10 + read) > 0));
        assert_eq!(told(&harness), [["new"]; READS as usize]);
        to_reply.open();
        harness.turn_until(|app| app.client.operations() == 0);
        assert_eq!(told(&harness), [["new"]; READS as usize]);
    }
}

/// A server that has another value, with the number of connections that track there.
fn other_primary() -> (Fake, Arc<AtomicUsize>) {
    let tracks = Arc::<AtomicUsize>::default();
    let tracked_by = Arc::clone(&tracks);
    let server = Fake::start(move |words, _| {
        if words == "CLIENT TRACKING ON" {
            tracks.fetch_add(1, Ordering::SeqCst);
        }
        greeted(words, "master").unwrap_or_else(|| bulk("wrong"))
    });
    (server, tracked_by)
}

fn named_by_sentinel(primary: SocketAddr) -> String {
    let (host, port) = (primary.ip().to_string(), primary.port().to_string());
    format!("*2\r\n{}{}", bulk(&host), bulk(&port))
}

#[test]
fn what_is_asked_stays_where_it_is_when_another_primary_would_announce() {
    for is_read in [false, true] {
        let (to_track, to_reply, never) = (Gate::default(), Gate::default(), Gate::default());
        let may_reply = to_reply.clone();
        let reads = Arc::<AtomicUsize>::default();
        let read_by = Arc::clone(&reads);
        let primary = Fake::start(move |words, _| {
            match words {
                "CLIENT TRACKING ON" => never.wait(),
                "GET a" => {
                    reads.fetch_add(1, Ordering::SeqCst);
                    may_reply.wait();
                }
                _ => {}
            }
            greeted(words, "master").unwrap_or_else(|| bulk("right"))
        });
        let (other, tracked_by) = other_primary();
        let asks = Arc::<AtomicUsize>::default();
        let (asked, may_track, named) = (Arc::clone(&asks), to_track.clone(), primary.address);
        let elsewhere = other.address;
        let sentinel = Fake::start(move |_, _| {
            let primary = match asks.fetch_add(1, Ordering::SeqCst) {
                0 => return "no protocol".to_owned(),
                1 => {
                    may_track.wait();
                    elsewhere
                }
                _ => named,
            };
            named_by_sentinel(primary)
        });
        let endpoint = Endpoint::Primary {
            name: "mine".to_owned(),
            sentinels: vec![sentinel.address],
        };
        let mut harness = Harness::of(endpoint, untracked_after_a_failure());
        // The connection that tracks asks twice before there is another one that it would follow.
        harness.app.client.wait(b"a", 7);
        harness.turn_until(|_| asked.load(Ordering::SeqCst) == 2);
        assert_eq!(harness.get("c"), "right");
        let Harness {
            event_loop, app, ..
        } = &mut harness;
        if is_read {
            app.client.read(event_loop.context(), b"a", 2).unwrap();
        } else {
            app.client.sweep_untold(event_loop.context());
        }
        harness.turn_until(|_| read_by.load(Ordering::SeqCst) > 0);
        to_track.open();
        let has_left = || {
            let has_come = tracked_by.load(Ordering::SeqCst) > 0;
            has_come && other.open.load(Ordering::SeqCst) == 0
        };
        harness.turn_until(|_| has_left());
        to_reply.open();
        if is_read {
            harness.turn_until(|app| app.count(2) > 0);
            assert_eq!(harness.app.last(2), Some("right"));
        } else {
            harness.turn_until_last(7, "right");
        }
        assert_eq!(harness.get("c"), "right", "behind whatever was asked again");
        let ended = &harness.app.ended;
        assert!(
            !ended.values().flatten().any(|it| it == "wrong"),
            "{ended:?}"
        );
        assert_eq!(read_by.load(Ordering::SeqCst), 1, "{ended:?}");
    }
}
