//! WebSockets on streams (RFC 8441).

use super::{DATA, Fixture, HEADERS, Peer, RESET, fixture, until};
use dwell_engine::manager::{Conn, ConnError, Event};
use dwell_engine::websocket::{CloseCode, MessageKind, UpgradeOptions};

const CLOSE: u8 = 8;

impl Peer {
    /// Asks for a WebSocket; returns the field block of the answer.
    fn open(&mut self, fixture: &mut Fixture, stream: u32, path: &str) -> Vec<u8> {
        let lines = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", path),
            ("sec-websocket-version", "13"),
        ];
        self.head(stream, &lines, false);
        self.wait_for(fixture, HEADERS, stream).3
    }

    /// Sends a frame whose mask is zero.
    fn say(&mut self, stream: u32, opcode: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(payload);
        self.data(stream, &frame, false);
    }

    /// The payload of the next frame, which comes in one DATA frame.
    fn hear(&mut self, fixture: &mut Fixture, stream: u32) -> Vec<u8> {
        let data = self.wait_for(fixture, DATA, stream).3;
        assert_eq!(usize::from(data[1]) + 2, data.len(), "{data:?}");
        data[2..].to_vec()
    }
}

/// Field blocks here begin with the status: 200 and 403 as they are in the static table, others by
/// their digits.
fn begins_with_200(block: &[u8]) -> bool {
    block[0] == 0x88
}

fn echo(conn: &mut Conn<'_>, event: &Event<'_>) {
    match event {
        Event::HttpMessage(message) if message.path() == "/plain" => {
            conn.reply(200, &[], b"plain").unwrap();
        }
        Event::HttpMessage(message) => {
            assert!(conn.is_stream());
            let _ = conn.ws_upgrade(message, &UpgradeOptions::default());
        }
        Event::WebSocketOpen => {
            assert!(conn.is_websocket() && !conn.is_stream());
            assert!(conn.remote_address().is_some());
            conn.ws_text("welcome").unwrap();
        }
        Event::WebSocketMessage { data: b"close", .. } => {
            conn.ws_close(CloseCode::NORMAL, "").unwrap();
        }
        Event::WebSocketMessage { data: b"abort", .. } => conn.abort(),
        Event::WebSocketMessage { data: b"all", .. } => {
            let mut scope = conn.scope();
            for id in scope.connections() {
                if let Some(mut other) = scope.conn(id)
                    && other.is_websocket()
                {
                    other.ws_text("to all").unwrap();
                }
            }
        }
        Event::WebSocketMessage { data, .. } => conn.ws_send(MessageKind::Text, data).unwrap(),
        _ => {}
    }
}

#[test]
fn a_stream_becomes_a_websocket_as_a_connection_does() {
    let mut fixture = fixture(|conn, event| echo(conn, &event));
    let mut peer = Peer::new(&fixture);
    for stream in [1, 3] {
        let block = peer.open(&mut fixture, stream, "/socket");
        assert!(begins_with_200(&block), "{block:?}");
        assert_eq!(peer.hear(&mut fixture, stream), b"welcome");
    }
    peer.say(3, 1, b"hello");
    assert_eq!(peer.hear(&mut fixture, 3), b"hello");
    peer.say(1, 1, b"all");
    for stream in [1, 3] {
        assert_eq!(peer.hear(&mut fixture, stream), b"to all");
    }
    // Requests go on beside them, and come to connections of their own.
    peer.ask(5, "/plain", true);
    assert_eq!(peer.answer(&mut fixture, 5), "plain");
    let id = fixture.log.id_of("text 'hello'").unwrap();
    peer.say(3, CLOSE, &1000_u16.to_be_bytes());
    assert_eq!(peer.hear(&mut fixture, 3), 1000_u16.to_be_bytes());
    until(&mut fixture, &mut peer, |fixture| {
        fixture.log.of(id).last().unwrap() == "close"
    });
    let events = [
        "open",
        "accept",
        "headers GET /socket",
        "message /socket ''",
        "websocketopen",
        "text 'hello'",
        "control 8 '\\x03\\xe8'",
        "close",
    ];
    assert_eq!(fixture.log.of(id), events);
    // The listener, the connection and the other WebSocket.
    assert_eq!(fixture.manager.connections().len(), 3);
}

#[test]
fn a_websocket_on_a_stream_ends_in_every_way_and_alone() {
    let mut fixture = fixture(|conn, event| echo(conn, &event));
    let mut peer = Peer::new(&fixture);
    for stream in [1, 3, 5, 7] {
        peer.open(&mut fixture, stream, "/socket");
        assert_eq!(peer.hear(&mut fixture, stream), b"welcome");
    }
    peer.say(1, 1, b"close");
    assert_eq!(peer.hear(&mut fixture, 1), 1000_u16.to_be_bytes());
    peer.say(1, CLOSE, &1000_u16.to_be_bytes());
    peer.say(3, 1, b"abort");
    assert_eq!(peer.reset_code(&mut fixture, 3), 8);
    peer.reset(5);
    until(&mut fixture, &mut peer, |fixture| {
        fixture.log.count("close") == 3
    });
    peer.say(7, 1, b"still here");
    assert_eq!(peer.hear(&mut fixture, 7), b"still here");
    drop(peer);
    fixture.until("all are told", |log| log.count("close") == 5);
    assert_eq!(fixture.manager.connections().len(), 1);
}

#[test]
fn a_socket_may_be_accepted_by_another_handshake_alone() {
    let mut fixture = fixture(|conn, event| {
        if let Event::HttpMessage(message) = event {
            match message.path() {
                "/hijack" => {
                    assert!(matches!(conn.hijack(), Err(ConnError::Protocol)));
                    conn.reply(403, &[], b"").unwrap();
                }
                // It would be taken for a WebSocket.
                "/ok" => conn.reply(200, &[], b"ok").unwrap(),
                "/close" => conn.close(),
                _ => panic!("on purpose"),
            }
        }
    });
    let mut peer = Peer::new(&fixture);
    for (stream, path) in [(1, "/hijack"), (3, "/ok")] {
        let block = peer.open(&mut fixture, stream, path);
        assert!(!begins_with_200(&block), "{path}: {block:?}");
    }
    for (stream, path) in [(5, "/close"), (7, "/panic")] {
        let lines = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", path),
            ("sec-websocket-version", "13"),
        ];
        peer.head(stream, &lines, false);
        peer.wait_for(&mut fixture, RESET, stream);
    }
    until(&mut fixture, &mut peer, |fixture| {
        fixture.log.count("close") == 4
    });
}

#[test]
fn the_end_of_a_connection_is_that_of_its_websockets() {
    for abort in [false, true] {
        let mut fixture = fixture(|conn, event| echo(conn, &event));
        let mut peer = Peer::new(&fixture);
        for stream in [1, 3] {
            peer.open(&mut fixture, stream, "/socket");
            assert_eq!(peer.hear(&mut fixture, stream), b"welcome");
        }
        let connection = fixture.manager.connections()[1];
        let mut conn = fixture.manager.conn(connection).unwrap();
        assert!(!conn.is_websocket());
        if abort {
            conn.abort();
        } else {
            conn.close();
        }
        drop(peer);
        fixture.until("all are told", |log| log.count("close") == 3);
        assert_eq!(fixture.manager.connections().len(), 1);
    }
}

#[test]
fn a_manager_that_is_closed_tells_its_websockets_on_streams() {
    let mut fixture = fixture(|conn, event| echo(conn, &event));
    let mut peer = Peer::new(&fixture);
    peer.open(&mut fixture, 1, "/socket");
    assert_eq!(peer.hear(&mut fixture, 1), b"welcome");
    fixture.manager.close();
    assert_eq!(fixture.log.count("open"), fixture.log.count("close"));
}
