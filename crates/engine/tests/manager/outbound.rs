//! Connections begun here.

use crate::support::{Fixture, Log, answer, line};
use dwell_engine::manager::{ConnError, Event, Manager};
use std::io::{Read, Write};
use std::net::TcpListener;

#[test]
fn a_raw_connection_is_opened_connected_and_used() {
    let mut fixture = Fixture::new("tcp", |conn, event| match event {
        Event::Connect => conn.send(b"ping").unwrap(),
        Event::Read { data: b"ping", .. } => conn.send(b"pong").unwrap(),
        Event::Read { data: b"pong", .. } => conn.close(),
        _ => {}
    });
    let url = format!("tcp://{}", fixture.address);
    let id = fixture.manager.connect(&url).unwrap();
    let mut conn = fixture.manager.conn(id).unwrap();
    assert!(conn.is_client());
    assert_eq!(conn.send(b"too early"), Err(ConnError::Closed));
    fixture.until("it ends", |log| log.count("close") == 2);
    let expected = ["open", "connect", "write", "read 4 'pong'", "close"];
    assert_eq!(fixture.log.of(id), expected);
}

#[test]
fn a_refused_connect_is_an_error_and_an_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut fixture = Fixture::new("tcp", |_, _| {});
    let id = fixture
        .manager
        .connect(&format!("tcp://{address}"))
        .unwrap();
    fixture.until_line("close");
    let expected = ["open", "error: connect failed: connection refused", "close"];
    assert_eq!(fixture.log.of(id), expected);
    assert!(fixture.manager.conn(id).is_none());
}

#[test]
fn a_host_name_is_resolved_beside_the_loop() {
    let mut fixture = Fixture::new("tcp", |_, _| {});
    let port = fixture.address.port();
    let url = format!("tcp://localhost:{port}");
    let id = fixture.manager.connect(&url).unwrap();
    fixture.until_line("connect");
    assert_eq!(fixture.log.of(id)[..3], ["open", "resolve", "connect"]);
    let url = "tcp://no-such-host.invalid:1";
    let id = fixture.manager.connect(url).unwrap();
    fixture.until("told", |log| {
        log.of(id).last().is_some_and(|line| line == "close")
    });
    assert!(fixture.log.of(id)[1].starts_with("error: "));
}

#[test]
fn requests_are_answered_in_order_on_one_connection() {
    let mut fixture = Fixture::new("http", |conn, event| match event {
        Event::Connect => {
            conn.request("GET", "/one", &[], b"").unwrap();
            conn.request("POST", "/two", &[("A", b"1")], b"body")
                .unwrap();
            conn.request("HEAD", "/three", &[], b"").unwrap();
        }
        Event::HttpMessage(message) if message.status().is_some() => {
            if message.body().is_empty() {
                conn.close();
            }
        }
        event => answer(conn, event),
    });
    let url = format!("http://{}", fixture.address);
    let id = fixture.manager.connect(&url).unwrap();
    fixture.until("it ends", |log| {
        log.of(id).last().is_some_and(|line| line == "close")
    });
    let lines = fixture.log.of(id);
    let responses: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("resp"))
        .collect();
    let expected = [
        "response 200 'you asked for /one.'",
        "response 200 'you asked for /two.'",
        "response 200 ''",
    ];
    assert_eq!(responses, expected);
    assert!(fixture.log.has("message /two 'body'"));
}

/// What a client is told of `response`.
#[test]
fn a_request_written_as_bytes_has_its_response() {
    let mut fixture = Fixture::new("http", |conn, event| match event {
        Event::Connect => {
            conn.send(b"HEAD /head HTTP/1.1\r\n").unwrap();
            conn.send(b"Host: h\r\n\r\n").unwrap();
        }
        Event::HttpMessage(message) if message.status().is_none() => {
            conn.reply(200, &[], message.path().as_bytes()).unwrap();
        }
        Event::HttpMessage(message) if message.body().is_empty() => {
            conn.send(b"GET /get HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        }
        Event::HttpMessage(message) => {
            assert_eq!(message.text(), "/get");
            conn.close();
        }
        _ => {}
    });
    let url = format!("http://{}", fixture.address);
    fixture.manager.connect(&url).unwrap();
    fixture.until("both ends", |log| log.count("close") == 2);
    assert_eq!(fixture.log.count("error"), 0);
}

fn told(response: &str) -> Vec<String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let log = Log::default();
    let written = log.clone();
    let mut manager = Manager::new(move |conn, event| {
        if matches!(event, Event::Connect) {
            conn.request("GET", "/", &[], b"").unwrap();
        }
        written.add(conn.id(), line(&event));
    })
    .unwrap();
    let id = manager.connect(&url).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    while !log.has("write") {
        manager.poll(crate::support::PATIENCE).unwrap();
    }
    let mut request = [0; 1024];
    assert!(peer.read(&mut request).unwrap() > 0);
    for byte in response.as_bytes() {
        // What is refused closes the connection, wherever the rest of it is.
        if peer.write_all(&[*byte]).is_err() {
            break;
        }
        manager.poll(std::time::Duration::ZERO).unwrap();
    }
    drop(peer);
    while !log.has("close") {
        manager.poll(crate::support::PATIENCE).unwrap();
    }
    let lines = log.of(id);
    let lines = lines.into_iter().filter(|line| !line.starts_with("read"));
    lines.skip(3).collect()
}

#[test]
fn responses_a_byte_at_a_time() {
    let headers = "headers  ".to_owned();
    let whole = |text: &str| {
        vec![
            headers.clone(),
            format!("response 200 '{text}'"),
            "close".into(),
        ]
    };
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(told(chunked), whole("abc"));
    let until_close = "HTTP/1.0 200 OK\r\n\r\nto the end";
    assert_eq!(told(until_close), whole("to the end"));
    let early = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(told(early), whole(""));
    let blank = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n\r\n";
    assert_eq!(told(blank), whole(""));
}

#[test]
fn responses_that_cannot_be_understood() {
    let cut = told("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort");
    assert_eq!(
        cut[1..],
        [
            "error: invalid response body: connection closed inside the body",
            "close"
        ]
    );
    let nonsense = told("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n");
    assert_eq!(
        nonsense,
        ["error: invalid response: malformed content-length", "close"]
    );
    let endless = "HTTP/1.1 102 Processing\r\n\r\n".repeat(33);
    assert_eq!(
        told(&endless),
        ["error: interim responses exceed 32", "close"]
    );
    let second = "HTTP/1.1 204 No Content\r\n\r\n".repeat(2);
    assert_eq!(
        told(&second)[2..],
        ["error: response without a request", "close"]
    );
}
