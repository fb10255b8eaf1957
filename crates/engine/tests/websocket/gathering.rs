//! Messages to many at once, gathered where the kernel sends them by one call.

use crate::support::{Answer, Fixture, Seen, server_close, server_message};
use dwell_engine::websocket::{Broadcast, CloseCode, MessageKind, WebSocketOptions};
use dwell_evloop::{Sends, Token};
use dwell_testkit::Rig;
use std::net::TcpStream;

const KIND: MessageKind = MessageKind::Text;

/// A loop with sends, and clients that say nothing.
fn gathering(count: usize) -> (Fixture, Vec<(TcpStream, Token)>) {
    let mut fixture = Fixture::new(Answer::Nothing, WebSocketOptions::default());
    let context = fixture.event_loop.context();
    context.set_sends(Some(Sends::default()));
    let clients = (0..count).map(|_| fixture.peer("/plain")).collect();
    (fixture, clients)
}

/// Tells all of them the same.
fn tell(fixture: &mut Fixture, clients: &[(TcpStream, Token)], payload: &[u8]) {
    let message = Broadcast::new(KIND, payload);
    for (_, token) in clients {
        let (context, sockets) = (fixture.event_loop.context(), &mut fixture.server.sockets);
        let _ = sockets.send_shared(context, *token, &message);
    }
}

fn gather(fixture: &mut Fixture, count: usize) {
    let context = fixture.event_loop.context();
    fixture.server.sockets.gather(context, count);
}

fn send(fixture: &mut Fixture) {
    let context = fixture.event_loop.context();
    fixture.server.sockets.send_gathered(context);
}

#[test]
fn everything_comes_in_order_whoever_sends_it() {
    // More than one call sends.
    let (mut fixture, mut clients) = gathering(300);
    gather(&mut fixture, clients.len());
    tell(&mut fixture, &clients, b"one");
    let (first, second) = (clients[0].1, clients[1].1);
    let sent = fixture.with(first, |socket| socket.text("two"));
    assert_eq!(sent, Some(Ok(())));
    fixture.with(second, |socket| socket.close(CloseCode::NORMAL, ""));
    send(&mut fixture);
    tell(&mut fixture, &clients, b"three");
    for (place, (peer, _)) in clients.iter_mut().enumerate() {
        let texts: &[&[u8]] = match place {
            0 => &[b"one", b"two", b"three"],
            1 => &[b"one"],
            _ => &[b"one", b"three"],
        };
        let frames = texts.iter().map(|text| server_message(KIND, text));
        let mut expected = frames.collect::<Vec<_>>().concat();
        if place == 1 {
            expected.extend(server_close(CloseCode::NORMAL.number(), ""));
        }
        assert_eq!(fixture.receive(peer, expected.len()), expected, "{place}");
    }
}

#[test]
fn a_peer_that_takes_no_more_gets_the_rest_when_it_does() {
    let (mut fixture, mut clients) = gathering(8);
    let (payload, slow) = ([b'n'; 2000], clients[0].1);
    let mut told = 0;
    let queued = |fixture: &mut Fixture| fixture.with(slow, |socket| socket.queued_bytes());
    while queued(&mut fixture) == Some(0) {
        gather(&mut fixture, clients.len());
        tell(&mut fixture, &clients, &payload);
        send(&mut fixture);
        told += 1;
        let expected = server_message(KIND, &payload);
        for (peer, _) in &mut clients[1..] {
            assert!(fixture.receive(peer, expected.len()) == expected);
        }
    }
    let expected = server_message(KIND, &payload).repeat(told);
    assert!(fixture.receive(&mut clients[0].0, expected.len()) == expected);
    fixture.turn_until("it is drained", |server| server.app.seen == [Seen::Drained]);
}

#[test]
fn peers_that_are_gone_end_and_the_others_are_told() {
    let (mut fixture, mut clients) = gathering(10);
    let mut stays = clients.split_off(9);
    let tokens: Vec<_> = clients.iter().map(|(_, token)| *token).collect();
    for (peer, _) in &clients {
        socket2::SockRef::from(peer)
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
    }
    drop(clients);
    gather(&mut fixture, 10);
    let message = Broadcast::new(KIND, b"news");
    for token in tokens.into_iter().chain([stays[0].1]) {
        let (context, sockets) = (fixture.event_loop.context(), &mut fixture.server.sockets);
        assert_eq!(sockets.send_shared(context, token, &message), Ok(()));
    }
    send(&mut fixture);
    let expected = server_message(KIND, b"news");
    assert_eq!(fixture.receive(&mut stays[0].0, expected.len()), expected);
    fixture.turn_until("those that left have ended", |server| {
        server.sockets.connections() == 1
    });
}
