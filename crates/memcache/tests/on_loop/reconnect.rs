use std::time::{Duration, Instant};

use dwell_memcache::on_loop::{ClientOptions, Failure, State};

use crate::harness::{End, Harness, Peer, hit, listen, options, patient, status};

const UNAVAILABLE: End = End::Failed(Failure::Unavailable);

#[test]
fn an_idle_connection_that_ends_is_made_again() {
    let (mut harness, listener, mut peer) = Harness::connected(ClientOptions {
        reconnect_delay_min: Duration::from_millis(500),
        reconnect_delay_max: Duration::from_millis(500),
        ..patient()
    });
    harness.get("a", 0);
    harness.turn();
    peer.expect("gets a\r\n");
    peer.send("END\r\n");
    assert_eq!(harness.wait_for(1)[0].epoch, 1);
    drop(peer);
    harness.turn_until(|app| status(app).state == State::Down);
    harness.get("a", 0);
    assert_eq!(
        harness.wait_for_ends(1),
        [UNAVAILABLE],
        "not connected: at once"
    );
    let mut peer = Peer::accept_while(&listener, &mut harness);
    harness.turn_until(|app| status(app).state == State::Up);
    peer.answer_probe();
    harness.get("a", 0);
    harness.turn();
    peer.expect("gets a\r\n");
    peer.send("VALUE a 0 1 1\r\nx\r\nEND\r\n");
    let ended = harness.wait_for(1);
    assert_eq!((ended[0].epoch, &ended[0].end), (2, &hit(b"x", 0, 1)));
    let statistics = harness.status().statistics;
    assert_eq!((statistics.connects, statistics.failures), (2, 0));
    assert_eq!((statistics.operations, statistics.short_circuited), (3, 1));
}

/// Fails the connection by a reply that is none, so often.
fn fail(harness: &mut Harness, listener: &std::net::TcpListener, times: u32) {
    for _ in 0..times {
        let mut peer = Peer::accept_while(listener, harness);
        peer.expect_while("version\r\n", harness);
        let before = harness.status().failures_in_row;
        peer.send("nonsense\r\n");
        harness.turn_until(|app| status(app).failures_in_row > before);
    }
}

#[test]
fn after_failures_in_a_row_only_a_probe_is_sent() {
    let (listener, address) = listen();
    let mut harness = Harness::new(
        &[address],
        ClientOptions {
            failures_max: 3,
            ..patient()
        },
    );
    fail(&mut harness, &listener, 2);
    assert_ne!(harness.status().state, State::Broken);
    fail(&mut harness, &listener, 1);
    assert_eq!(harness.status().state, State::Broken);

    // Connected again, but not proven: operations still fail at once.
    let mut peer = Peer::accept_while(&listener, &mut harness);
    peer.expect_while("version\r\n", &mut harness);
    assert_eq!(harness.status().state, State::Broken);
    harness.get("a", 0);
    assert_eq!(harness.wait_for_ends(1), [UNAVAILABLE]);
    assert_eq!(harness.status().statistics.short_circuited, 1);

    peer.send("VERSION 1\r\n");
    harness.turn_until(|app| status(app).state == State::Up);
    harness.get("a", 0);
    harness.turn();
    peer.expect("gets a\r\n");
    assert_eq!(
        harness.status().failures_in_row,
        3,
        "a probe does not end the row"
    );
    peer.send("END\r\n");
    assert_eq!(harness.wait_for_ends(1), [End::Miss]);
    assert_eq!(harness.status().failures_in_row, 0);
}

#[test]
fn a_server_that_fails_after_its_probe_is_left_alone_at_once() {
    let (listener, address) = listen();
    let mut harness = Harness::new(
        &[address],
        ClientOptions {
            failures_max: 2,
            ..patient()
        },
    );
    fail(&mut harness, &listener, 2);
    let mut peer = Peer::accept_while(&listener, &mut harness);
    peer.expect_while("version\r\n", &mut harness);
    peer.send("VERSION 1\r\n");
    harness.turn_until(|app| status(app).state == State::Up);
    harness.get("a", 0);
    harness.turn();
    drop(peer);
    assert_eq!(harness.wait_for_ends(1), [End::Failed(Failure::Closed)]);
    assert_eq!(harness.status().state, State::Broken);
}

#[test]
fn attempts_on_a_port_where_nobody_listens_are_spaced() {
    let (listener, address) = listen();
    drop(listener);
    let mut harness = Harness::new(&[address], options());
    let begin = Instant::now();
    harness.turn_until(|app| status(app).statistics.failures >= 6);
    // 20, 40 and then 80 ms at most, each at least half of that.
    assert!(begin.elapsed() >= Duration::from_millis(10 + 20 + 40 + 40 + 40));
    let status = harness.status();
    assert_eq!(
        (status.state, status.last_failure),
        (State::Broken, Some(Failure::Connect))
    );
    assert_eq!((status.epoch, status.statistics.connects), (0, 0));
}

#[test]
fn a_server_that_has_too_many_connections_is_not_connected() {
    let (listener, address) = listen();
    let mut harness = Harness::new(&[address], patient());
    harness.get("a", 0);
    harness.turn();
    let mut peer = Peer::accept_while(&listener, &mut harness);
    peer.send("ERROR Too many open connections\r\n");
    drop(peer);
    let ended = harness.wait_for_ends(1);
    assert!(
        matches!(
            ended[0],
            End::Failed(Failure::TooManyConnections | Failure::Closed)
        ),
        "{ended:?}"
    );
    assert_eq!(harness.status().failures_in_row, 1);
}

#[test]
fn one_server_that_fails_does_not_hurt_the_others() {
    let (first, first_address) = listen();
    let (second, second_address) = listen();
    let mut harness = Harness::new(&[first_address, second_address], patient());
    let mut peers = [
        Peer::accept_while(&first, &mut harness),
        Peer::accept_while(&second, &mut harness),
    ];
    harness.turn_until(|app| {
        app.client
            .statuses()
            .all(|status| status.state == State::Up)
    });
    peers.iter_mut().for_each(Peer::answer_probe);
    let keys: Vec<String> = (0..40).map(|index| format!("key{index}")).collect();
    let mut lines = ["gets".to_owned(), "gets".to_owned()];
    let mut counts = [0, 0];
    for (tag, key) in keys.iter().enumerate() {
        harness.get(key, tag as u64);
        let server = harness.app.client.server_of(key.as_bytes());
        lines[server] += " ";
        lines[server] += key;
        counts[server] += 1;
    }
    assert!(counts[0] > 0 && counts[1] > 0);
    harness.turn();
    for (peer, line) in peers.iter_mut().zip(&lines) {
        peer.expect(&format!("{line}\r\n"));
    }
    let [failing, mut answering] = peers;
    drop(failing);
    answering.send("END\r\n");
    for ended in harness.wait_for(40) {
        let key = keys[ended.tag as usize].as_bytes();
        assert_eq!(ended.server, harness.app.client.server_of(key));
        let expected = if ended.server == 0 {
            End::Failed(Failure::Closed)
        } else {
            End::Miss
        };
        assert_eq!(ended.end, expected);
    }
    let states: Vec<_> = harness
        .app
        .client
        .statuses()
        .map(|status| status.state)
        .collect();
    assert_eq!(states, [State::Down, State::Up]);
}
