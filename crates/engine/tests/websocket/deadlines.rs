//! Pings, pongs and silence.

use crate::support::{Answer, Fixture, Seen, frame, server_close, text};
use dwell_engine::websocket::{EndCause, Opcode, WebSocketOptions};
use dwell_testkit::Rig;
use std::io::Write;
use std::time::{Duration, Instant};

const PING: &[u8] = b"\x89\x00";
/// For peers that are in time, however busy the machine is.
const AMPLE: Duration = Duration::from_secs(20);

fn pinging() -> WebSocketOptions {
    WebSocketOptions {
        ping_interval: Some(Duration::from_millis(50)),
        pong_timeout: Duration::from_millis(50),
        ..WebSocketOptions::default()
    }
}

#[test]
fn a_silent_peer_is_pinged_and_lives_as_long_as_it_answers() {
    let options = WebSocketOptions {
        pong_timeout: AMPLE,
        ..pinging()
    };
    let mut fixture = Fixture::new(Answer::Nothing, options);
    let mut begun = Instant::now();
    let (mut peer, token) = fixture.peer("/");
    for _ in 0..3 {
        assert_eq!(fixture.receive(&mut peer, 2), PING);
        assert!(begun.elapsed() >= Duration::from_millis(50));
        begun = Instant::now();
        peer.write_all(&frame(Opcode::Pong, true, b"")).unwrap();
    }
    assert!(fixture.server.sockets.contains(token));
    let pong = Seen::Pong(Vec::new());
    assert!(fixture.server.app.seen.iter().all(|seen| *seen == pong));
}

#[test]
fn a_peer_that_does_not_answer_is_given_up() {
    let mut fixture = Fixture::new(Answer::Nothing, pinging());
    let begun = Instant::now();
    let (mut peer, _) = fixture.peer("/");
    let end = fixture.until_end();
    assert_eq!((end.cause, end.code), (EndCause::PongTimeout, 1006));
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert_eq!(fixture.receive_all(&mut peer), PING);
}

#[test]
fn a_peer_that_speaks_is_not_pinged() {
    let interval = Duration::from_millis(200);
    let options = WebSocketOptions {
        ping_interval: Some(interval),
        pong_timeout: AMPLE,
        ..WebSocketOptions::default()
    };
    let mut fixture = Fixture::new(Answer::Nothing, options);
    let (mut peer, _) = fixture.peer("/");
    // Half a frame at a time is a sign of life too.
    let stream = text("x").repeat(20);
    let (mut said, mut longest) = (Instant::now(), Duration::ZERO);
    for half in stream.chunks(4) {
        peer.write_all(half).unwrap();
        let next = Instant::now() + interval / 20;
        while Instant::now() < next {
            fixture.turn_for(next.saturating_duration_since(Instant::now()));
        }
        longest = longest.max(said.elapsed());
        said = Instant::now();
    }
    let is_slow = longest > interval / 2;
    fixture.turn_until("all came", |server| server.app.payloads().len() == 20);
    peer.set_nonblocking(true).unwrap();
    let mut ping = [0; 2];
    let read = std::io::Read::read(&mut peer, &mut ping);
    // A machine that stops for long enough in between looks like a silent peer.
    assert!(read.is_err() || is_slow, "{ping:?}");
}

#[test]
fn a_peer_that_sends_no_messages_is_closed_where_that_is_wanted() {
    let options = WebSocketOptions {
        idle_timeout: Some(Duration::from_millis(80)),
        ping_interval: Some(Duration::from_millis(30)),
        ..WebSocketOptions::default()
    };
    let mut fixture = Fixture::new(Answer::Nothing, options);
    let begun = Instant::now();
    let (mut peer, token) = fixture.peer("/");
    let pong = frame(Opcode::Pong, true, b"");
    // Pongs keep nothing open: the close comes all the same.
    let received = loop {
        let received = fixture.receive(&mut peer, 2);
        if received != PING {
            break received;
        }
        peer.write_all(&pong).unwrap();
    };
    assert_eq!(received, server_close(1001, "idle"));
    assert!(begun.elapsed() >= Duration::from_millis(80));
    assert!(fixture.with(token, |socket| socket.is_closing()).unwrap());
    peer.write_all(&crate::support::close(1001, "")).unwrap();
    let end = fixture.until_end();
    assert_eq!((end.cause, end.is_clean), (EndCause::IdleTimeout, true));
}

#[test]
fn a_message_that_drips_is_cut_off() {
    let options = WebSocketOptions {
        message_timeout: Duration::from_millis(100),
        pong_timeout: AMPLE,
        ..pinging()
    };
    let mut fixture = Fixture::new(Answer::Nothing, options);
    let (mut peer, _) = fixture.peer("/");
    // A message that is complete has no deadline, one behind it has its own.
    let begun = Instant::now();
    peer.write_all(&[text("one"), text("drips")[..7].to_vec()].concat())
        .unwrap();
    let received = loop {
        let received = fixture.receive(&mut peer, 2);
        if !received.starts_with(PING) {
            break received;
        }
        // It lives, but its message does not come.
        peer.write_all(&text("drips")[7..8]).unwrap();
    };
    assert_eq!(received, server_close(1008, "message takes too long"));
    assert!(begun.elapsed() >= Duration::from_millis(100));
    peer.write_all(&text("drips")[9..]).unwrap();
    drop(peer);
    assert_eq!(fixture.until_end().cause, EndCause::MessageTimeout);
    assert_eq!(fixture.server.app.payloads(), [b"one"]);
}

#[test]
fn messages_that_are_sent_keep_a_connection_from_being_idle() {
    let options = WebSocketOptions {
        idle_timeout: Some(Duration::from_millis(600)),
        ping_interval: None,
        ..WebSocketOptions::default()
    };
    let mut fixture = Fixture::new(Answer::Nothing, options);
    let (_peer, token) = fixture.peer("/");
    let begun = Instant::now();
    let mut last = begun;
    while begun.elapsed() < Duration::from_secs(1) {
        last = Instant::now();
        let sent = fixture.with(token, |socket| socket.text("x")).unwrap();
        assert_eq!(sent, Ok(()));
        fixture.turn_for(Duration::from_millis(20));
    }
    fixture.with(token, |socket| assert!(!socket.is_closing()));
    while !fixture.with(token, |socket| socket.is_closing()).unwrap() {
        fixture.turn_for(Duration::from_millis(50));
    }
    assert!(last.elapsed() >= Duration::from_millis(595));
}

#[test]
fn the_silence_of_a_paused_peer_is_not_held_against_it() {
    let options = WebSocketOptions {
        ping_interval: Some(Duration::from_millis(200)),
        pong_timeout: Duration::from_millis(200),
        ..WebSocketOptions::default()
    };
    let mut fixture = Fixture::new(Answer::Pause, options);
    let (mut peer, token) = fixture.peer("/");
    peer.write_all(&text("x")).unwrap();
    fixture.turn_until("it is paused", |server| !server.app.seen.is_empty());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(700) {
        fixture.turn_for(Duration::from_millis(50));
    }
    assert_eq!(fixture.server.app.end(), None);
    fixture.with(token, |socket| {
        socket.resume();
    });
    assert_eq!(fixture.until_end().cause, EndCause::PongTimeout);
}

#[test]
fn without_pings_nothing_wakes_the_loop() {
    let options = WebSocketOptions {
        ping_interval: None,
        ..WebSocketOptions::default()
    };
    let mut fixture = Fixture::new(Answer::Nothing, options);
    let (_peer, _) = fixture.peer("/");
    fixture.turn_for(Duration::from_millis(1));
    assert_eq!(fixture.event_loop.context().armed(), 0);
}
