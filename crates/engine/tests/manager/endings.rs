//! How connections and managers end.

use crate::support::{Client, Fixture, PATIENCE, answer, get};
use dwell_engine::manager::{ConnError, Event, Manager, ManagerError, ManagerOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn close_in_a_handler_sends_the_answer_first_and_nothing_after() {
    let mut fixture = Fixture::new("http", |conn, event| {
        let asked = matches!(event, Event::HttpMessage(_));
        answer(conn, event);
        if asked {
            conn.close();
            conn.close();
            assert!(conn.is_closing());
            assert_eq!(conn.send(b"x"), Err(ConnError::Closed));
        }
    });
    let (mut client, id) = fixture.client();
    client.send(get("/one").repeat(3));
    let text = fixture.rest(&mut client);
    assert_eq!(text.matches("HTTP/1.1 200").count(), 1);
    assert!(text.ends_with("you asked for /one."));
    fixture.until_line("close");
    assert_eq!(
        fixture
            .log
            .of(id)
            .iter()
            .filter(|line| *line == "close")
            .count(),
        1
    );
    assert!(fixture.manager.conn(id).is_none());
}

#[test]
fn drain_lets_the_owed_answer_out_and_serves_nothing_more() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpMessage(_) = event {
            conn.drain();
            assert!(conn.is_draining());
            conn.reply(200, &[], b"last").unwrap();
        }
    });
    let (mut client, _) = fixture.client();
    client.send(get("/one").repeat(2));
    let text = fixture.rest(&mut client);
    assert_eq!(text.matches("HTTP/1.1 200").count(), 1);
    assert!(text.contains("\r\nConnection: close\r\n"));
}

#[test]
fn drain_of_a_held_request_waits_for_its_answer() {
    let mut fixture = Fixture::new("http", |_, _| {});
    let (mut client, id) = fixture.client();
    client.send(get("/later"));
    fixture.until_line("message /later ''");
    fixture.manager.conn(id).unwrap().drain();
    for _ in 0..3 {
        fixture.poll();
    }
    fixture
        .manager
        .conn(id)
        .unwrap()
        .reply(200, &[], b"now")
        .unwrap();
    assert!(fixture.rest(&mut client).ends_with("now"));
}

#[test]
fn a_handler_drains_another_connection_which_is_answered_first() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpMessage(message) = event
            && message.path() == "/drain"
        {
            let own = conn.id();
            let mut scope = conn.scope();
            for id in scope.connections() {
                let mut other = scope.conn(id).unwrap();
                if id != own && !other.is_listening() {
                    other.drain();
                }
            }
            conn.reply(204, &[], b"").unwrap();
        }
    });
    let (mut held, id) = fixture.client();
    held.send(get("/held"));
    fixture.until_line("message /held ''");
    let (mut client, _) = fixture.client();
    client.send(get("/drain"));
    fixture.receive(&mut client, "\r\n\r\n");
    let mut conn = fixture.manager.conn(id).unwrap();
    assert!(conn.is_draining() && !conn.is_closing());
    conn.reply(200, &[], b"the last").unwrap();
    assert!(fixture.rest(&mut held).ends_with("the last"));
}

#[test]
fn an_idle_connection_is_closed_from_outside() {
    for scheme in ["http", "tcp"] {
        let mut fixture = Fixture::new(scheme, |_, _| {});
        for closes in [true, false] {
            let (mut client, id) = fixture.client();
            let mut conn = fixture.manager.conn(id).unwrap();
            if closes {
                conn.close();
            } else {
                conn.abort();
            }
            assert!(conn.is_closing());
            assert_eq!(fixture.rest(&mut client), "");
            assert_eq!(client.was_reset, !closes);
            fixture.until("told", |log| log.of(id).last().unwrap() == "close");
            assert!(fixture.manager.conn(id).is_none());
        }
    }
}

#[test]
fn a_listener_that_is_closed_frees_its_port_and_keeps_its_clients() {
    for scheme in ["http", "tcp"] {
        let mut fixture = Fixture::new(scheme, |_, _| {});
        let (_client, id) = fixture.client();
        let listener = fixture.listener;
        fixture.manager.conn(listener).unwrap().close();
        fixture.until("told", |log| log.of(listener).last().unwrap() == "close");
        assert!(TcpStream::connect(fixture.address).is_err());
        assert_eq!(fixture.manager.connections(), [id]);
    }
}

#[test]
fn error_ends_the_connection_after_it_was_told() {
    let mut fixture = Fixture::new("tcp", |conn, event| {
        if let Event::Read { .. } = event {
            conn.error("as the handler wants it");
        }
    });
    let (mut client, id) = fixture.client();
    client.send("x");
    fixture.rest(&mut client);
    fixture.until_line("close");
    let lines = fixture.log.of(id);
    let end = &lines[lines.len() - 2..];
    assert_eq!(end, ["error: as the handler wants it", "close"]);
}

#[test]
fn closing_the_manager_flushes_tells_and_refuses() {
    let mut fixture = Fixture::new("tcp", |_, _| {});
    let (client, id) = fixture.client();
    drop(client);
    fixture.until_line("close");
    let body = vec![b'z'; 8 << 20];
    let address = fixture.address;
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"x").unwrap();
        stream.read_to_end(&mut received).unwrap();
        received.len()
    });
    fixture.until("it comes", |log| log.count("read 1 'x'") > 0);
    let second = fixture.manager.connections()[1];
    assert!(second > id);
    let mut conn = fixture.manager.conn(second).unwrap();
    conn.send(&body).unwrap();
    assert!(conn.queued_bytes() > 0);
    fixture.manager.close();
    assert_eq!(reader.join().unwrap(), body.len());
    assert_eq!(fixture.log.of(second).last().unwrap(), "close");
    assert_eq!(fixture.log.of(fixture.listener).last().unwrap(), "close");
    fixture.manager.close();
    let manager = &mut fixture.manager;
    assert!(manager.is_closed());
    assert!(manager.conn(second).is_none());
    assert!(manager.connections().is_empty());
    let closed = |result: Result<(), ManagerError>| matches!(result, Err(ManagerError::Closed));
    assert!(closed(manager.poll(None)));
    assert!(closed(manager.run()));
    assert!(closed(manager.listen("tcp://127.0.0.1:0").map(drop)));
    assert!(closed(manager.connect("tcp://127.0.0.1:1").map(drop)));
    assert!(closed(
        manager.timer(Duration::ZERO, false, |_| {}).map(drop)
    ));
    assert!(closed(manager.fileno().map(drop)));
    assert!(closed(manager.wait_max().map(drop)));
    assert!(closed(manager.scope().map(drop)));
}

#[test]
fn closing_does_not_wait_for_idle_or_held_clients_nor_for_ever() {
    let mut options = ManagerOptions::default();
    options.close_timeout = PATIENCE;
    let mut fixture = Fixture::with_options("http", options, |_, _| {});
    let (mut held, _) = fixture.client();
    held.send(get("/held"));
    fixture.until_line("message /held ''");
    let (_idle, _) = fixture.client();
    let begun = Instant::now();
    fixture.manager.close();
    assert!(begun.elapsed() < PATIENCE / 2);
    assert_eq!(fixture.log.count("close"), 3);

    options.close_timeout = Duration::from_millis(200);
    let mut fixture = Fixture::with_options("tcp", options, |_, _| {});
    let (_client, id) = fixture.client();
    let mut conn = fixture.manager.conn(id).unwrap();
    conn.send(&vec![0; 16 << 20]).unwrap();
    let begun = Instant::now();
    fixture.manager.close();
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(200), "{waited:?}");
    assert_eq!(fixture.log.count("close"), 2);
}

#[test]
fn dropped_and_closed_managers_leave_no_descriptor() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let make = |closes: bool| {
        let mut fixture = Fixture::new("http", answer);
        let mut clients: Vec<_> = (0..10).map(|_| fixture.client().0).collect();
        clients[0].send(get("/"));
        fixture.receive(&mut clients[0], "you asked for /.");
        if closes {
            fixture.manager.close();
        }
    };
    // Other tests open and close descriptors meanwhile, so what counts is whether it adds up.
    let before = open();
    for round in 0..40 {
        make(round % 2 == 0);
    }
    let left = open().saturating_sub(before);
    assert!(left < 400, "{left} descriptors are left");
}

#[test]
fn a_peer_that_resets_is_an_error_and_an_end() {
    let mut fixture = Fixture::new("tcp", |_, _| {});
    let stream = TcpStream::connect(fixture.address).unwrap();
    fixture.until_line("accept");
    let linger = Some(Duration::ZERO);
    socket2::SockRef::from(&stream).set_linger(linger).unwrap();
    drop(stream);
    fixture.until_line("close");
    let id = fixture.log.id_of("accept").unwrap();
    let lines = fixture.log.of(id);
    assert!(
        lines[lines.len() - 2].starts_with("error: connection failed"),
        "{lines:?}"
    );
}

#[test]
fn nothing_new_begins_while_a_manager_closes() {
    let mut fixture = Fixture::new("tcp", |conn, event| {
        if let Event::Close = event {
            let listened = conn.scope().listen("tcp://127.0.0.1:0");
            assert!(matches!(listened, Err(ManagerError::Closed)));
        }
    });
    let _client: (Client, u64) = fixture.client();
    fixture.manager.close();
    assert_eq!(fixture.log.count("close"), 2);
    let mut manager = Manager::new(|_, _| {}).unwrap();
    manager.abort();
    assert!(manager.is_closed());
}
