//! How connections end: each once, and told.

use crate::support::{
    Answer, End, Fixture, Seen, close, frame, server_close, server_message, text,
};
use dwell_engine::websocket::{CloseCode, EndCause, MessageKind, Opcode, WebSocketOptions};
use dwell_testkit::Rig;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

fn end(code: u16, reason: &str, is_clean: bool, cause: EndCause) -> End {
    End {
        code,
        reason: reason.to_owned(),
        is_clean,
        cause,
    }
}

#[test]
fn a_peer_that_closes_is_answered_with_its_own_code() {
    for (code, reason) in [(1000, "bye"), (1001, ""), (3999, "own"), (4999, "κόσμε")] {
        let mut fixture = Fixture::echo();
        let (mut peer, token) = fixture.peer("/");
        // What comes behind a close frame is not looked at.
        let stream = [text("last"), close(code, reason), text("never")].concat();
        peer.write_all(&stream).unwrap();
        let expected = [
            server_message(MessageKind::Text, b"last"),
            server_close(code, ""),
        ]
        .concat();
        assert_eq!(fixture.receive_all(&mut peer), expected);
        assert_eq!(fixture.until_end(), end(code, reason, true, EndCause::Peer));
        let told = Seen::Close(Some(code), reason.to_owned());
        assert!(fixture.server.app.seen.contains(&told));
        assert_eq!(fixture.server.app.payloads(), [b"last"]);
        assert!(!fixture.server.sockets.contains(token));
        assert_eq!(fixture.server.sockets.connections(), 0);
    }
}

#[test]
fn an_empty_close_frame_has_no_code() {
    let mut fixture = Fixture::echo();
    let (mut peer, _) = fixture.peer("/");
    peer.write_all(&frame(Opcode::Close, true, b"")).unwrap();
    assert_eq!(fixture.receive_all(&mut peer), b"\x88\x00");
    assert_eq!(fixture.until_end(), end(1005, "", true, EndCause::Peer));
}

#[test]
fn what_we_close_ends_when_the_peer_agrees() {
    let mut fixture = Fixture::new(Answer::Close, WebSocketOptions::default());
    let (mut peer, token) = fixture.peer("/");
    peer.write_all(&text("one")).unwrap();
    let expected = server_close(1000, "enough");
    assert_eq!(fixture.receive(&mut peer, expected.len()), expected);
    assert!(fixture.with(token, |socket| socket.is_closing()).unwrap());
    assert!(
        fixture
            .with(token, |socket| socket.text("never"))
            .unwrap()
            .is_err()
    );
    // The peer may not have seen it yet: what it says is dropped, and a ping of its is answered.
    let stream = [
        text("two"),
        frame(Opcode::Ping, true, b"a"),
        close(1000, "me too"),
    ]
    .concat();
    peer.write_all(&stream).unwrap();
    assert_eq!(fixture.receive_all(&mut peer), b"\x8a\x01a");
    assert_eq!(
        fixture.until_end(),
        end(1000, "me too", true, EndCause::Closed)
    );
    assert_eq!(fixture.server.app.payloads(), [b"one"]);
}

#[test]
fn a_close_waits_behind_what_is_queued() {
    let mut fixture = Fixture::echo();
    let (mut peer, token) = fixture.peer("/plain");
    let payload = vec![b'q'; 8 << 20];
    fixture.with(token, |socket| {
        socket.binary(&payload).unwrap();
        socket.close(CloseCode::GOING_AWAY, "restart");
    });
    let mut expected = server_message(MessageKind::Binary, &payload);
    expected.extend(server_close(1001, "restart"));
    assert!(fixture.receive(&mut peer, expected.len()) == expected);
    peer.write_all(&close(1001, "")).unwrap();
    assert_eq!(fixture.receive_all(&mut peer), b"");
    assert_eq!(fixture.until_end(), end(1001, "", true, EndCause::Closed));
}

#[test]
fn a_peer_that_does_not_agree_is_given_up() {
    let options = WebSocketOptions {
        close_timeout: Duration::from_millis(50),
        ..WebSocketOptions::default()
    };
    let mut fixture = Fixture::new(Answer::Echo, options);
    let (mut peer, token) = fixture.peer("/");
    fixture.with(token, |socket| {
        socket.close_without_code();
    });
    assert_eq!(fixture.receive_all(&mut peer), b"\x88\x00");
    assert_eq!(
        fixture.until_end(),
        end(1006, "", false, EndCause::CloseTimeout)
    );
}

#[test]
fn the_answer_to_the_last_message_reaches_a_peer_that_ends_its_side() {
    let mut fixture = Fixture::echo();
    let (mut peer, _) = fixture.peer("/");
    peer.write_all(&[text("last"), text("words")[..4].to_vec()].concat())
        .unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let expected = server_message(MessageKind::Text, b"last");
    assert_eq!(fixture.receive_all(&mut peer), expected);
    assert_eq!(fixture.until_end(), end(1006, "", false, EndCause::Lost));
}

#[test]
fn a_reset_is_an_end() {
    let mut fixture = Fixture::echo();
    let (peer, _) = fixture.peer("/");
    socket2::SockRef::from(&peer)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(peer);
    let cause = EndCause::Failed(ErrorKind::ConnectionReset);
    assert_eq!(fixture.until_end(), end(1006, "", false, cause));
}

#[test]
fn a_reset_ends_one_that_is_paused_too() {
    let mut fixture = Fixture::new(Answer::Pause, WebSocketOptions::default());
    let (mut peer, _) = fixture.peer("/");
    peer.write_all(&text("x")).unwrap();
    fixture.turn_until("it is paused", |server| !server.app.seen.is_empty());
    socket2::SockRef::from(&peer)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(peer);
    let cause = EndCause::Failed(ErrorKind::ConnectionReset);
    assert_eq!(fixture.until_end(), end(1006, "", false, cause));
}

#[test]
fn an_abort_sends_nothing_more() {
    let mut fixture = Fixture::echo();
    let (mut peer, token) = fixture.peer("/");
    fixture.with(token, |socket| {
        socket.text("never").unwrap();
        socket.abort();
        assert!(socket.text("nor this").is_err());
    });
    assert_eq!(fixture.until_end(), end(1006, "", false, EndCause::Aborted));
    let error = peer.read(&mut [0; 16]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_server_that_stops_says_so_to_all() {
    let mut fixture = Fixture::echo();
    let (mut first, _) = fixture.peer("/");
    let (mut second, _) = fixture.peer("/");
    let context = fixture.event_loop.context();
    let sockets = &mut fixture.server.sockets;
    sockets.drain(context, CloseCode::GOING_AWAY, "stops");
    for peer in [&mut first, &mut second] {
        let expected = server_close(1001, "stops");
        assert_eq!(fixture.receive(peer, expected.len()), expected);
        peer.write_all(&close(1001, "")).unwrap();
    }
    fixture.turn_until("none is left", |server| server.sockets.connections() == 0);
    let (_third, _) = fixture.peer("/");
    let Fixture {
        event_loop, server, ..
    } = &mut fixture;
    server
        .sockets
        .close_all(event_loop.context(), &mut server.app);
    assert_eq!(server.sockets.connections(), 0);
    let last = Seen::Closed(end(1006, "", false, EndCause::Aborted));
    assert_eq!(server.app.seen.last(), Some(&last));
}

#[test]
fn a_client_leaves_the_end_to_the_server() {
    let mut fixture = Fixture::echo();
    let (mut peer, token) = fixture.client();
    fixture.with(token, |socket| socket.close(CloseCode::NORMAL, ""));
    assert_eq!(fixture.receive(&mut peer, 8)[..2], [0x88, 0x82]);
    peer.write_all(&server_close(1000, "")).unwrap();
    fixture.turn_until("it is told", |server| !server.app.seen.is_empty());
    fixture.turn_for(Duration::from_millis(20));
    assert_eq!(fixture.server.app.end(), None);
    assert_eq!(fixture.server.sockets.connections(), 1);
    drop(peer);
    assert_eq!(fixture.until_end(), end(1000, "", true, EndCause::Closed));
}

#[test]
fn a_server_that_does_not_end_is_left() {
    let options = WebSocketOptions {
        close_timeout: Duration::from_millis(50),
        ..WebSocketOptions::default()
    };
    let mut fixture = Fixture::new(Answer::Echo, options);
    let (mut peer, _) = fixture.client();
    peer.write_all(&server_close(1001, "away")).unwrap();
    assert_eq!(fixture.receive(&mut peer, 8)[..2], [0x88, 0x82]);
    assert_eq!(fixture.until_end(), end(1001, "away", true, EndCause::Peer));
}
