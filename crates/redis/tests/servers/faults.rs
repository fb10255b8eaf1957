//! Faults of a server, after which no wait may be without the newest value.

use crate::harness::{Harness, Server, options, with_each};
use dwell_evloop::Random;
use dwell_redis::{Announced, ClientOptions, ResyncReason, Tracking};
use rustix::process::Signal;
use std::time::{Duration, Instant};

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
fn a_small_tracking_table_loses_nothing_and_is_noticed() {
    with_each(|program| {
        let server = Server::start(program, &["--tracking-table-max-keys", "8"]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        for tag in 0..40 {
            harness.wait(&format!("k{tag}"), tag);
        }
        for round in 0..3 {
            for tag in 0..40 {
                other.ask(&format!("SET k{tag} {round}"));
            }
            let value = round.to_string();
            harness.turn_until(|app| (0..40).all(|tag| app.last(tag) == Some(&*value)));
        }
        harness.turn_until(|app| app.client.status().has_idle_pushes);
        assert!(harness.metrics.unchanged_rereads.value() >= 2000);
        // Now reads are few, and changes come all the same.
        let (before, began) = (harness.metrics.rereads.value(), Instant::now());
        for _ in 0..20 {
            harness.turn();
        }
        let reads = harness.metrics.rereads.value() - before;
        let pauses = began.elapsed().as_millis() / 50;
        assert!(
            u128::from(reads) <= (pauses + 2) * 40,
            "{reads} in {pauses}"
        );
        for tag in 0..40 {
            other.ask(&format!("SET k{tag} last"));
        }
        harness.turn_until(|app| (0..40).all(|tag| app.last(tag) == Some("last")));
        other.ask("CONFIG SET tracking-table-max-keys 1000000");
        harness.turn_until(|app| !app.client.status().has_idle_pushes);
    });
}

#[test]
fn a_flood_of_lookups_leaves_rereads_their_room() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let options = ClientOptions {
            operations_max: 8,
            ..options()
        };
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options));
        harness.wait("a", 7);
        for number in 0..5 {
            other.ask(&format!("SET a {number}"));
            let value = number.to_string();
            harness.flood_until("b", |app| app.last(7) == Some(&*value));
        }
    });
}

#[test]
fn a_sweep_of_a_server_that_is_down_asks_nothing() {
    with_each(|program| {
        let mut server = Server::start(program, &[]);
        let options = ClientOptions {
            announced: Announced::Nothing,
            ..options()
        };
        let mut harness = Harness::new(&server, options);
        harness.get("a");
        for tag in 0..100 {
            harness.app.client.wait(format!("k{tag}").as_bytes(), tag);
        }
        server.kill();
        harness.turn_until(|app| !app.client.status().is_up);
        for _ in 0..5 {
            harness.app.client.sweep(harness.event_loop.context());
            harness.turn();
        }
        assert_eq!(harness.metrics.rereads.value(), 0);
        assert_eq!(harness.metrics.sweeps.value(), 0);
        server.start_again();
        server.other().ask("SET k99 1");
        harness.turn_until(|app| app.client.status().is_up);
        harness.app.client.sweep(harness.event_loop.context());
        harness.turn_until(|app| (0..99).all(|tag| app.last(tag) == Some("Missing")));
        harness.turn_until_last(99, "1");
        assert_eq!(harness.metrics.rereads.value(), 100);
    });
}

#[test]
fn a_server_that_has_become_a_replica_is_connected_to_anew() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        harness.wait("a", 7);
        assert_eq!(harness.get("a"), "Missing");
        let set = |harness: &mut Harness, value: &str| {
            harness.end_of(2, |client, context| {
                let options = dwell_redis::SetOptions::default();
                client
                    .set(context, b"a", value.as_bytes(), options, 2)
                    .unwrap();
            })
        };
        assert_eq!(set(&mut harness, "1"), "Done");
        // No server listens on the discard port: the replica goes on with what it has.
        other.ask("REPLICAOF 127.0.0.1 9");
        let resyncs = |harness: &Harness| {
            let resyncs = &harness.metrics.resyncs;
            resyncs.of(ResyncReason::Connected).value()
        };
        let (connects, before) = (harness.app.client.status().connects, resyncs(&harness));
        assert_eq!(set(&mut harness, "2"), "Failed(ReadOnly)");
        harness.turn_until(|app| {
            let status = app.client.status();
            status.connects > connects && status.tracking == Tracking::On
        });
        assert_eq!(resyncs(&harness), before + 1);
        // It stays a replica, to which each write would not connect anew.
        assert_eq!(set(&mut harness, "2"), "Failed(ReadOnly)");
        assert_eq!(harness.get("a"), "1");
        assert_eq!(harness.app.client.status().connects, connects + 1);
        other.ask("REPLICAOF NO ONE");
        assert_eq!(set(&mut harness, "3"), "Done");
        harness.turn_until_last(7, "3");
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
        // The server picks its victims at random among keys of one second.
        for number in 0..50_000 {
            other.ask(&format!("SET filler{number} {value}"));
            if other.ask("EXISTS a") == "0" {
                break;
            }
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

#[test]
fn a_server_that_stops_is_missed_before_it_is_asked() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let options = ClientOptions {
            timeout: Duration::from_millis(300),
            connect_timeout: Duration::from_millis(300),
            ..options()
        };
        let mut harness = Harness::new(&server, options);
        harness.app.client.connect(harness.event_loop.context());
        harness.turn_until(|app| app.client.status().is_up);
        server.signal(Signal::STOP);
        // Nothing is asked, and nothing waits.
        harness.turn_until(|app| !app.client.status().is_up);
        let failure = harness.app.client.status().last_failure;
        assert_eq!(failure, Some(dwell_redis::Failure::Timeout));
        server.signal(Signal::CONT);
        harness.turn_until(|app| app.client.status().is_up);
        assert_eq!(harness.get("a"), "Missing");
    });
}
