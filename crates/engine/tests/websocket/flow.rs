//! Slow readers, bounds, pauses, and messages for many.

use crate::support::{Answer, Fixture, Seen, server_close, server_message, text};
use dwell_engine::websocket::{
    Broadcast, CloseCode, Delivered, EndCause, MessageKind, Overflow, WebSocketOptions,
    WebSocketSendError,
};
use dwell_testkit::Rig;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

const MIB: usize = 1 << 20;

fn bounded(overflow: Overflow) -> WebSocketOptions {
    WebSocketOptions {
        output_bytes_max: MIB,
        overflow,
        ..WebSocketOptions::default()
    }
}

#[test]
fn a_peer_that_reads_nothing_is_refused_more_and_told_when_it_has_read() {
    let mut fixture = Fixture::new(Answer::Nothing, bounded(Overflow::Refuse));
    let (mut peer, token) = fixture.peer("/plain");
    let payload = vec![b'q'; 256 * 1024];
    let mut sent = 0;
    let error = loop {
        match fixture
            .with(token, |socket| socket.binary(&payload))
            .unwrap()
        {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    let queued = fixture.with(token, |socket| socket.queued_bytes()).unwrap();
    assert_eq!(error, WebSocketSendError::Full { limit: MIB, queued });
    assert!((MIB..MIB + 300_000).contains(&queued), "{queued}");
    assert!(fixture.with(token, |socket| socket.is_full()).unwrap());
    assert!(fixture.server.app.seen.is_empty());
    let expected = server_message(MessageKind::Binary, &payload).repeat(sent);
    assert!(fixture.receive(&mut peer, expected.len()) == expected);
    fixture.turn_until("it is drained", |server| server.app.seen == [Seen::Drained]);
    assert_eq!(
        fixture.with(token, |socket| socket.text("more")),
        Some(Ok(()))
    );
}

#[test]
fn a_peer_that_asks_but_reads_nothing_is_not_listened_to() {
    // Every message of a few bytes asks for 64 KiB.
    let mut fixture = Fixture::new(Answer::Bytes(64 * 1024), bounded(Overflow::Refuse));
    let (mut peer, token) = fixture.peer("/plain");
    let asked = 400;
    peer.write_all(&text("x").repeat(asked)).unwrap();
    let mut handed_over = 0;
    // Until a turn brings nothing new.
    loop {
        fixture.turn_for(Duration::from_millis(20));
        let count = fixture.server.app.payloads().len();
        if count == handed_over {
            break;
        }
        handed_over = count;
    }
    assert!(handed_over < asked, "{handed_over}");
    let queued = fixture.with(token, |socket| socket.queued_bytes()).unwrap();
    assert!(queued < MIB + 70_000, "{queued}");
    let size = server_message(MessageKind::Binary, &vec![0; 64 * 1024]).len() * asked;
    assert_eq!(fixture.receive(&mut peer, size).len(), size);
    // There was room for every answer.
    assert_eq!(fixture.server.app.refused, 0);
    assert_eq!(fixture.server.app.payloads().len(), asked);
}

#[test]
fn a_full_connection_is_closed_where_that_is_the_policy() {
    let policy = Overflow::Close(CloseCode::TRY_AGAIN_LATER);
    let mut fixture = Fixture::new(Answer::Nothing, bounded(policy));
    let (mut peer, token) = fixture.peer("/plain");
    let payload = vec![b'q'; 256 * 1024];
    let mut sent = 0;
    while fixture
        .with(token, |socket| socket.binary(&payload))
        .unwrap()
        .is_ok()
    {
        sent += 1;
    }
    let again = fixture
        .with(token, |socket| socket.binary(&payload))
        .unwrap();
    assert_eq!(again, Err(WebSocketSendError::Closed));
    let mut expected = server_message(MessageKind::Binary, &payload).repeat(sent);
    expected.extend(server_close(1013, "output is full"));
    assert!(fixture.receive(&mut peer, expected.len()) == expected);
    peer.write_all(&crate::support::close(1013, "")).unwrap();
    let end = fixture.until_end();
    assert_eq!((end.cause, end.is_clean), (EndCause::OutputFull, true));
}

#[test]
fn a_peer_that_takes_nothing_is_given_up() {
    let options = WebSocketOptions {
        write_timeout: Duration::from_millis(50),
        ..WebSocketOptions::default()
    };
    let mut fixture = Fixture::new(Answer::Nothing, options);
    let (mut peer, token) = fixture.peer("/plain");
    fixture
        .with(token, |socket| socket.binary(&vec![0; 16 * MIB]))
        .unwrap()
        .unwrap();
    assert_eq!(fixture.until_end().cause, EndCause::WriteTimeout);
    // The system is not left with what nobody takes.
    let error = peer.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_pause_holds_the_peer_back() {
    let mut fixture = Fixture::new(Answer::Pause, WebSocketOptions::default());
    let (mut peer, token) = fixture.peer("/plain");
    peer.write_all(&[text("one"), text("two")].concat())
        .unwrap();
    for (messages, payload) in [(1, &b"one"[..]), (2, b"two")] {
        let came = |server: &mut crate::support::Server| server.app.payloads().len() == messages;
        fixture.turn_until("one more", came);
        fixture.turn_for(Duration::from_millis(10));
        assert_eq!(fixture.server.app.payloads().len(), messages);
        assert_eq!(fixture.server.app.payloads()[messages - 1], payload);
        assert!(fixture.with(token, |socket| socket.is_paused()).unwrap());
        fixture.with(token, |socket| {
            socket.resume();
        });
    }
}

#[test]
fn what_one_callback_sends_goes_out_together() {
    let mut fixture = Fixture::new(Answer::Nothing, WebSocketOptions::default());
    let (mut peer, token) = fixture.peer("/plain");
    fixture.with(token, |socket| {
        socket.text("a").unwrap();
        assert_eq!(socket.queued_bytes(), 3);
        socket.text("b").unwrap();
        socket
            .send_shared(&Broadcast::new(MessageKind::Text, b"c"))
            .unwrap();
    });
    assert_eq!(
        fixture.receive(&mut peer, 9),
        b"\x81\x01a\x81\x01b\x81\x01c"
    );
}

#[test]
fn a_broadcast_reaches_all_and_a_slow_one_holds_up_nobody() {
    let mut fixture = Fixture::new(Answer::Nothing, bounded(Overflow::Refuse));
    let mut peers: Vec<_> = (0..20)
        .map(|n| fixture.peer(["/", "/plain"][n % 2]))
        .collect();
    let (slow, slow_token) = fixture.peer("/plain");
    let (gone, gone_token) = fixture.peer("/");
    drop(gone);
    fixture.until_end();
    let mut tokens: Vec<_> = peers.iter().map(|(_, token)| *token).collect();
    tokens.extend([slow_token, gone_token]);
    // One that compresses well, and more of it than a socket takes at once.
    let payload = "the news of the day. ".repeat(20_000).into_bytes();
    let news = Broadcast::new(MessageKind::Text, &payload);
    let mut refused = 0;
    for _ in 0..20 {
        let delivered = fixture.broadcast(&tokens, &news);
        assert_eq!(delivered.closed, 1);
        refused += delivered.full;
        assert_eq!(delivered.sent + delivered.full, 21);
        for (index, (peer, token)) in peers.iter_mut().enumerate() {
            let frame = [crate::support::frame_for(&news), news.plain().to_vec()];
            let expected = &frame[index % 2];
            assert!(&fixture.receive(peer, expected.len()) == expected);
            assert_eq!(
                fixture.with(*token, |socket| socket.queued_bytes()),
                Some(0)
            );
        }
    }
    assert!(refused > 0, "only the slow one is refused");
    let queued = fixture
        .with(slow_token, |socket| socket.queued_bytes())
        .unwrap();
    assert!(
        queued >= MIB && queued < MIB + payload.len() + 10,
        "{queued}"
    );
    drop(slow);
    let nobody = fixture.broadcast(&[], &news);
    assert_eq!(nobody, Delivered::default());
}

#[test]
fn a_broadcast_of_a_client_is_masked() {
    let mut fixture = Fixture::new(Answer::Nothing, WebSocketOptions::default());
    let (mut peer, token) = fixture.client();
    let news = Broadcast::new(MessageKind::Binary, b"news");
    assert_eq!(fixture.broadcast(&[token], &news).sent, 1);
    let sent = fixture.receive(&mut peer, 10);
    assert_eq!(sent[..2], [0x82, 0x84]);
}
