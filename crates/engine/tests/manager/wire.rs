//! What a server has to withstand on the wire, a row for each: HTTP first, then WebSocket.

use crate::support::{Fixture, answer};
use dwell_engine::manager::{Event, ManagerOptions};
use dwell_engine::websocket::UpgradeOptions;
use std::time::Duration;

/// What is sent, the status of each answer in order, and whether the connection is over then.
type Row = (&'static str, String, &'static [u16], bool);

fn rows() -> Vec<Row> {
    let many = |last: &str| {
        let fields = "X-Many: 1\r\n".repeat(40);
        format!("POST /a HTTP/1.1\r\nHost: h\r\n{fields}{last}\r\n\r\n")
    };
    let next = "GET /b HTTP/1.1\r\nHost: h\r\n\r\n";
    vec![
        (
            "a content-length behind 40 fields is a content-length",
            many(&format!("Content-Length: {}", next.len())) + next + next,
            &[200, 200],
            false,
        ),
        (
            "a POST without a length swallows nothing",
            format!("POST /a HTTP/1.1\r\nHost: h\r\n\r\n{next}"),
            &[200, 200],
            false,
        ),
        (
            "HTTP/1.0 ends with its answer",
            "GET /a HTTP/1.0\r\n\r\n".into(),
            &[200],
            true,
        ),
        (
            "Connection: close is honoured",
            format!("GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n{next}"),
            &[200],
            true,
        ),
        (
            "a request without Host is refused",
            "GET /a HTTP/1.1\r\n\r\n".into(),
            &[400],
            true,
        ),
        (
            "two ways of framing are refused",
            "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
                .into(),
            &[400],
            true,
        ),
        (
            "a bare line feed ends no field",
            "GET /a HTTP/1.1\nHost: h\n\n".into(),
            &[400],
            true,
        ),
        (
            "what is no request is told so",
            "nonsense\r\n\r\n".into(),
            &[400],
            true,
        ),
        (
            "a head without an end is told so",
            format!("GET /a HTTP/1.1\r\nHost: h\r\nX: {}", "x".repeat(40_000)),
            &[431],
            true,
        ),
        (
            "a client that waits for 100 is told to go on",
            "POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
                .into(),
            &[100],
            false,
        ),
    ]
}

#[test]
fn requests_of_every_sort_are_answered_as_they_must() {
    for (name, request, statuses, ends) in rows() {
        let mut fixture = Fixture::new("http", answer);
        let (mut client, _) = fixture.client();
        client.offer(request.as_bytes());
        for status in statuses {
            let line = fixture.receive(&mut client, &format!("HTTP/1.1 {status} "));
            assert_eq!(line.matches("HTTP/1.1").count(), 1, "{name}: {line}");
        }
        if ends {
            let rest = fixture.rest(&mut client);
            assert!(!rest.contains("HTTP/1.1"), "{name}: {rest}");
        } else {
            for _ in 0..3 {
                fixture.poll();
                client.read();
            }
            assert!(!client.ended, "{name}");
        }
    }
}

#[test]
fn a_body_of_more_than_three_megabytes_is_handed_over() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpMessage(message) = event {
            let size = message.body().len();
            conn.reply(200, &[], format!("{size} bytes.").as_bytes())
                .unwrap();
        }
    });
    let (mut client, _) = fixture.client();
    let size = 3_500_000;
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n"
    ));
    let (body, mut sent) = (vec![b'b'; size], 0);
    while sent < size {
        sent += client.offer(&body[sent..]);
        fixture.poll();
    }
    fixture.receive(&mut client, "3500000 bytes.");
}

#[test]
fn frames_that_break_the_protocol_are_closed_with_its_code() {
    let mask = |opcode: u8, payload: &[u8]| {
        let mut frame = vec![opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(payload);
        frame
    };
    let long_ping = {
        let mut frame = vec![0x89, 0x80 | 0x7e, 0, 200, 0, 0, 0, 0];
        frame.extend_from_slice(&[b'p'; 200]);
        frame
    };
    let huge = [
        &[0x82, 0x80 | 0x7f][..],
        &(1_u64 << 30).to_be_bytes(),
        &[0; 4],
    ]
    .concat();
    let rows: [(&str, Vec<u8>, u16); 8] = [
        ("without a mask", vec![0x81, 1, b'x'], 1002),
        ("a reserved bit", mask(0xc1, b"x"), 1002),
        ("a reserved opcode", mask(0x83, b"x"), 1002),
        ("text that is no UTF-8", mask(0x81, b"\xff"), 1007),
        ("a long ping", long_ping, 1002),
        ("a close of one byte", mask(0x88, b"x"), 1002),
        ("a continuation of nothing", mask(0x80, b"x"), 1002),
        ("an announced gigabyte", huge, 1009),
    ];
    for (name, frame, code) in rows {
        let mut fixture = Fixture::new("http", |conn, event| {
            if let Event::HttpMessage(message) = event {
                conn.ws_upgrade(&message, &UpgradeOptions::default())
                    .unwrap();
            }
        });
        let (mut client, id) = fixture.client();
        client.send(
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        fixture.receive(&mut client, "\r\n\r\n");
        client.send(&frame);
        while client.received.len() < 4 {
            fixture.manager.poll(Duration::from_millis(2)).unwrap();
            client.read();
            assert!(!client.ended || client.received.len() >= 4, "{name}");
        }
        assert_eq!(client.received[0], 0x88, "{name}");
        assert_eq!(client.received[2..4], code.to_be_bytes(), "{name}");
        client.try_shutdown();
        fixture.until("told", |log| log.of(id).last().unwrap() == "close");
        let lines = fixture.log.of(id);
        assert!(
            lines[lines.len() - 2].starts_with("error: "),
            "{name}: {lines:?}"
        );
    }
}

#[test]
fn much_that_comes_right_behind_a_handshake_is_not_too_much() {
    const SIZE: usize = 60_000;
    let mut options = ManagerOptions::default();
    options.websockets.output_bytes_max = 1 << 20;
    let mut fixture = Fixture::with_options("http", options, |conn, event| match event {
        Event::HttpMessage(message) => conn
            .ws_upgrade(&message, &UpgradeOptions::default())
            .unwrap(),
        Event::WebSocketOpen if !conn.is_client() => {
            conn.ws_text(&"m".repeat(SIZE)).unwrap();
        }
        _ => {}
    });
    let url = format!("ws://{}", fixture.address);
    let id = fixture.manager.ws_connect(&url).unwrap();
    let message = format!("text '{}'", "m".repeat(SIZE));
    fixture.until("it comes", |log| {
        let lines = log.of(id);
        assert!(
            !lines.iter().any(|line| line.starts_with("error")),
            "{lines:?}"
        );
        lines.contains(&message)
    });
}
