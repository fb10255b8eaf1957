//! From a request to a WebSocket, or not.

use crate::support::{Answer, Fixture, HANDSHAKE, server_message, text};
use dwell_engine::websocket::{MessageKind, WebSocketOptions};
use dwell_testkit::Rig;
use std::io::Write;
use std::net::TcpStream;

#[test]
fn a_handshake_is_answered() {
    let mut fixture = Fixture::echo();
    let (_, head) = fixture.ask("/", HANDSHAKE);
    let lines: Vec<_> = head.split("\r\n").collect();
    assert_eq!(lines[0], "HTTP/1.1 101 Switching Protocols");
    for line in [
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
        "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; \
         client_no_context_takeover",
        "X-Own: mine",
    ] {
        assert!(lines.contains(&line), "{line} not in {head}");
    }
    assert!(!head.contains("Content-Length"), "{head}");
    assert_eq!(fixture.server.sockets.connections(), 1);
    assert_eq!(fixture.server.http.connections(), 0);
}

#[test]
fn what_is_no_handshake_is_refused() {
    let cases = [
        ("", "400"),
        ("Upgrade: websocket\r\nConnection: Upgrade\r\n", "426"),
        ("Upgrade: websocket\r\n", "400"),
    ];
    for (fields, status) in cases {
        let (_, head) = Fixture::echo().ask("/", fields);
        assert_eq!(head.split(' ').nth(1), Some(status), "{fields} {head}");
    }
    let older = HANDSHAKE.replace("Version: 13", "Version: 8");
    let (_, head) = Fixture::echo().ask("/", &older);
    assert!(head.starts_with("HTTP/1.1 426 "), "{head}");
    assert!(head.contains("Sec-WebSocket-Version: 13\r\n"), "{head}");
    assert!(head.contains("Upgrade: websocket\r\n"), "{head}");
    let short = HANDSHAKE.replace("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ=");
    let (_, head) = Fixture::echo().ask("/", &short);
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
}

#[test]
fn a_page_of_another_host_is_refused() {
    let elsewhere = format!("{HANDSHAKE}Origin: https://elsewhere.example\r\n");
    let (_, head) = Fixture::echo().ask("/", &elsewhere);
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let (_, head) = Fixture::echo().ask("/anybody", &elsewhere);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let here = format!("{HANDSHAKE}Origin: https://localhost\r\n");
    let (_, head) = Fixture::echo().ask("/", &here);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
}

#[test]
fn the_server_chooses_the_subprotocol_it_prefers() {
    let offered = format!("{HANDSHAKE}Sec-WebSocket-Protocol: first, third, second\r\n");
    let (_, head) = Fixture::echo().ask("/spoken", &offered);
    assert!(
        head.contains("\r\nSec-WebSocket-Protocol: second\r\n"),
        "{head}"
    );
    let (_, head) = Fixture::echo().ask("/", &offered);
    assert!(!head.contains("Sec-WebSocket-Protocol"), "{head}");
    let unknown = format!("{HANDSHAKE}Sec-WebSocket-Protocol: third\r\n");
    let (_, head) = Fixture::echo().ask("/spoken", &unknown);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(!head.contains("Sec-WebSocket-Protocol"), "{head}");
}

#[test]
fn compression_is_not_forced_on_anybody() {
    let (_, head) = Fixture::echo().ask("/plain", HANDSHAKE);
    assert!(!head.contains("Extensions"), "{head}");
    let lines = HANDSHAKE.split_inclusive("\r\n");
    let without: String = lines.filter(|line| !line.contains("Extensions")).collect();
    let (_, head) = Fixture::echo().ask("/", &without);
    assert!(!head.contains("Extensions"), "{head}");
}

#[test]
fn messages_that_came_with_the_handshake_are_not_lost() {
    let mut fixture = Fixture::echo();
    let mut peer = TcpStream::connect(fixture.address).unwrap();
    let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{HANDSHAKE}\r\n");
    let third = text("third");
    let first = [
        head.as_bytes(),
        &text("first"),
        &text("second"),
        &third[..3],
    ]
    .concat();
    peer.write_all(&first).unwrap();
    fixture.turn_until("two", |server| server.app.payloads().len() == 2);
    peer.write_all(&third[3..]).unwrap();
    let expected = [&b"first"[..], b"second", b"third"]
        .map(|payload| server_message(MessageKind::Text, payload))
        .concat();
    let received = fixture.receive_until(&mut peer, |received| received.ends_with(b"third"));
    assert!(received.ends_with(&expected));
}

#[test]
fn more_connections_than_allowed_are_closed() {
    let options = WebSocketOptions {
        connections_max: 1,
        ..WebSocketOptions::default()
    };
    let mut fixture = Fixture::new(Answer::Echo, options);
    let (_peer, token) = fixture.client();
    assert!(fixture.server.sockets.contains(token));
    let second = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = dwell_evloop::Stream::connect(second.local_addr().unwrap()).unwrap();
    let detached = dwell_engine::Detached {
        stream,
        input: Vec::new(),
    };
    let negotiated =
        dwell_engine::websocket::Negotiated::new(dwell_engine::websocket::Role::Client, None);
    let context = fixture.event_loop.context();
    let error = fixture
        .server
        .sockets
        .adopt(context, detached, negotiated, 42)
        .unwrap_err();
    assert_eq!(error.to_string(), "websockets exceed 1");
}
