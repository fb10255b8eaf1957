//! Servers that have another address.

use dwell_memcache::on_loop::{ClientOptions, Failure, State, Version};
use dwell_proto::memcache::encode::request::StoreOptions;

use crate::harness::{End, Harness, Peer, hit, listen, options, patient, status};

/// A turn in which the client hears of addresses.
fn turn_to(harness: &mut Harness, addresses: &[std::net::SocketAddr]) {
    let context = harness.event_loop.context();
    harness.app.client.turn_to(context, addresses);
    harness.turn();
}

#[test]
fn what_was_asked_is_answered_where_it_was_and_the_rest_where_the_server_is() {
    let (mut harness, _before, mut old) = Harness::connected(patient());
    let (listener, address) = listen();
    harness.get("a", 0);
    harness.turn();
    old.expect("gets a\r\n");
    turn_to(&mut harness, &[address]);
    assert_eq!(harness.status().address, address);
    harness.get("b", 1);
    harness.turn();
    old.send("VALUE a 0 1 1\r\nx\r\nEND\r\n");
    assert_eq!(harness.wait_for_ends(1), [hit(b"x", 0, 1)]);
    let mut new = Peer::accept_while(&listener, &mut harness);
    harness.turn_until(|app| status(app).state == State::Up);
    new.answer_probe();
    harness.turn();
    new.expect("gets b\r\n");
    new.send("END\r\n");
    assert_eq!(harness.wait_for_ends(1), [End::Miss]);
    let statistics = harness.status().statistics;
    assert_eq!((statistics.connects, statistics.failures), (2, 0));
    assert_eq!(statistics.short_circuited, 0);
}

#[test]
fn a_version_of_the_old_address_is_not_compared_at_the_new_one() {
    let (mut harness, _before, mut old) = Harness::connected(patient());
    let (listener, address) = listen();
    for (key, tag) in [("a", 0), ("b", 1)] {
        harness.get(key, tag);
    }
    harness.turn();
    old.expect("gets a b\r\n");
    old.send("VALUE a 0 1 7\r\nx\r\nEND\r\n");
    let hit = harness.wait_for(2).remove(0);
    let version = Version {
        epoch: hit.epoch,
        cas_unique: 7,
    };
    // One is sent, and answered, where the version is from.
    cas(&mut harness, version, 2);
    harness.turn();
    old.expect("cas a 0 0 1 7\r\ny\r\n");
    turn_to(&mut harness, &[address]);
    // The others would be sent to the server at the new address.
    cas(&mut harness, version, 3);
    let client = &mut harness.app.client;
    client.delete_version(b"a", version, 4).unwrap();
    harness.get("b", 5);
    harness.turn();
    old.send("STORED\r\n");
    let ended = harness.wait_for(3);
    assert_eq!(ended[0].end, End::Answer("Stored(Stored)".to_owned()));
    for late in &ended[1..] {
        assert_eq!(late.end, End::Failed(Failure::Reconnected));
    }
    let mut new = Peer::accept_while(&listener, &mut harness);
    harness.turn_until(|app| status(app).state == State::Up);
    new.answer_probe();
    harness.turn();
    new.expect("gets b\r\n");
    new.send("END\r\n");
    assert_eq!(harness.wait_for_ends(1), [End::Miss]);
    let failures = harness.status().failures_in_row;
    assert_eq!(failures, 0, "the server has not failed");
}

/// Stores a value under the key `a` if it has this version.
fn cas(harness: &mut Harness, version: Version, tag: u64) {
    let (client, options) = (&mut harness.app.client, StoreOptions::default());
    client.cas(b"a", b"y", version, options, tag).unwrap();
}

#[test]
fn an_idle_connection_is_left_at_once_and_one_to_the_same_address_stays() {
    let (mut harness, before, mut old) = Harness::connected(patient());
    harness.get("a", 0);
    harness.turn();
    old.expect("gets a\r\n");
    old.send("END\r\n");
    harness.wait_for(1);
    turn_to(&mut harness, &[before.local_addr().unwrap()]);
    assert_eq!(harness.status().state, State::Up, "it is where it was");
    let (listener, address) = listen();
    turn_to(&mut harness, &[address]);
    let mut new = Peer::accept_while(&listener, &mut harness);
    harness.turn_until(|app| status(app).state == State::Up);
    new.answer_probe();
    assert_eq!(harness.status().epoch, 2);
}

#[test]
fn a_server_that_does_not_answer_any_more_holds_nothing_up_for_long() {
    let (mut harness, _before, mut old) = Harness::connected(options());
    let (listener, address) = listen();
    harness.get("a", 0);
    harness.turn();
    old.expect("gets a\r\n");
    turn_to(&mut harness, &[address]);
    assert_eq!(harness.wait_for_ends(1), [End::Failed(Failure::Timeout)]);
    let failures = harness.status().failures_in_row;
    assert_eq!(failures, 0, "the new address has not failed");
    assert_eq!(harness.status().state, State::Connecting, "at once");
    // What is asked meanwhile waits for the new connection.
    harness.get("b", 1);
    harness.turn();
    let mut new = Peer::accept_while(&listener, &mut harness);
    harness.turn_until(|app| status(app).state == State::Up);
    new.answer_probe();
    harness.turn();
    new.expect("gets b\r\n");
}

#[test]
fn where_nobody_listens_the_new_address_is_tried_at_once() {
    let (gone, nowhere) = listen();
    drop(gone);
    let mut harness = Harness::new(
        &[nowhere],
        ClientOptions {
            reconnect_delay_min: std::time::Duration::from_secs(60),
            reconnect_delay_max: std::time::Duration::from_secs(60),
            ..patient()
        },
    );
    harness.turn_until(|app| status(app).state == State::Down);
    let (listener, address) = listen();
    turn_to(&mut harness, &[address]);
    let mut new = Peer::accept_while(&listener, &mut harness);
    harness.turn_until(|app| status(app).state == State::Up);
    new.answer_probe();
}
