//! WebSocket from a manager's handlers.

use crate::support::{Client, Fixture};
use dwell_engine::manager::{ConnError, Event, HttpMessage};
use dwell_engine::websocket::{Broadcast, CloseCode, MessageKind, OriginPolicy, UpgradeOptions};
use std::sync::Arc;

const HANDSHAKE: &str = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A short frame of a client, under a mask of zeros.
fn frame(opcode: u8, payload: &str) -> Vec<u8> {
    let head = [0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0];
    [&head[..], payload.as_bytes()].concat()
}

/// What a server sends.
fn answer(opcode: u8, payload: &str) -> Vec<u8> {
    let head = [0x80 | opcode, payload.len() as u8];
    [&head[..], payload.as_bytes()].concat()
}

fn receive(fixture: &mut Fixture, client: &mut Client, expected: &[u8]) {
    let begun = std::time::Instant::now();
    while client.received.len() < expected.len() {
        client.read();
        assert!(
            begun.elapsed() < crate::support::PATIENCE,
            "{:?}",
            client.received
        );
        let wait = std::time::Duration::from_millis(2);
        fixture.manager.poll(wait).unwrap();
    }
    let received: Vec<_> = client.received.drain(..expected.len()).collect();
    assert_eq!(received, expected);
}

fn upgrade(
    conn: &mut dwell_engine::manager::Conn<'_>,
    message: &HttpMessage<'_>,
) -> Result<(), ConnError> {
    let options = UpgradeOptions {
        origin: OriginPolicy::Any,
        subprotocols: &["chat"],
        ..UpgradeOptions::default()
    };
    conn.ws_upgrade(message, &options)
}

fn echo() -> Fixture {
    Fixture::new("http", |conn, event| match event {
        Event::HttpMessage(message) => upgrade(conn, &message).unwrap(),
        Event::WebSocketOpen => conn.ws_text("welcome").unwrap(),
        Event::WebSocketMessage { data: b"bye", .. } => conn.close(),
        Event::WebSocketMessage {
            is_text: true,
            data,
        } => {
            conn.ws_send(MessageKind::Text, data).unwrap();
        }
        Event::WebSocketMessage { data, .. } => {
            conn.ws_send(MessageKind::Binary, data).unwrap();
        }
        _ => {}
    })
}

fn connect(fixture: &mut Fixture) -> (Client, u64) {
    let (mut client, id) = fixture.client();
    client.send(HANDSHAKE);
    let head = fixture.receive(&mut client, "\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"),
        "{head}"
    );
    (client, id)
}

#[test]
fn messages_are_echoed_and_the_connection_keeps_its_id() {
    let mut fixture = echo();
    let (mut client, id) = connect(&mut fixture);
    receive(&mut fixture, &mut client, &answer(1, "welcome"));
    client.send([frame(1, "one"), frame(2, "two"), frame(9, "ping")].concat());
    let expected = [answer(1, "one"), answer(2, "two"), answer(10, "ping")].concat();
    receive(&mut fixture, &mut client, &expected);
    let mut conn = fixture.manager.conn(id).unwrap();
    assert!(conn.is_websocket() && !conn.is_full());
    assert!(conn.remote_address().is_some() && conn.local_address().is_some());
    assert_eq!(conn.queued_bytes(), 0);
    assert_eq!(conn.reply(200, &[], b""), Err(ConnError::Protocol));
    client.send(frame(1, "bye"));
    receive(&mut fixture, &mut client, b"\x88\x02\x03\xe8");
    assert!(fixture.manager.conn(id).unwrap().is_closing());
    client.send(frame(8, "\u{3}"));
    client.shutdown();
    fixture.until_line("close");
    let lines = fixture.log.of(id);
    for line in [
        "websocketopen",
        "text 'one'",
        "binary 'two'",
        "control 9 'ping'",
    ] {
        assert_eq!(
            lines.iter().filter(|seen| *seen == line).count(),
            1,
            "{line}"
        );
    }
    assert_eq!(lines.last().unwrap(), "close");
}

#[test]
fn a_close_of_the_peer_is_told_with_its_code() {
    let mut fixture = echo();
    let (mut client, id) = connect(&mut fixture);
    receive(&mut fixture, &mut client, &answer(1, "welcome"));
    let close = [&[0x88, 0x85, 0, 0, 0, 0, 0x03, 0xe9][..], b"tab"].concat();
    client.send(close);
    receive(&mut fixture, &mut client, b"\x88\x02\x03\xe9");
    fixture.until_line("close");
    let lines = fixture.log.of(id);
    assert!(
        lines.contains(&r"control 8 '\x03\xe9tab'".to_owned()),
        "{lines:?}"
    );
    assert!(
        !lines.iter().any(|line| line.starts_with("error")),
        "{lines:?}"
    );
}

#[test]
fn a_fault_of_the_peer_is_an_error() {
    let mut fixture = echo();
    let (mut client, id) = connect(&mut fixture);
    // Not masked.
    client.send(answer(1, "plain"));
    client.shutdown();
    fixture.until_line("close");
    let lines = fixture.log.of(id);
    assert!(lines[lines.len() - 2].starts_with("error: "), "{lines:?}");
}

#[test]
fn a_handshake_that_is_refused_is_answered() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpMessage(message) = event {
            let refused = upgrade(conn, &message);
            assert!(matches!(refused, Err(ConnError::Upgrade(_))), "{refused:?}");
        }
    });
    let (mut client, _) = fixture.client();
    client.send(HANDSHAKE.replace("Version: 13", "Version: 12"));
    let head = fixture.receive(&mut client, "\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 426 "), "{head}");
    assert_eq!(fixture.manager.panics(), 0);
}

#[test]
fn a_message_goes_to_many_and_a_code_ends_them() {
    let mut fixture = echo();
    let mut clients: Vec<_> = (0..3).map(|_| connect(&mut fixture)).collect();
    let message = Arc::new(Broadcast::new(MessageKind::Text, b"to all"));
    for (client, id) in &mut clients {
        receive(&mut fixture, client, &answer(1, "welcome"));
        let mut conn = fixture.manager.conn(*id).unwrap();
        conn.ws_send_shared(&message).unwrap();
        conn.ws_ping(b"p").unwrap();
        conn.ws_close(CloseCode::GOING_AWAY, "end").unwrap();
        assert_eq!(conn.ws_text("late"), Err(ConnError::Closed));
    }
    let expected = [
        answer(1, "to all"),
        answer(9, "p"),
        b"\x88\x05\x03\xe9end".to_vec(),
    ];
    for (client, _) in &mut clients {
        receive(&mut fixture, client, &expected.concat());
    }
    drop(clients);
    fixture.until("all end", |log| log.count("close") == 3);
}

#[test]
fn another_handlers_message_reaches_a_websocket() {
    let mut fixture = Fixture::new("http", |conn, event| match event {
        Event::HttpMessage(message) => upgrade(conn, &message).unwrap(),
        Event::WebSocketMessage { data, .. } => {
            let own = conn.id();
            let mut scope = conn.scope();
            for id in scope.connections() {
                let mut other = scope.conn(id).unwrap();
                if id != own && other.is_websocket() {
                    other.ws_send(MessageKind::Text, data).unwrap();
                }
            }
        }
        _ => {}
    });
    let (mut first, _) = connect(&mut fixture);
    let (mut second, _) = connect(&mut fixture);
    first.send(frame(1, "hello"));
    receive(&mut fixture, &mut second, &answer(1, "hello"));
    fixture.manager.close();
    assert_eq!(fixture.log.count("close"), 3);
}

#[test]
fn a_client_speaks_with_the_server_on_one_manager() {
    let mut fixture = Fixture::new("http", |conn, event| match event {
        Event::HttpMessage(message) => {
            assert_eq!(message.target(), "/chat?a=1");
            upgrade(conn, &message).unwrap();
        }
        Event::WebSocketOpen if conn.is_client() => conn.ws_text("from the client").unwrap(),
        Event::WebSocketOpen => conn.ws_text("from the server").unwrap(),
        Event::WebSocketMessage { .. } if conn.is_client() => conn.close(),
        _ => {}
    });
    let url = format!("ws://{}/chat?a=1", fixture.address);
    let id = fixture.manager.ws_connect(&url).unwrap();
    fixture.until("both end", |log| log.count("close") == 2);
    let lines = fixture.log.of(id);
    assert_eq!(lines[..2], ["open", "connect"]);
    let position = |wanted: &str| lines.iter().position(|line| line == wanted).unwrap();
    assert!(position("websocketopen") < position("text 'from the server'"));
    assert!(fixture.log.has("text 'from the client'"));
    assert!(
        !fixture
            .log
            .all()
            .iter()
            .any(|(_, line)| line.starts_with("error"))
    );
}

#[test]
fn a_server_that_does_not_upgrade_is_an_error() {
    let mut fixture = Fixture::new("http", crate::support::answer);
    let url = format!("ws://{}", fixture.address);
    let id = fixture.manager.ws_connect(&url).unwrap();
    fixture.until("it ends", |log| {
        log.of(id).last().is_some_and(|line| line == "close")
    });
    let lines = fixture.log.of(id);
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("error: websocket handshake failed"))
    );
    let raw = fixture.manager.ws_connect("tcp://127.0.0.1:1");
    assert!(raw.is_err());
}
