//! Servers that refuse: a user, a version, a command, a value.

use crate::fakes::{Fake, bulk, greeted};
use crate::harness::{Harness, PATIENCE, Server, options, with_each};
use dwell_redis::{ClientOptions, Endpoint, Failure, Tracking, UnusableValue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

fn with_user(username: &str, password: &str) -> ClientOptions {
    ClientOptions {
        username: Some(username.to_owned()),
        password: Some(password.to_owned()),
        ..options()
    }
}

#[test]
fn a_wrong_password_is_a_refusal_in_the_words_of_the_server() {
    with_each(|program| {
        let server = Server::start(program, &["--requirepass", "right"]);
        for (options, words) in [
            (with_user("default", "wrong"), "WRONGPASS"),
            (options(), "NOAUTH"),
        ] {
            let mut harness = Harness::new(&server, options);
            assert_eq!(harness.get("a"), "Failed(Refused)");
            let status = harness.app.client.status();
            assert_eq!(status.last_failure, Some(Failure::Refused));
            assert!(
                status
                    .reason
                    .is_some_and(|reason| reason.starts_with(words)),
                "{status:?}"
            );
        }
        let mut harness = Harness::new(&server, with_user("default", "right"));
        assert_eq!(harness.get("a"), "Missing");
        let password_alone = ClientOptions {
            password: Some("right".to_owned()),
            ..options()
        };
        assert_eq!(Harness::new(&server, password_alone).get("a"), "Missing");
    });
}

#[test]
fn a_server_without_version_three_is_read_but_does_not_track() {
    with_each(|program| {
        let arguments = ["--rename-command", "HELLO", "", "--requirepass", "secret"];
        let server = Server::start(program, &arguments);
        let options = ClientOptions {
            password: Some("secret".to_owned()),
            database: 3,
            ..options()
        };
        let mut harness = Harness::new(&server, options);
        let mut other = server.other();
        other.ask("AUTH secret");
        other.ask("SELECT 3");
        other.ask("SET a 1");
        assert_eq!(harness.get("a"), "1");
        assert_eq!(harness.get("b"), "Missing");
        harness.app.client.wait(b"a", 7);
        let read = |harness: &mut Harness| {
            harness.end_of(7, |client, context| client.read(context, b"a", 7).unwrap())
        };
        // It is asked before the server says that it does not track.
        assert_eq!(read(&mut harness), "1");
        let status = harness.app.client.status();
        assert_eq!(status.tracking, Tracking::Refused);
        let reason = status.tracking_reason.unwrap();
        assert!(reason.starts_with("ERR unknown command"), "{reason}");
        // Reads go on, and those for waits as well.
        other.ask("SET a 2");
        assert_eq!(read(&mut harness), "2");
    });
}

#[test]
fn a_user_without_the_right_to_track_reads() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let mut other = server.other();
        other.ask("ACL SETUSER u on >p ~* +@all -client");
        let mut harness = Harness::new(&server, with_user("u", "p"));
        harness.app.client.wait(b"a", 7);
        // It is asked before the server says that it does not track.
        let read = harness.end_of(8, |client, context| client.read(context, b"a", 8).unwrap());
        assert_eq!(read, "Missing");
        assert_eq!(harness.app.client.status().tracking, Tracking::Refused);
        let status = harness.app.client.status();
        assert!(
            status.tracking_reason.unwrap().starts_with("NOPERM"),
            "{status:?}"
        );
        other.ask("SET a 1");
        let read = harness.end_of(8, |client, context| client.read(context, b"a", 8).unwrap());
        assert_eq!(read, "1");
    });
}

#[test]
fn the_rights_that_are_documented_are_enough() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let mut other = server.other();
        other.ask("ACL SETUSER u on >p ~* +client|tracking +hello +get +pttl +ping +set +del");
        let mut harness = Harness::new(&server, with_user("u", "p"));
        harness.wait("a", 7);
        other.ask("SET a 1");
        harness.turn_until_last(7, "1");
        assert_eq!(harness.app.client.take_error_reply(), None);
    });
}

#[test]
fn a_value_of_another_type_is_missing_and_counted() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options()));
        other.ask("LPUSH a x");
        assert_eq!(harness.get("a"), "Missing");
        harness.wait("a", 7);
        assert_eq!(
            harness
                .metrics
                .unusable_values
                .of(UnusableValue::WrongType)
                .value(),
            2
        );
        other.ask("SET a 1");
        harness.turn_until_last(7, "1");
    });
}

#[test]
fn a_value_over_the_limit_fails_alone() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let options = ClientOptions {
            value_bytes_max: 1000,
            ..options()
        };
        let (mut other, mut harness) = (server.other(), Harness::new(&server, options));
        harness.wait("a", 7);
        harness.wait("b", 8);
        other.ask(&format!("SET a {}", "x".repeat(300_000)));
        harness.turn_until_last(7, "Failed(TooLarge)");
        assert_eq!(harness.get("a"), "Failed(TooLarge)");
        assert_eq!(
            harness
                .metrics
                .unusable_values
                .of(UnusableValue::TooLarge)
                .value(),
            2
        );
        other.ask("SET b 1");
        harness.turn_until_last(8, "1");
        other.ask("SET a 1");
        harness.turn_until_last(7, "1");
        assert_eq!(harness.app.client.status().connects, 1);
    });
}

#[test]
fn a_value_over_the_limit_is_read_again_when_its_lifetime_is_over() {
    let is_over = AtomicBool::new(false);
    let server = Fake::start(move |words, _| match words {
        "PTTL a" => ":50\r\n".to_owned(),
        "GET a" if is_over.swap(true, Ordering::SeqCst) => "_\r\n".to_owned(),
        "GET a" => bulk(&"x".repeat(300_000)),
        _ => greeted(words, "master").unwrap(),
    });
    let options = ClientOptions {
        value_bytes_max: 1000,
        ..options()
    };
    let mut harness = Harness::of(Endpoint::Tcp(server.address), options);
    harness.wait("a", 7);
    assert_eq!(harness.app.last(7), Some("Failed(TooLarge)"));
    // The server announces nothing.
    harness.turn_until_last(7, "Missing");
}

#[test]
fn a_full_server_refuses_writes_in_its_own_words() {
    with_each(|program| {
        let server = Server::start(program, &["--maxmemory", "1"]);
        let mut harness = Harness::new(&server, options());
        let options = dwell_redis::SetOptions::default();
        let set = harness.end_of(2, |client, context| {
            client.set(context, b"a", b"1", options, 2).unwrap();
        });
        assert_eq!(set, "Failed(Full)");
        let reply = harness.app.client.take_error_reply().unwrap();
        assert!(reply.starts_with("OOM command not allowed"), "{reply}");
        assert_eq!(harness.get("a"), "Missing");
    });
}

#[test]
fn a_database_that_is_not_there_is_a_refusal() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let options = ClientOptions {
            database: 99,
            ..options()
        };
        let mut harness = Harness::new(&server, options);
        assert_eq!(harness.get("a"), "Failed(Refused)");
        let status = harness.app.client.status();
        assert!(status.reason.unwrap().contains("DB index"), "{status:?}");
    });
}

#[test]
fn a_read_that_a_busy_server_refused_is_made_when_it_is_free() {
    with_each(|program| {
        let server = Server::start(program, &["--lua-time-limit", "1"]);
        let mut harness = Harness::new(&server, options());
        harness.wait("a", 7);
        let (mut script, mut other) = (server.other(), server.other());
        other.ask("SET a 1");
        script.send("EVAL while(true)do\nend 0");
        while !other.ask("PING").starts_with("-BUSY") {}
        harness.app.client.wait(b"b", 8);
        harness.turn_until(|app| app.count(8) > 0);
        assert_eq!(harness.app.last(8), Some("Failed(NotReady)"));
        assert_eq!(other.ask("SCRIPT KILL"), "OK");
        assert!(script.reply().starts_with("-ERR"));
        // The connection is never silent.
        harness.flood_until("c", |app| app.last(8) == Some("Missing"));
        harness.turn_until_last(7, "1");
        other.ask("SET b 2");
        harness.turn_until_last(8, "2");
    });
}

#[test]
fn a_server_that_refuses_every_read_is_tried_by_few() {
    with_each(|program| {
        let server = Server::start(program, &["--lua-time-limit", "1"]);
        let mut harness = Harness::new(&server, options());
        let (mut script, mut other) = (server.other(), server.other());
        for tag in 0..MANY {
            harness.app.client.wait(format!("k{tag}").as_bytes(), tag);
        }
        harness.turn_until(|app| (0..MANY).all(|tag| app.count(tag) == 1));
        script.send("EVAL while(true)do\nend 0");
        while !other.ask("PING").starts_with("-BUSY") {}
        harness.app.client.sweep(harness.event_loop.context());
        let refused = |app: &crate::harness::App| {
            let failed = |tag: &u64| app.last(*tag) == Some("Failed(NotReady)");
            (0..MANY).filter(failed).count()
        };
        let before = harness.metrics.rereads.value();
        harness.turn_until(|app| refused(app) > 0);
        let first = harness.metrics.rereads.value() - before;
        for _ in 0..20 {
            harness.turn();
        }
        // Each pause is followed by 16 reads at most.
        let reads = harness.metrics.rereads.value() - before - first;
        assert!(reads <= 20 * 16, "{reads} after {first}");
        assert_eq!(other.ask("SCRIPT KILL"), "OK");
        harness.turn_until(|app| refused(app) == 0);
    });
}

const MANY: u64 = 3_000;

#[test]
fn a_key_that_the_acl_hides_is_waited_for_until_it_is_shown() {
    with_each(|program| {
        let server = Server::start(program, &[]);
        let mut other = server.other();
        other.ask("ACL SETUSER u on >p ~open* +@all");
        let mut harness = Harness::new(&server, with_user("u", "p"));
        harness.wait("secret", 7);
        assert_eq!(harness.app.last(7), Some("Failed(Denied)"));
        harness.wait("open", 8);
        other.ask("SET secret 1");
        other.ask("SET open 1");
        harness.turn_until_last(8, "1");
        assert_eq!(harness.app.last(7), Some("Failed(Denied)"));
        assert_eq!(harness.metrics.armed_keys.value(), 1);
        other.ask("ACL SETUSER u ~*");
        harness.flood_until("c", |app| app.last(7) == Some("1"));
    });
}

#[test]
fn requests_for_a_key_that_is_refused_do_not_put_off_its_waits() {
    let may_read = Arc::new(AtomicBool::new(false));
    let is_allowed = Arc::clone(&may_read);
    let server = Fake::start(move |words, _| {
        greeted(words, "master").unwrap_or_else(|| {
            if is_allowed.load(Ordering::SeqCst) {
                bulk("value")
            } else {
                "-NOPERM no\r\n".to_owned()
            }
        })
    });
    let mut harness = Harness::of(Endpoint::Tcp(server.address), options());
    harness.wait("a", 7);
    for _ in 0..20 {
        let ended = harness.end_of(1, |client, context| client.read(context, b"a", 1).unwrap());
        assert_eq!(ended, "Failed(Denied)");
    }
    may_read.store(true, Ordering::SeqCst);
    harness.turn_until_last(7, "value");
}

#[test]
fn waits_read_a_key_that_is_refused_in_their_own_time_while_requests_come() {
    let server = Fake::start(|words, _| {
        greeted(words, "master").unwrap_or_else(|| "-NOPERM no\r\n".to_owned())
    });
    let mut harness = Harness::of(Endpoint::Tcp(server.address), options());
    harness.app.client.wait(b"a", 7);
    harness.turn_until_last(7, "Failed(Denied)");
    let (before, end) = (harness.metrics.rereads.value(), Instant::now() + PATIENCE);
    // A request is refused far more often than the waits read.
    while harness.metrics.rereads.value() < before + 3 {
        assert!(Instant::now() < end, "requests put the reads off");
        let ended = harness.end_of(1, |client, context| client.read(context, b"a", 1).unwrap());
        assert_eq!(ended, "Failed(Denied)");
        harness.turn();
    }
}

#[test]
fn what_a_request_can_read_is_told_to_waits_whose_own_read_was_refused() {
    let may_read = Arc::new(AtomicBool::new(false));
    let is_allowed = Arc::clone(&may_read);
    let server = Fake::start(move |words, _| {
        greeted(words, "master").unwrap_or_else(|| {
            if is_allowed.load(Ordering::SeqCst) {
                bulk("value")
            } else {
                "-NOPERM no\r\n".to_owned()
            }
        })
    });
    let mut harness = Harness::of(Endpoint::Tcp(server.address), options());
    harness.app.client.wait(b"a", 7);
    harness.turn_until_last(7, "Failed(Denied)");
    may_read.store(true, Ordering::SeqCst);
    let ended = harness.end_of(1, |client, context| client.read(context, b"a", 1).unwrap());
    assert_eq!(ended, "value");
    assert_eq!(harness.app.last(7), Some("value"), "with the same reply");
}
