use std::time::{Duration, Instant};

use dwell_memcache::on_loop::{ClientOptions, Failure, State};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::harness::{End, Harness, PATIENCE, listen, options, patient, status};

const FAILED: End = End::Failed(Failure::Timeout);

#[test]
fn a_server_that_never_answers_is_given_up_in_time() {
    let (mut harness, _listener, mut peer) = Harness::connected(options());
    let begin = Instant::now();
    harness.get("a", 0);
    harness.version("b", 1);
    assert_eq!(harness.wait_for_ends(2), [FAILED, FAILED]);
    let passed = begin.elapsed();
    assert!(
        passed >= options().timeout && passed < PATIENCE / 2,
        "{passed:?}"
    );
    peer.expect_end();
    let status = harness.status();
    assert_eq!(
        (status.statistics.timeouts, status.last_failure),
        (2, Some(Failure::Timeout))
    );
    assert_ne!(status.state, State::Up);
}

/// The deadline belongs to the operation: bytes that come do not move it.
#[test]
fn a_server_that_drips_is_given_up_in_time() {
    let (mut harness, _listener, mut peer) = Harness::connected(options());
    let begin = Instant::now();
    harness.get("a", 0);
    harness.turn();
    peer.expect("gets a\r\n");
    peer.send("VALUE a 0 1000000 1\r\n");
    let mut dripped = 0;
    while harness.app.ended.is_empty() {
        assert!(begin.elapsed() < PATIENCE);
        dripped += usize::from(peer.try_send(b"x"));
        harness.turn();
    }
    assert!(dripped > 10, "{dripped} bytes came in vain");
    assert_eq!(harness.wait_for_ends(1), [FAILED]);
    let passed = begin.elapsed();
    assert!(
        passed >= options().timeout && passed < PATIENCE / 2,
        "{passed:?}"
    );
}

/// Answers to later operations do not help the oldest, and answers to the oldest help the later.
#[test]
fn the_deadline_is_that_of_the_oldest_operation() {
    const HALF: Duration = Duration::from_millis(700);
    let (mut harness, _listener, mut peer) = Harness::connected(ClientOptions {
        timeout: 2 * HALF,
        ..options()
    });
    let begin = Instant::now();
    harness.get("a", 0);
    harness.turn();
    while begin.elapsed() < HALF {
        harness
            .event_loop
            .turn(&mut harness.app, Some(Duration::from_millis(10)))
            .unwrap();
    }
    harness.get("b", 1);
    harness.turn();
    peer.send("END\r\n");
    assert_eq!(harness.wait_for_ends(1), [End::Miss]);
    assert_eq!(harness.wait_for_ends(1), [FAILED]);
    let passed = begin.elapsed();
    assert!(passed >= 3 * HALF, "b had its own time: {passed:?}");
}

#[test]
fn nothing_is_armed_while_nothing_is_owed() {
    let (mut harness, _listener, mut peer) = Harness::connected(options());
    let end = Instant::now() + PATIENCE;
    while harness.event_loop.context().armed() > 0 {
        assert!(Instant::now() < end);
        harness.turn();
    }
    harness.get("a", 0);
    harness.turn();
    assert_eq!(harness.event_loop.context().armed(), 1);
    peer.send("END\r\n");
    harness.wait_for(1);
    assert_eq!(harness.event_loop.context().armed(), 0);
}

#[test]
fn a_connection_attempt_without_an_end_is_given_up_in_time() {
    // A listener whose queue is full drops further attempts, as a dead host does.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SockAddr::from(
        "127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap(),
    ))
    .unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let mut crowd = Vec::new();
    // Long: one that is let in must not be taken for one that is not.
    let attempt = Duration::from_secs(1);
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, attempt) {
        crowd.push(stream);
        assert!(crowd.len() < 100, "the queue never fills");
    }
    let begin = Instant::now();
    // Long enough that the operation is asked for while the attempt is under way.
    let connect_timeout = Duration::from_secs(1);
    let mut harness = Harness::new(
        &[address],
        ClientOptions {
            connect_timeout,
            ..patient()
        },
    );
    harness.get("a", 0);
    assert_eq!(harness.wait_for_ends(1), [End::Failed(Failure::Connect)]);
    let passed = begin.elapsed();
    assert!(
        passed >= connect_timeout && passed < PATIENCE / 2,
        "{passed:?}"
    );
    let status = harness.status();
    assert_eq!((status.epoch, status.statistics.failures), (0, 1));
}

/// An operation that waits for a slow attempt has only its own time.
#[test]
fn operations_do_not_wait_longer_for_a_connection_than_for_an_answer() {
    let (_listener, address) = listen();
    let mut harness = Harness::new(
        &[address],
        ClientOptions {
            timeout: options().timeout,
            ..patient()
        },
    );
    let begin = Instant::now();
    harness.get("a", 0);
    assert_eq!(harness.wait_for_ends(1), [FAILED]);
    assert!(begin.elapsed() < PATIENCE / 2);
    assert_eq!(status(&harness.app).last_failure, Some(Failure::Timeout));
}
