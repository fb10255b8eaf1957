//! Announcements of all keys that begin with a prefix.

use crate::harness::{Harness, Server, options, with_each};
use dwell_redis::{Announced, ClientOptions, PushKind, ResyncReason, Tracking};
use rustix::process::Signal;

fn of_prefixes(prefixes: &[&str]) -> ClientOptions {
    let prefixes = prefixes.iter().map(|prefix| prefix.as_bytes().into());
    ClientOptions {
        announced: Announced::Prefixes(prefixes.collect()),
        ..options()
    }
}

#[test]
fn each_change_of_a_key_is_told_as_often_as_it_changes() {
    with_each(|program| {
        for prefixes in [&["a", "b:"][..], &[]] {
            let server = Server::start(program, &[]);
            let mut other = server.other();
            let mut harness = Harness::new(&server, of_prefixes(prefixes));
            harness.wait("a", 7);
            assert_eq!(harness.app.last(7), Some("Missing"));
            assert_eq!(harness.app.client.is_armed(b"a"), Some(true));
            for number in 0..50 {
                other.ask(&format!("SET a {number}"));
                harness.turn_until_last(7, &number.to_string());
            }
            // The server remembers no keys.
            let stats = other.ask("INFO stats");
            assert!(stats.contains("tracking_total_keys:0\r\n"), "{stats}");
            assert_eq!(harness.app.client.status().tracking, Tracking::On);
        }
    });
}

#[test]
fn a_burst_of_writes_is_few_reads() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, of_prefixes(&["a"])));
        harness.wait("a", 7);
        for number in 0..1000 {
            other.send(&format!("SET a {number}"));
        }
        for _ in 0..1000 {
            assert_eq!(other.reply(), "OK");
        }
        harness.turn_until_last(7, "999");
        let (reads, pushes) = (
            harness.metrics.rereads.value(),
            harness.metrics.pushes.of(PushKind::Waited).value(),
        );
        assert!(reads <= 1 + 2 * pushes, "{reads} for {pushes}");
    });
}

#[test]
fn keys_that_nobody_waits_for_are_told_and_not_read() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, of_prefixes(&["a"])));
        harness.wait("a", 7);
        let reads = harness.metrics.rereads.value();
        other.ask("SET a2 1");
        other.ask("SET b 1");
        other.ask("SET a 1");
        harness.turn_until_last(7, "1");
        let unwaited = harness.metrics.pushes.of(PushKind::Unwaited).value();
        assert_eq!((unwaited, harness.metrics.rereads.value()), (1, reads + 1));
    });
}

#[test]
fn a_key_outside_of_the_prefixes_is_read_now_and_then() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, of_prefixes(&["b"])));
        harness.wait("a", 7);
        assert_eq!(harness.app.client.is_armed(b"a"), Some(false));
        for number in 0..3 {
            other.ask(&format!("SET a {number}"));
            harness.turn_until_last(7, &number.to_string());
        }
        // Also one whose value lives longer than until the next read.
        other.ask("SET a x PX 100000");
        harness.turn_until_last(7, "x");
        other.ask("SET a y PX 100000");
        harness.turn_until_last(7, "y");
        harness.app.client.unwait(b"a");
        harness.turn();
        let reads = harness.metrics.rereads.value();
        harness.wait("b", 8);
        other.ask("SET b 1");
        harness.turn_until_last(8, "1");
        assert_eq!(harness.metrics.rereads.value(), reads + 1);
    });
}

#[test]
fn faults_lose_nothing() {
    with_each(|program| {
        let mut server = Server::start(program, &[]);
        let mut harness = Harness::new(&server, of_prefixes(&["k"]));
        for tag in 0..100 {
            harness.wait(&format!("k{tag}"), tag);
        }
        let mut other = server.other();
        other.ask("SET k1 1");
        harness.turn_until_last(1, "1");
        other.ask("FLUSHALL");
        harness.turn_until_last(1, "Missing");
        let resyncs = &harness.metrics.resyncs;
        assert_eq!(resyncs.of(ResyncReason::Flushed).value(), 1);
        for number in 0..5 {
            other.ask("CLIENT KILL TYPE normal SKIPME yes");
            other.ask(&format!("SET k{number} killed"));
            harness.turn_until_last(number, "killed");
        }
        server.signal(Signal::STOP);
        harness.turn_until(|app| app.client.status().tracking == Tracking::Connecting);
        server.signal(Signal::CONT);
        other.ask("SET k7 stopped");
        harness.turn_until_last(7, "stopped");
        drop(other);
        server.kill();
        harness.turn_until(|app| app.client.status().tracking == Tracking::Connecting);
        server.start_again();
        let mut other = server.other();
        for tag in 0..100 {
            other.ask(&format!("SET k{tag} again"));
        }
        harness.turn_until(|app| (0..100).all(|tag| app.last(tag) == Some("again")));
    });
}

#[test]
fn what_the_server_refuses_is_said_in_its_words() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        // No configuration has prefixes of which one begins with another.
        let mut harness = Harness::new(&server, of_prefixes(&["a", "ab"]));
        harness.app.client.wait(b"a", 7);
        harness.turn_until(|app| app.client.status().tracking == Tracking::Refused);
        let status = harness.app.client.status();
        let reason = status.tracking_reason.unwrap();
        assert!(reason.contains("overlap"), "{reason}");
        server.other().ask("SET a 1");
        assert_eq!(harness.get("a"), "1");
        harness.app.client.sweep(harness.event_loop.context());
        harness.turn_until_last(7, "1");
    });
}
