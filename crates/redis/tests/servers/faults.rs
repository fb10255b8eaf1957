//! Faults of a server, after which no wait may be without the newest value.

use crate::harness::{Harness, Server, options, with_each};
use dwell_evloop::Random;
use dwell_redis::{ClientOptions, ResyncReason, Tracking};
use rustix::process::Signal;
use std::time::Duration;

#[test]
fn a_killed_connection_is_made_again_and_everything_read() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        harness.wait("a", 7);
        for number in 0..5 {
            other.ask("CLIENT KILL TYPE normal SKIPME yes");
            other.ask(&format!("SET a {number}"));
            harness.turn_until_last(7, &number.to_string());
        }
        assert!(harness.metrics.resyncs.of(ResyncReason::Connected).value() >= 5);
    });
}

#[test]
fn a_server_that_is_killed_and_started_again_is_found() {
    with_each(|program| {
        let mut server = Server::start(program, &[]);
        let mut harness = Harness::new(&server, options());
        harness.wait("a", 7);
        server.other().ask("SET a 1");
        harness.turn_until_last(7, "1");
        server.kill();
        harness.turn_until(|app| app.client.status().tracking == Tracking::Connecting);
        let failed = harness.get("a");
        assert!(failed.starts_with("Failed"), "{failed}");
        server.start_again();
        harness.turn_until_last(7, "Missing");
        server.other().ask("SET a 2");
        harness.turn_until_last(7, "2");
    });
}

#[test]
fn a_server_that_is_stopped_is_noticed_by_the_probe() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let mut other = server.other();
        let options = ClientOptions {
            timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_millis(500),
            ..options()
        };
        let mut harness = Harness::new(&server, options);
        harness.wait("a", 7);
        server.signal(Signal::STOP);
        harness.turn_until(|app| app.client.status().tracking == Tracking::Connecting);
        server.signal(Signal::CONT);
        other.ask("SET a 1");
        harness.turn_until_last(7, "1");
    });
}

#[test]
fn a_small_tracking_table_loses_nothing() {
    with_each(|program| {
        let server = Server::start(program, &["--tracking-table-max-keys", "8"]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        for tag in 0..40 {
            harness.wait(&format!("k{tag}"), tag);
        }
        for tag in 0..40 {
            other.ask(&format!("SET k{tag} {tag}"));
        }
        harness.turn_until(|app| (0..40).all(|tag| app.last(tag) == Some(&*tag.to_string())));
    });
}

#[test]
fn evicted_keys_are_told() {
    with_each(|program| {
        let arguments = ["--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru"];
        let server = Server::start(program, &arguments);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        other.ask("SET a 1");
        harness.wait("a", 7);
        assert_eq!(harness.app.last(7), Some("1"));
        let value = "x".repeat(20_000);
        for number in 0..500 {
            other.ask(&format!("SET filler{number} {value}"));
        }
        harness.turn_until_last(7, "Missing");
    });
}

/// Random writes and faults; in the end each wait has what the server has.
fn plays(program: &str, seed: u64) {
    let server = Server::start(program, &[]);
    let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
    let mut random = Random::new(seed);
    for tag in 0..KEYS {
        harness.app.client.wait(format!("k{tag}").as_bytes(), tag);
    }
    for step in 0..400 {
        let key = random.below(KEYS);
        let act = match random.below(20) {
            0 => "FLUSHALL".to_owned(),
            1 => "CLIENT KILL TYPE normal SKIPME yes".to_owned(),
            2 => format!("DEL k{key}"),
            3 => format!("SET k{key} {step} PX 30"),
            4 => format!("PEXPIRE k{key} 1"),
            5 => format!("RENAME k{key} k{}", random.below(KEYS)),
            6 => format!("CONFIG SET tracking-table-max-keys {}", random.below(20)),
            7 => {
                harness.app.client.unwait(format!("k{key}").as_bytes());
                harness.app.client.wait(format!("k{key}").as_bytes(), key);
                continue;
            }
            _ => format!("SET k{key} {step}"),
        };
        other.ask(&act);
        if random.below(3) == 0 {
            harness.turn();
        }
    }
    for tag in 0..KEYS {
        other.ask(&format!("PERSIST k{tag}"));
    }
    for tag in 0..KEYS {
        let value = match other.ask(&format!("GET k{tag}")) {
            nil if nil == "(nil)" => "Missing".to_owned(),
            value => value,
        };
        harness.turn_until_last(tag, &value);
    }
}

const KEYS: u64 = 12;

#[test]
fn no_change_is_lost_whatever_happens() {
    with_each(|program| {
        for seed in 1..6 {
            plays(program, seed);
        }
    });
}
