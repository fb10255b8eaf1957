//! Turns: what a poll costs, what ends it, and what another loop needs to know.

use crate::support::{Client, Fixture, PATIENCE, answer, get};
use dwell_engine::manager::Manager;
use std::time::{Duration, Instant};

#[test]
fn a_poll_accepts_all_who_wait() {
    let mut fixture = Fixture::new("http", answer);
    let clients: Vec<_> = (0..100).map(|_| Client::connect(fixture.address)).collect();
    fixture.poll();
    assert_eq!(fixture.log.count("accept"), clients.len());
}

#[test]
fn a_run_is_ended_from_a_handler() {
    let mut manager = Manager::new(|_, _| {}).unwrap();
    let id = manager.listen("tcp://127.0.0.1:0").unwrap();
    let waker = manager.waker();
    std::thread::spawn(move || waker.run(id, |conn| conn.scope().stop()));
    manager.run().unwrap();
    assert!(manager.is_closed());
}

#[test]
fn another_loop_is_told_by_the_descriptor_how_long_to_wait() {
    let mut fixture = Fixture::new("http", answer);
    // A poll in the poll: what asyncio's and others' loops do.
    let mut outer = mio::Poll::new().unwrap();
    let descriptor = fixture.manager.fileno().unwrap();
    let mut source = mio::unix::SourceFd(&descriptor);
    let interest = mio::Interest::READABLE;
    let registry = outer.registry();
    registry
        .register(&mut source, mio::Token(0), interest)
        .unwrap();
    let mut events = mio::Events::with_capacity(4);
    outer.poll(&mut events, Some(Duration::ZERO)).unwrap();
    assert!(events.is_empty());
    assert_eq!(fixture.manager.wait_max().unwrap(), None);
    let (mut client, _) = (Client::connect(fixture.address), 0);
    client.send(get("/outer"));
    outer.poll(&mut events, Some(PATIENCE)).unwrap();
    assert!(!events.is_empty());
    fixture.poll();
    fixture.receive(&mut client, "you asked for /outer.");
    let wait = fixture.manager.wait_max().unwrap().unwrap();
    assert!(wait > Duration::ZERO, "the idle deadline of the client");
    let delay = Duration::from_millis(15);
    fixture.manager.timer(delay, false, |_| {}).unwrap();
    assert!(fixture.manager.wait_max().unwrap().unwrap() <= Duration::from_millis(30));
}

#[test]
fn polls_with_nothing_to_do_wait() {
    let mut fixture = Fixture::new("http", answer);
    let _clients: Vec<_> = (0..50).map(|_| fixture.client()).collect();
    let begun = Instant::now();
    let (mut polls, time) = (0, Duration::from_millis(200));
    while begun.elapsed() < time {
        fixture.manager.poll(time).unwrap();
        polls += 1;
    }
    // The wheel of deadlines is looked at now and then, long before one is due.
    assert!(polls <= 6, "{polls} polls");
}
