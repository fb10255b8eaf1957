//! How streams end: each once, and told.

use crate::support::{Fixture, Seen, Taking};
use dwell_engine::{StreamEnd, StreamLimits};
use dwell_testkit::Rig;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

#[test]
fn a_close_sends_what_was_written_first() {
    let mut fixture = Fixture::new(Taking::AndClose, StreamLimits::default());
    let (mut peer, _) = fixture.peer();
    peer.write_all(b"x").unwrap();
    fixture.until("it ends", |app| app.end().is_some());
    let mut received = Vec::new();
    peer.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"bye");
    assert_eq!(fixture.server.app.end(), Some(StreamEnd::Closed));
    assert_eq!(fixture.server.streams.connections(), 0);
}

#[test]
fn a_close_from_outside_flushes_a_long_queue() {
    let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
    let (mut peer, token) = fixture.peer();
    let body = vec![b'q'; 8 << 20];
    fixture.with(token, |stream| {
        assert!(stream.write(&body));
        assert!(stream.queued_bytes() > 0);
    });
    let context = fixture.event_loop.context();
    fixture.server.streams.close(context, token);
    assert_eq!(fixture.receive(&mut peer, body.len()), body);
    assert_eq!(fixture.receive(&mut peer, 1), b"");
    fixture.until("it ends", |app| app.end() == Some(StreamEnd::Closed));
}

#[test]
fn an_abort_sends_nothing_more() {
    let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
    let (mut peer, token) = fixture.peer();
    let body = vec![b'q'; 8 << 20];
    fixture.with(token, |stream| stream.write(&body));
    let context = fixture.event_loop.context();
    fixture.server.streams.abort(context, token);
    fixture.until("it ends", |app| app.end() == Some(StreamEnd::Aborted));
    let mut received = Vec::new();
    let error = peer.read_to_end(&mut received).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(received.len() < body.len());
}

#[test]
fn what_is_lost_does_not_look_whole() {
    for is_lost in [false, true] {
        let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
        let (mut peer, token) = fixture.peer();
        let body = vec![b'q'; if is_lost { 8 << 20 } else { 1 }];
        fixture.with(token, |stream| stream.write(&body));
        let Fixture {
            event_loop, server, ..
        } = &mut fixture;
        server
            .streams
            .close_all(event_loop.context(), &mut server.app);
        let mut received = Vec::new();
        let ended = peer
            .read_to_end(&mut received)
            .map_err(|error| error.kind());
        if is_lost {
            assert_eq!(ended, Err(ErrorKind::ConnectionReset));
        } else {
            assert_eq!((ended, received), (Ok(1), body));
        }
    }
}

#[test]
fn a_peer_that_ends_its_side_can_still_be_answered() {
    let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
    fixture.server.app.stays_open = true;
    let (mut peer, token) = fixture.peer();
    peer.write_all(b"last words").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    fixture.until("its end is told", |app| {
        app.seen.contains(&Seen::PeerClosed)
    });
    assert_eq!(fixture.server.app.received(), b"last words");
    fixture.with(token, |stream| {
        assert!(stream.write(b", answered"));
        stream.close();
    });
    fixture.until("it ends", |app| app.end() == Some(StreamEnd::Closed));
    let mut received = String::new();
    peer.read_to_string(&mut received).unwrap();
    assert_eq!(received, "last words, answered");
}

#[test]
fn a_reset_is_an_end() {
    let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
    let (peer, _) = fixture.peer();
    socket2::SockRef::from(&peer)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(peer);
    fixture.until("it ends", |app| app.end().is_some());
    let end = fixture.server.app.end().unwrap();
    assert_eq!(end, StreamEnd::Failed(ErrorKind::ConnectionReset));
    assert!(!end.is_orderly());
}

#[test]
fn a_peer_that_reads_nothing_is_given_up() {
    let limits = StreamLimits {
        write_timeout: Duration::from_millis(50),
        idle_timeout: Some(Duration::from_secs(60)),
        ..StreamLimits::default()
    };
    let mut fixture = Fixture::new(Taking::Echo, limits);
    let (_peer, token) = fixture.peer();
    let begun = Instant::now();
    fixture.with(token, |stream| stream.write(&vec![0; 16 << 20]));
    fixture.until("it ends", |app| app.end().is_some());
    assert_eq!(fixture.server.app.end(), Some(StreamEnd::WriteTimeout));
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

#[test]
fn silence_is_bounded_where_that_is_wanted() {
    let limits = StreamLimits {
        idle_timeout: Some(Duration::from_millis(50)),
        ..StreamLimits::default()
    };
    let mut fixture = Fixture::new(Taking::Echo, limits);
    let (mut peer, _) = fixture.peer();
    peer.write_all(b"x").unwrap();
    fixture.until("it ends", |app| app.end().is_some());
    assert_eq!(fixture.server.app.end(), Some(StreamEnd::IdleTimeout));
    let mut received = Vec::new();
    peer.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"x");
}

#[test]
fn output_begun_in_a_callback_has_its_own_deadline() {
    let limits = StreamLimits {
        write_timeout: Duration::from_millis(50),
        idle_timeout: Some(Duration::from_secs(60)),
        ..StreamLimits::default()
    };
    let mut fixture = Fixture::new(Taking::AndFlood, limits);
    let (mut peer, _) = fixture.peer();
    peer.write_all(b"x").unwrap();
    let begun = Instant::now();
    fixture.until("it ends", |app| app.end().is_some());
    assert_eq!(fixture.server.app.end(), Some(StreamEnd::WriteTimeout));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_stream_that_is_written_to_is_not_idle() {
    let limits = StreamLimits {
        idle_timeout: Some(Duration::from_millis(400)),
        ..StreamLimits::default()
    };
    let mut fixture = Fixture::new(Taking::Echo, limits);
    let (_peer, token) = fixture.peer();
    let mut last = Instant::now();
    let begun = last;
    while begun.elapsed() < Duration::from_secs(1) {
        fixture.turn_for(Duration::from_millis(20));
        if fixture.with(token, |stream| stream.write(b"x")) == Some(true) {
            last = Instant::now();
        }
        assert_eq!(fixture.server.app.end(), None);
    }
    fixture.until("it ends", |app| app.end().is_some());
    assert_eq!(fixture.server.app.end(), Some(StreamEnd::IdleTimeout));
    assert!(last.elapsed() >= Duration::from_millis(390));
}

#[test]
fn a_reset_is_told_of_a_stream_that_is_paused() {
    for sends_before in [false, true] {
        let mut fixture = Fixture::new(Taking::AndPause, StreamLimits::default());
        let (mut peer, token) = fixture.peer();
        if sends_before {
            peer.write_all(b"what makes it pause").unwrap();
        } else {
            fixture.with(token, |stream| {
                stream.pause();
            });
        }
        socket2::SockRef::from(&peer)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(peer);
        fixture.until("it ends", |app| app.end().is_some());
        let end = StreamEnd::Failed(ErrorKind::ConnectionReset);
        assert_eq!(fixture.server.app.end(), Some(end));
    }
}

#[test]
fn the_end_of_a_paused_stream_waits_until_it_is_read() {
    let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
    let (peer, token) = fixture.peer();
    fixture.with(token, |stream| {
        stream.pause();
    });
    drop(peer);
    for _ in 0..10 {
        fixture.turn_for(Duration::from_millis(1));
    }
    assert_eq!(fixture.server.app.end(), None);
    fixture.with(token, |stream| {
        stream.resume();
    });
    fixture.until("it ends", |app| app.end() == Some(StreamEnd::Closed));
}

#[test]
fn news_of_a_stream_that_is_gone_finds_nobody() {
    let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
    let (peer, token) = fixture.peer();
    drop(peer);
    fixture.until("it ends", |app| app.end().is_some());
    let context = fixture.event_loop.context();
    assert!(!fixture.server.streams.write(context, token, b"x"));
    fixture.server.streams.close(context, token);
    fixture.server.streams.pause(context, token);
    fixture.server.streams.resume(context, token);
    fixture.server.streams.abort(context, token);
    assert_eq!(fixture.with(token, |_| ()), None);
    fixture.turn_for(Duration::ZERO);
    let ends = fixture.server.app.seen.iter();
    assert_eq!(
        ends.filter(|seen| matches!(seen, Seen::Closed(_))).count(),
        1
    );
}

#[test]
fn closing_all_tells_each_end_and_frees_the_port() {
    let mut fixture = Fixture::new(Taking::Echo, StreamLimits::default());
    let peers: Vec<_> = (0..3).map(|_| fixture.peer().0).collect();
    let Fixture {
        event_loop, server, ..
    } = &mut fixture;
    server
        .streams
        .close_all(event_loop.context(), &mut server.app);
    assert_eq!(server.streams.connections(), 0);
    let ends = server.app.seen.iter();
    let ends = ends.filter(|seen| **seen == Seen::Closed(StreamEnd::Aborted));
    assert_eq!(ends.count(), peers.len());
    std::net::TcpListener::bind(fixture.address).unwrap();
}
