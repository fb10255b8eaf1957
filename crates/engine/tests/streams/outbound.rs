//! Streams that are begun here.

use crate::support::{Fixture, Seen, Taking};
use dwell_engine::{StreamEnd, StreamLimits};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;

#[test]
fn a_connect_is_told_and_carries_both_ways() {
    let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let context = fixture.event_loop.context();
    let token = fixture.server.streams.connect(context, address, 5).unwrap();
    let early = fixture.with(token, |stream| {
        assert!(stream.is_connecting());
        stream.write(b"too early")
    });
    assert_eq!(early, Some(false));
    fixture.until("it is connected", |app| app.seen.contains(&Seen::Connected));
    let (mut peer, _) = listener.accept().unwrap();
    fixture.with(token, |stream| {
        assert_eq!(stream.peer_address(), Some(address));
        assert_eq!(stream.tag(), 5);
        assert!(stream.write(b"ping"));
    });
    let mut received = [0; 4];
    peer.read_exact(&mut received).unwrap();
    peer.write_all(b"pong").unwrap();
    fixture.until("the answer comes", |app| app.received() == b"pong");
}

#[test]
fn a_connect_that_is_refused_ends_once() {
    let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let context = fixture.event_loop.context();
    fixture.server.streams.connect(context, address, 5).unwrap();
    fixture.until("it ends", |app| app.end().is_some());
    let end = StreamEnd::ConnectFailed(ErrorKind::ConnectionRefused);
    assert_eq!(fixture.server.app.seen, [Seen::Closed(end)]);
    assert_eq!(fixture.server.streams.connections(), 0);
}

#[test]
fn a_connect_can_be_given_up() {
    let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let context = fixture.event_loop.context();
    let token = fixture.server.streams.connect(context, address, 5).unwrap();
    fixture.with(token, |stream| {
        stream.close();
    });
    fixture.until("it ends", |app| app.end().is_some());
    assert_eq!(fixture.server.app.end(), Some(StreamEnd::Aborted));
}
