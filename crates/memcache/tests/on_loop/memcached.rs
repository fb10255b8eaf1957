//! The real memcached, from the Debian package.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Instant;

use dwell_memcache::on_loop::{ClientOptions, Failure, State};

use dwell_testkit::Memcached;

use crate::harness::{End, Harness, PATIENCE, hit, options, patient, status};

/// Sends a command on a connection of its own and returns the first line of the answer.
fn command(server: &Memcached, command: &str) -> String {
    ask(&mut server.connect(), command)
}

fn set(server: &Memcached, key: &str, flags: u32, value: &str) {
    let stored = format!("set {key} {flags} 0 {}\r\n{value}\r\n", value.len());
    assert_eq!(command(server, &stored), "STORED\r\n");
}

fn client(server: &Memcached, options: ClientOptions) -> Harness {
    let mut harness = Harness::new(&[server.address()], options);
    harness.turn_until(|app| status(app).state == State::Up);
    harness
}

/// Sends a command and returns the first line of the answer.
fn ask(stream: &mut TcpStream, command: &str) -> String {
    stream.write_all(command.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn hits_misses_and_versions() {
    let server = Memcached::start();
    let mut harness = client(&server, patient());
    set(&server, "/poll/alice", 5, "hello");
    set(&server, "empty", 0, "");
    harness.get("/poll/alice", 0);
    harness.get("nobody", 1);
    harness.get("empty", 2);
    let ends = harness.wait_for_ends(3);
    let End::Hit(value, 5, cas_unique) = &ends[0] else {
        panic!("{ends:?}")
    };
    assert_eq!((value.as_slice(), &ends[1]), (&b"hello"[..], &End::Miss));
    assert!(matches!(&ends[2], End::Hit(value, 0, _) if value.is_empty()));

    harness.version("nobody", 0);
    harness.version("/poll/alice", 1);
    harness.version("neither", 2);
    let expected = [End::Miss, End::Version(*cas_unique), End::Miss];
    assert_eq!(harness.wait_for_ends(3), expected);

    set(&server, "/poll/alice", 5, "hello");
    harness.version("/poll/alice", 1);
    let ends = harness.wait_for_ends(1);
    assert!(
        matches!(ends[0], End::Version(later) if later > *cas_unique),
        "{ends:?}"
    );
}

#[test]
fn thousands_of_keys_in_a_turn_and_large_values() {
    let server = Memcached::start();
    let mut harness = client(&server, patient());
    let large = "v".repeat(1_000_000);
    set(&server, "large", 1, &large);
    for index in (0..5000).step_by(500) {
        set(&server, &format!("key{index}"), index, "x");
    }
    harness.get("large", 5000);
    for index in 0..5000_u32 {
        harness.get(&format!("key{index}"), u64::from(index));
    }
    for ended in harness.wait_for(5001) {
        match (ended.tag, ended.end) {
            (5000, End::Hit(value, 1, _)) => assert_eq!(value, large.as_bytes()),
            (tag, End::Hit(value, flags, _)) => {
                assert_eq!((u64::from(flags), value.as_slice()), (tag, &b"x"[..]));
            }
            (tag, end) => assert!(end == End::Miss && tag % 500 != 0, "{tag} {end:?}"),
        }
    }
    for index in 0..5000_u32 {
        harness.version(&format!("key{index}"), u64::from(index));
    }
    let found = harness.wait_for(5000);
    assert!(
        found
            .iter()
            .all(|ended| (ended.tag % 500 == 0) == (ended.end != End::Miss))
    );
}

#[test]
fn a_stopped_server_is_given_up_left_alone_and_found_again() {
    let server = Memcached::start();
    let mut harness = client(
        &server,
        ClientOptions {
            failures_max: 2,
            ..options()
        },
    );
    set(&server, "a", 0, "x");
    harness.get("a", 0);
    assert!(matches!(harness.wait_for_ends(1)[0], End::Hit(..)));

    server.stop();
    let begin = Instant::now();
    harness.get("a", 0);
    assert_eq!(harness.wait_for_ends(1), [End::Failed(Failure::Timeout)]);
    assert!(begin.elapsed() < PATIENCE / 2);
    // The system goes on accepting for a stopped process; only the probe tells.
    harness.turn_until(|app| status(app).state == State::Broken);
    harness.get("a", 0);
    assert_eq!(
        harness.wait_for_ends(1),
        [End::Failed(Failure::Unavailable)]
    );

    server.cont();
    harness.turn_until(|app| status(app).state == State::Up);
    harness.get("a", 0);
    assert!(
        matches!(harness.wait_for_ends(1)[0], End::Hit(..)),
        "no late answer is taken for it"
    );
}

#[test]
fn a_killed_server_is_found_again_when_it_is_back() {
    let mut server = Memcached::start();
    let mut harness = client(&server, options());
    set(&server, "a", 0, "before");
    harness.get("a", 0);
    let epoch = harness.wait_for(1)[0].epoch;
    server.kill();
    harness.turn_until(|app| status(app).state == State::Broken);
    harness.get("a", 0);
    assert_eq!(
        harness.wait_for_ends(1),
        [End::Failed(Failure::Unavailable)]
    );

    server.restart();
    set(&server, "a", 0, "after");
    harness.turn_until(|app| status(app).state == State::Up);
    harness.get("a", 0);
    let ended = harness.wait_for(1);
    assert!(
        matches!(&ended[0].end, End::Hit(value, 0, _) if value == b"after"),
        "{ended:?}"
    );
    assert!(ended[0].epoch > epoch);
}

#[test]
fn a_full_server_is_not_connected() {
    let server = Memcached::start_with(&["-t", "1", "-c", "30"]);
    let others = server.fill();
    let mut harness = Harness::new(&[server.address()], options());
    harness.turn_until(|app| status(app).state == State::Broken);
    assert_eq!(
        harness.status().last_failure,
        Some(Failure::TooManyConnections)
    );
    drop(others);
    harness.turn_until(|app| status(app).state == State::Up);
    harness.get("a", 0);
    assert_eq!(harness.wait_for_ends(1), [End::Miss]);
}

/// Cas uniques off (`-C`): every one is 0, and that is an answer.
#[test]
fn a_server_without_cas_uniques() {
    let server = Memcached::start_with(&["-C"]);
    set(&server, "a", 0, "x");
    let mut harness = client(&server, patient());
    harness.get("a", 0);
    harness.version("a", 1);
    assert_eq!(harness.wait_for_ends(2), [hit(b"x", 0, 0), End::Version(0)]);
}
