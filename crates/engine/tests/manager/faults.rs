//! What other event-loop servers get wrong, and what a handler may do at an awkward moment.

use crate::support::{Client, Fixture, Log, answer, get};
use dwell_engine::manager::{Conn, ConnError, Event, Manager, ManagerOptions};
use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// The other connections that are no listeners.
fn others(conn: &mut Conn<'_>) -> Vec<u64> {
    let own = conn.id();
    let mut scope = conn.scope();
    let ids = scope.connections().into_iter();
    ids.filter(|id| *id != own && !scope.conn(*id).unwrap().is_listening())
        .collect()
}

#[test]
fn what_was_sent_to_another_connection_goes_out_before_it_is_closed() {
    for scheme in ["tcp", "http"] {
        let mut fixture = Fixture::new(scheme, move |conn, event| {
            let asked = match event {
                Event::Read { data, .. } => data == b"end",
                Event::HttpMessage(message) => message.path() == "/end",
                _ => false,
            };
            if !asked {
                return;
            }
            for id in others(conn) {
                let mut scope = conn.scope();
                let mut other = scope.conn(id).unwrap();
                if scheme == "tcp" {
                    other.send(b"the last words").unwrap();
                } else {
                    other.reply(200, &[], b"the last words").unwrap();
                }
                other.close();
                assert!(other.is_closing());
                assert_eq!(other.send(b"too late"), Err(ConnError::Closed));
            }
        });
        let (mut other, id) = fixture.client();
        other.send(if scheme == "tcp" {
            "x".into()
        } else {
            get("/held")
        });
        fixture.until("it waits", |log| log.of(id).len() > 2);
        let (mut client, _) = fixture.client();
        client.send(if scheme == "tcp" {
            "end".into()
        } else {
            get("/end")
        });
        let text = fixture.rest(&mut other);
        assert!(text.ends_with("the last words"), "{scheme}: {text}");
        fixture.until("told", |log| log.of(id).last().unwrap() == "close");
    }
}

#[test]
fn an_answer_at_the_head_of_an_upload_goes_out_before_a_close() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpHeaders(_) = event {
            conn.reply(403, &[], b"no uploads").unwrap();
            conn.close();
        }
    });
    for body in ["", "abc"] {
        let (mut client, id) = fixture.client();
        client.send(format!(
            "POST /up HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n{body}"
        ));
        let text = fixture.rest(&mut client);
        assert!(text.ends_with("no uploads"), "'{body}': {text}");
        fixture.until("told", |log| log.of(id).last().unwrap() == "close");
    }
    assert!(!fixture.log.has("message /up 'abc'"));
}

#[test]
fn a_connection_closed_at_a_head_is_told_of_no_message() {
    for panics in [false, true] {
        let mut fixture = Fixture::new("http", move |conn, event| {
            if let Event::HttpHeaders(_) = event {
                assert!(!panics, "as the test wants it");
                conn.close();
            }
        });
        let body = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab";
        for request in [get("/a").as_str(), body] {
            let (mut client, id) = fixture.client();
            client.send(request);
            assert_eq!(fixture.rest(&mut client), "");
            fixture.until("told", |log| log.of(id).last().unwrap() == "close");
            let lines = fixture.log.of(id);
            assert!(
                !lines.iter().any(|line| line.starts_with("mess")),
                "{lines:?}"
            );
        }
        assert_eq!(fixture.manager.panics(), if panics { 2 } else { 0 });
    }
}

#[test]
fn a_handler_that_panics_after_its_answer_is_given_no_further_request() {
    let mut fixture = Fixture::new("http", |conn, event| {
        let asked = matches!(event, Event::HttpMessage(_));
        answer(conn, event);
        assert!(!asked, "as the test wants it");
    });
    let (mut client, _) = fixture.client();
    client.send(get("/").repeat(3));
    fixture.rest(&mut client);
    fixture.until_line("close");
    assert_eq!(fixture.manager.panics(), 1);
}

#[test]
fn a_request_whose_head_was_told_is_answered_before_a_drain() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpHeaders(_) = event {
            conn.drain();
        }
        answer(conn, event);
    });
    for (head, body) in [
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n",
            "ab",
        ),
        ("GET /", " HTTP/1.1\r\nHost: h\r\n\r\n"),
    ] {
        let (mut client, _) = fixture.client();
        client.send(head);
        for _ in 0..3 {
            fixture.poll();
        }
        client.send(body);
        let text = fixture.rest(&mut client);
        assert!(text.ends_with("you asked for /."), "{text}");
        assert!(text.contains("\r\nConnection: close\r\n"));
    }
}

#[test]
fn an_upgrade_with_a_body_leaves_http_at_its_head() {
    let mut fixture = Fixture::new("http", |conn, event| match event {
        Event::HttpHeaders(_) => conn.hijack().unwrap(),
        Event::Read { data, .. } if !data.is_empty() => conn.send(data).unwrap(),
        _ => {}
    });
    let (mut client, _) = fixture.client();
    client.send("POST /raw HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
    fixture.receive(&mut client, "body");
    client.send("more");
    fixture.receive(&mut client, "more");
}

#[test]
fn a_pause_lasts_when_the_connection_leaves_http() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpMessage(_) = event {
            conn.pause();
            conn.hijack().unwrap();
        }
    });
    let (mut client, id) = fixture.client();
    client.send(get("/") + "raw");
    fixture.until_line("message / ''");
    for _ in 0..5 {
        fixture.poll();
    }
    assert!(!fixture.log.of(id).iter().any(|line| line.contains("'raw'")));
    fixture.manager.conn(id).unwrap().resume();
    fixture.until("it is read", |log| {
        log.of(id).iter().any(|line| line.contains("'raw'"))
    });
}

/// What a client is told whose server accepts, reads, and ends the connection.
fn left_without_an_answer(websocket: bool) -> Vec<String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let log = Log::default();
    let written = log.clone();
    let mut manager = Manager::new(move |conn, event| {
        if matches!(event, Event::Connect) && !websocket {
            conn.request("GET", "/", &[], b"").unwrap();
        }
        written.add(conn.id(), crate::support::line(&event));
    })
    .unwrap();
    let id = if websocket {
        manager.ws_connect(&format!("ws://{address}")).unwrap()
    } else {
        manager.connect(&format!("http://{address}")).unwrap()
    };
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        assert!(peer.read(&mut request).unwrap() > 0);
    });
    let begun = Instant::now();
    while !log.has("close") {
        assert!(begun.elapsed() < crate::support::PATIENCE);
        manager.poll(crate::support::PATIENCE).unwrap();
    }
    server.join().unwrap();
    let mut lines = log.of(id);
    lines.retain(|line| line != "write");
    lines
}

#[test]
fn a_server_that_leaves_without_an_answer_is_an_error() {
    for websocket in [false, true] {
        let expected = [
            "open",
            "connect",
            "error: connection closed before the response",
            "close",
        ];
        assert_eq!(left_without_an_answer(websocket), expected);
    }
}

#[test]
fn a_websocket_handshake_that_is_never_answered_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut options = ManagerOptions::default();
    options.streams.connect_timeout = Duration::from_millis(50);
    let mut fixture = Fixture::with_options("tcp", options, |_, _| {});
    let id = fixture
        .manager
        .ws_connect(&format!("ws://{address}"))
        .unwrap();
    let _silent: (std::net::TcpStream, _) = listener.accept().unwrap();
    fixture.until("it ends", |log| log.of(id).last().unwrap() == "close");
    let lines = fixture.log.of(id);
    assert_eq!(
        lines[lines.len() - 2],
        "error: websocket handshake timed out"
    );
}

#[test]
fn clients_that_send_half_a_request_cost_no_turns() {
    let mut fixture = Fixture::new("http", answer);
    let mut stalled: Vec<_> = (0..300).map(|_| Client::connect(fixture.address)).collect();
    for client in &mut stalled {
        client.send("GET / HTTP/1.1\r\nHo");
    }
    fixture.until("all are read", |log| {
        log.all()
            .iter()
            .filter(|(_, line)| line.starts_with("read"))
            .count()
            == 300
    });
    let begun = Instant::now();
    let (mut polls, time) = (0, Duration::from_millis(200));
    while begun.elapsed() < time {
        fixture.manager.poll(time).unwrap();
        polls += 1;
    }
    assert!(polls <= 6, "{polls} polls");
}

#[test]
fn deferred_work_of_any_depth_is_done_without_a_wait() {
    // Each listener's `Open` begins the next, deeper than one turn goes.
    let left = std::sync::atomic::AtomicUsize::new(40);
    let mut fixture = Fixture::new("tcp", move |conn, event| {
        use std::sync::atomic::Ordering::Relaxed;
        if matches!(event, Event::Open) && conn.is_listening() && left.load(Relaxed) > 0 {
            left.fetch_sub(1, Relaxed);
            conn.scope().listen("tcp://127.0.0.1:0").unwrap();
        }
    });
    let begun = Instant::now();
    while fixture.log.count("open") < 41 {
        assert!(begun.elapsed() < Duration::from_secs(10));
        fixture.manager.poll(Duration::from_secs(10)).unwrap();
    }
}

#[test]
fn a_huge_upload_that_nobody_takes_is_bounded() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpHeaders(_) = event {
            conn.stream_body(1 << 40);
            conn.pause();
        }
    });
    let (mut client, id) = fixture.client();
    client.send("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1073741824\r\n\r\n");
    fixture.until_line("headers PUT /");
    let (piece, mut sent) = (vec![b'u'; 1 << 16], 0);
    loop {
        let taken = client.offer(&piece);
        fixture.poll();
        if taken == 0 {
            break;
        }
        sent += taken;
        assert!(
            sent < 256 << 20,
            "the kernel's window holds the sender back"
        );
    }
    let bodies = fixture.log.of(id).into_iter();
    assert_eq!(bodies.filter(|line| line.starts_with("body")).count(), 0);
}

#[test]
fn a_client_that_never_reads_is_refused_more_and_cut() {
    let mut options = ManagerOptions::default();
    options.streams.output_bytes_max = 100_000;
    options.streams.write_timeout = Duration::from_millis(100);
    options.http.output_bytes_max = 100_000;
    options.http.write_timeout = Duration::from_millis(100);
    for scheme in ["tcp", "http"] {
        let is_raw = scheme == "tcp";
        let mut fixture = Fixture::with_options(scheme, options, move |conn, event| {
            let begins = match event {
                Event::Read { data, .. } => !data.is_empty(),
                Event::HttpMessage(_) => conn.begin(200, &[], None).is_ok(),
                _ => false,
            };
            if !begins {
                return;
            }
            let piece = vec![b'p'; 50_000];
            loop {
                let sent = if is_raw {
                    conn.send(&piece)
                } else {
                    conn.chunk(&piece)
                };
                if sent == Err(ConnError::Full { limit: 100_000 }) {
                    return;
                }
                sent.unwrap();
            }
        });
        let (mut client, id) = fixture.client();
        client.send(get("/"));
        fixture.until("it is cut", |log| log.of(id).last().unwrap() == "close");
    }
}

#[test]
fn what_waits_in_the_inbox_is_told_before_a_manager_closes() {
    let mut fixture = Fixture::new("http", |_, _| {});
    let (mut client, id) = fixture.client();
    client.send(get("/"));
    fixture.until_line("message / ''");
    let listener = fixture.listener;
    fixture.manager.wakeup_with(listener, "taken").unwrap();
    let answered = fixture.manager.waker().run(id, |conn| {
        conn.reply(200, &[], b"just in time").unwrap();
    });
    answered.unwrap();
    fixture.manager.close();
    assert!(fixture.log.has("wakeup 'taken'"));
    while !client.ended {
        client.read();
    }
    assert!(client.received.ends_with(b"just in time"));
}

#[test]
fn a_panic_or_an_abort_ends_what_is_told_of_a_websocket_and_of_bytes() {
    for panics in [false, true] {
        let mut fixture = Fixture::new("http", move |conn, event| match event {
            Event::HttpMessage(message) => {
                let options = dwell_engine::websocket::UpgradeOptions::default();
                conn.ws_upgrade(&message, &options).unwrap();
            }
            Event::WebSocketMessage { .. } => {
                assert!(!panics, "as the test wants it");
                conn.abort();
            }
            _ => {}
        });
        let (mut client, id) = fixture.client();
        let handshake = "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        client.send(handshake);
        fixture.receive(&mut client, "\r\n\r\n");
        client.send(b"\x81\x81\0\0\0\0a".repeat(3));
        assert_eq!(fixture.rest(&mut client), "");
        fixture.until("told", |log| log.of(id).last().unwrap() == "close");
        let lines = fixture.log.of(id);
        let messages = lines.iter().filter(|line| *line == "text 'a'");
        assert_eq!(messages.count(), 1, "{lines:?}");
    }
}

#[test]
fn the_place_of_a_unix_socket_can_be_taken_again() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("unix://{}", folder.path().join("again.sock").display());
    for ending in 0..3 {
        let mut manager = Manager::new(|_, _| {}).unwrap();
        let listener = manager.listen(&url).unwrap();
        assert!(manager.listen(&url).is_err(), "it is taken");
        match ending {
            0 => manager.close(),
            1 => manager.conn(listener).unwrap().close(),
            _ => {}
        }
    }
}
