//! Servers that have another address.

use dwell_memcache::on_loop::{ClientOptions, Failure, State};

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
