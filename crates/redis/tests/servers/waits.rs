//! Waits for changes that other clients make.

use crate::harness::{Harness, PATIENCE, Server, options, with_each};
use dwell_redis::{PushKind, Tracking};
use std::cell::RefCell;
use std::time::Instant;

#[test]
fn another_client_wakes_a_wait_and_a_change_is_one_read() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        harness.wait("a", 7);
        assert_eq!(harness.app.last(7), Some("Missing"));
        harness.turn_until(|app| app.client.status().tracking == Tracking::On);
        let rereads = harness.metrics.rereads.value();
        for number in 1..20 {
            other.ask(&format!("SET a {number}"));
            harness.turn_until_last(7, &number.to_string());
            assert_eq!(harness.metrics.rereads.value(), rereads + number);
        }
        other.ask("DEL a");
        harness.turn_until_last(7, "Missing");
        assert_eq!(harness.metrics.armed_keys.value(), 1);
    });
}

#[test]
fn every_kind_of_change_is_told() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        harness.wait("a", 7);
        harness.wait("b", 8);
        for (act, a, b) in [
            ("SET a 1", "1", "Missing"),
            ("RENAME a b", "Missing", "1"),
            ("COPY b a REPLACE", "1", "1"),
            ("MSET a 3 b 4", "3", "4"),
            ("APPEND a 3", "33", "4"),
            ("INCR b", "33", "5"),
            ("GETDEL a", "Missing", "5"),
            ("LPUSH a x", "Missing", "5"),
            ("DEL a", "Missing", "5"),
            ("SETRANGE a 1 x", "\0x", "5"),
            ("FLUSHALL", "Missing", "Missing"),
            ("SET b 6", "Missing", "6"),
        ] {
            other.ask(act);
            harness.turn_until_last(7, a);
            harness.turn_until_last(8, b);
        }
        assert_eq!(harness.metrics.pushes.of(PushKind::All).value(), 1);
    });
}

#[test]
fn a_transaction_a_restored_value_and_a_pause_lose_nothing() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        harness.wait("a", 7);
        other.ask("SET b 1");
        let script = "redis.call('RESTORE',KEYS[1],0,redis.call('DUMP',KEYS[2]))";
        other.ask(&format!("EVAL {script} 2 a b"));
        harness.turn_until_last(7, "1");
        for act in ["MULTI", "FLUSHALL", "SET a 2", "EXEC"] {
            other.ask(act);
        }
        harness.turn_until_last(7, "2");
        for act in ["MULTI", "SET a 3", "FLUSHALL", "EXEC"] {
            other.ask(act);
        }
        harness.turn_until_last(7, "Missing");
        other.ask("CLIENT PAUSE 50");
        other.ask("SET a 4");
        harness.turn_until_last(7, "4");
    });
}

#[test]
fn a_database_that_takes_the_place_of_another_is_found_by_a_sweep() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        other.ask("SET a 1");
        harness.wait("a", 7);
        // A key of the same name is announced, and read for nothing.
        for act in ["SELECT 1", "SET a 2"] {
            other.ask(act);
        }
        harness.turn_until(|app| app.count(7) > 1);
        assert_eq!(harness.app.last(7), Some("1"));
        assert_eq!(other.ask("SWAPDB 0 1"), "OK");
        harness.app.client.sweep(harness.event_loop.context());
        harness.turn_until_last(7, "2");
    });
}

#[test]
fn own_writes_are_told_too() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let mut harness = Harness::new(&server, options());
        harness.wait("a", 7);
        let options = dwell_redis::SetOptions::default();
        harness.end_of(2, |client, context| {
            client.set(context, b"a", b"own", options, 2).unwrap();
        });
        harness.turn_until_last(7, "own");
    });
}

#[test]
fn a_value_that_expires_is_read_when_its_lifetime_is_over() {
    with_each(|program| {
        // The server looks for expired keys once a second: the client does not wait for that.
        let server = Server::start(program, &["--hz", "1"]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        harness.wait("a", 7);
        other.ask("SET a 1 PX 50");
        harness.turn_until_last(7, "1");
        harness.turn_until_last(7, "Missing");
        // A lifetime that ends later, or not at all, is followed.
        other.ask("SET a 2 PX 100");
        harness.turn_until_last(7, "2");
        other.ask("PERSIST a");
        other.ask("SET b 1 PX 200");
        harness.wait("b", 8);
        harness.turn_until_last(8, "Missing");
        assert_eq!(harness.app.last(7), Some("2"));
    });
}

#[test]
fn a_wait_that_has_ended_costs_nothing() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        harness.wait("a", 7);
        harness.wait("b", 8);
        harness.app.client.unwait(b"a");
        harness.turn();
        let (before, rereads) = (harness.app.count(7), harness.metrics.rereads.value());
        other.ask("SET a 1");
        other.ask("SET b 1");
        harness.turn_until_last(8, "1");
        assert_eq!(harness.app.count(7), before);
        assert_eq!(harness.metrics.rereads.value(), rereads + 1);
        assert_eq!(harness.metrics.pushes.of(PushKind::Unwaited).value(), 1);
        // One that begins again is told again.
        harness.wait("a", 9);
        other.ask("SET a 2");
        harness.turn_until_last(9, "2");
    });
}

#[test]
fn the_tracking_connection_ends_some_time_after_the_last_wait_and_comes_back() {
    let both = RefCell::new(Vec::new());
    with_each(|program| {
        let server = Server::start(program, &[]);
        let harness = Harness::new(&server, options());
        both.borrow_mut().push((server, harness));
    });
    let mut both = both.into_inner();
    for (_, harness) in &mut both {
        harness.get("b");
        harness.wait("a", 7);
        harness.turn_until(|app| app.client.is_armed(b"a") == Some(true));
        harness.app.client.unwait(b"a");
    }
    // Both together, as it takes seconds. The other connection stays.
    let end = Instant::now() + PATIENCE;
    let is_idle = |harness: &Harness| harness.app.client.status().tracking == Tracking::Idle;
    while !both.iter().all(|(_, harness)| is_idle(harness)) {
        assert!(Instant::now() < end);
        for (_, harness) in &mut both {
            harness.turn();
        }
    }
    for (server, harness) in &mut both {
        let mut other = server.other();
        let clients = other.ask("CLIENT LIST");
        assert_eq!(clients.lines().count(), 2, "{clients}");
        harness.wait("a", 8);
        other.ask("SET a 1");
        harness.turn_until_last(8, "1");
    }
}

#[test]
fn thousands_of_keys_are_told_by_one_flush() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        for tag in 0..KEYS {
            harness.app.client.wait(format!("k{tag}").as_bytes(), tag);
        }
        harness.turn_until(|app| (0..KEYS).all(|tag| app.count(tag) == 1));
        assert_eq!(harness.metrics.armed_keys.value(), 5_000);
        other.ask("FLUSHALL");
        harness.turn_until(|app| (0..KEYS).all(|tag| app.count(tag) == 2));
        other.ask("SET k4999 x");
        harness.turn_until_last(4999, "x");
    });
}

const KEYS: u64 = 5_000;

#[test]
fn a_value_that_is_waited_for_is_kept_until_its_change_is_told() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        let kept = |harness: &Harness| {
            let outcome = harness.app.client.kept(b"a");
            outcome.map(|outcome| crate::harness::text_of(&outcome))
        };
        assert_eq!(kept(&harness), None);
        assert_eq!(harness.app.client.is_armed(b"a"), None);
        harness.wait("a", 7);
        assert_eq!(harness.app.client.is_armed(b"a"), Some(true));
        assert_eq!(kept(&harness).as_deref(), Some("Missing"));
        for number in 0..20 {
            other.ask(&format!("SET a {number}"));
            harness.turn_until_last(7, &number.to_string());
            assert_eq!(kept(&harness), Some(number.to_string()));
        }
        other.ask("FLUSHALL");
        harness.turn_until_last(7, "Missing");
        assert_eq!(kept(&harness).as_deref(), Some("Missing"));
        other.ask("SET a 1 PX 50");
        harness.turn_until_last(7, "1");
        harness.turn_until_last(7, "Missing");
        other.ask("SET a 2");
        harness.turn_until_last(7, "2");
        // What this client writes itself is known when the write has completed.
        let set = dwell_redis::SetOptions::default();
        for number in 0..50 {
            let value = number.to_string();
            harness.end_of(2, |client, context| {
                client.set(context, b"a", value.as_bytes(), set, 2).unwrap();
            });
            assert!(kept(&harness).is_none_or(|kept| kept == value));
        }
        harness.turn_until_last(7, "49");
        other.ask("CLIENT KILL TYPE normal SKIPME yes");
        harness.turn_until(|app| app.client.kept(b"a").is_none());
        harness.turn_until(|app| app.client.kept(b"a").is_some());
        harness.app.client.unwait(b"a");
        harness.turn();
        assert_eq!(kept(&harness), None);
        assert_eq!(harness.metrics.kept_bytes.value(), 0);
    });
}
