//! Which events come, when, and how often.

use crate::support::{Client, Fixture, answer, get};
use dwell_engine::manager::{Event, EventKind, EventSet, ManagerOptions};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn two_requests_on_one_connection_in_the_reference_order() {
    let mut fixture = Fixture::new("http", answer);
    let (mut client, id) = fixture.client();
    for target in ["/a", "/b"] {
        client.send(get(target));
        fixture.receive(&mut client, "you asked for");
    }
    drop(client);
    fixture.until_line("close");
    let of_request = |target: &str| {
        let length = get(target).len();
        [
            format!("headers GET {target}"),
            format!("message {target} ''"),
            format!("read {length} ''"),
            "write".into(),
        ]
    };
    let mut expected = vec!["open".to_owned(), "accept".into()];
    expected.extend(of_request("/a"));
    expected.extend(of_request("/b"));
    expected.push("close".into());
    assert_eq!(fixture.log.of(id), expected);
    assert_eq!(fixture.log.of(fixture.listener), ["open"]);
    fixture.manager.close();
    assert_eq!(fixture.log.of(fixture.listener), ["open", "close"]);
}

#[test]
fn the_addresses_of_a_client_are_known_while_it_is_there() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    let mut fixture = Fixture::new("http", move |conn, event| {
        if !conn.is_listening() {
            let addresses = (conn.remote_address(), conn.local_address());
            sink.lock().unwrap().push((event.kind(), addresses));
        }
        answer(conn, event);
    });
    let (mut client, _) = fixture.client();
    client.send("POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n");
    fixture.until_line("headers POST /body");
    client.send("body");
    fixture.receive(&mut client, "you asked for /body.");
    let expected = (Some(client.address()), Some(fixture.address));
    drop(client);
    fixture.until_line("close");
    let mut told = EventSet::NONE;
    for (kind, addresses) in heard.lock().unwrap().iter() {
        if *kind != EventKind::Close {
            assert_eq!(*addresses, expected, "{kind:?}");
        }
        told = told.with(*kind);
    }
    for kind in [EventKind::Open, EventKind::Accept, EventKind::HttpHeaders] {
        assert!(told.contains(kind), "{kind:?}");
    }
    for kind in [EventKind::HttpMessage, EventKind::Read, EventKind::Write] {
        assert!(told.contains(kind), "{kind:?}");
    }
}

#[test]
fn a_body_in_many_pieces_has_its_headers_told_once() {
    let mut fixture = Fixture::new("http", answer);
    let (mut client, _) = fixture.client();
    client.send("POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n");
    for byte in "0123456789".chars() {
        client.send(byte.to_string());
        fixture.poll();
        fixture.poll();
    }
    fixture.receive(&mut client, "you asked for /body.");
    assert_eq!(fixture.log.count("headers POST /body"), 1);
    assert_eq!(fixture.log.count("message /body '0123456789'"), 1);
}

#[test]
fn no_handler_runs_for_an_idle_connection() {
    let mut fixture = Fixture::new("http", answer);
    let clients: Vec<_> = (0..20).map(|_| fixture.client()).collect();
    let before = fixture.log.all().len();
    for _ in 0..100 {
        fixture.poll();
    }
    assert_eq!(fixture.log.all().len(), before);
    assert_eq!(fixture.manager.connection_count(), clients.len() + 1);
}

#[test]
fn poll_events_come_where_they_were_asked_for() {
    let mut fixture = Fixture::new("tcp", |_, _| {});
    let (_client, id) = fixture.client();
    let mut conn = fixture.manager.conn(id).unwrap();
    conn.set_poll_events(true);
    conn.set_poll_events(true);
    for _ in 0..3 {
        fixture.poll();
    }
    assert_eq!(fixture.log.count("poll"), 3);
    fixture.manager.conn(id).unwrap().set_poll_events(false);
    for _ in 0..3 {
        fixture.poll();
    }
    assert_eq!(fixture.log.count("poll"), 3);
    let listener = fixture.listener;
    fixture
        .manager
        .conn(listener)
        .unwrap()
        .set_poll_events(true);
    let (client, child) = fixture.client();
    let before = fixture.log.of(child).len();
    fixture.poll();
    assert_eq!(fixture.log.of(child).len(), before + 1, "it is inherited");
    drop(client);
    fixture.until_line("close");
    fixture.poll();
    assert_eq!(fixture.log.of(child).last().unwrap(), "close");
}

#[test]
fn unwanted_events_are_not_told() {
    let mut options = ManagerOptions::default();
    options.events = EventSet::NONE.with(EventKind::HttpMessage);
    let mut fixture = Fixture::with_options("http", options, answer);
    let mut client = Client::connect(fixture.address);
    client.send(get("/only"));
    fixture.receive(&mut client, "you asked for /only.");
    drop(client);
    for _ in 0..3 {
        fixture.manager.poll(Duration::from_millis(1)).unwrap();
    }
    let lines: Vec<_> = fixture
        .log
        .all()
        .into_iter()
        .map(|(_, line)| line)
        .collect();
    assert_eq!(lines, ["message /only ''"]);
}

#[test]
fn a_panic_costs_one_connection_and_is_counted() {
    let mut fixture = Fixture::new("http", |conn, event| {
        if let Event::HttpMessage(message) = &event {
            assert_ne!(message.path(), "/panic", "as the test wants it");
        }
        answer(conn, event);
    });
    let (mut victim, id) = fixture.client();
    let (mut other, _) = fixture.client();
    victim.send(get("/panic"));
    assert_eq!(fixture.rest(&mut victim), "");
    assert_eq!(fixture.log.of(id).last().unwrap(), "close");
    other.send(get("/fine"));
    fixture.receive(&mut other, "you asked for /fine.");
    assert_eq!(fixture.manager.panics(), 1);
}

#[test]
fn ids_rise_and_are_never_used_again() {
    let mut fixture = Fixture::new("tcp", |_, _| {});
    let mut last = fixture.listener;
    for _ in 0..5 {
        let (client, id) = fixture.client();
        assert!(id > last);
        assert!(fixture.manager.connections().contains(&id));
        last = id;
        drop(client);
        let closed = fixture.log.count("close");
        fixture.until("it is gone", |log| log.count("close") > closed);
        assert!(fixture.manager.conn(id).is_none());
    }
    assert_eq!(fixture.manager.connections(), [fixture.listener]);
}

#[test]
fn handlers_are_handed_down_and_can_be_changed() {
    let mut fixture = Fixture::new("tcp", |_, _| {});
    let log = fixture.log.clone();
    let written = log.clone();
    let second = fixture
        .manager
        .listen_with("tcp://127.0.0.1:0", move |conn, event| {
            written.add(conn.id(), format!("second {:?}", event.kind()));
        })
        .unwrap();
    assert_eq!(log.of(second), ["second Open"]);
    let address = fixture
        .manager
        .conn(second)
        .unwrap()
        .local_address()
        .unwrap();
    let mut client = Client::connect(address);
    fixture.until_line("second Accept");
    let id = log.id_of("second Accept").unwrap();
    let written = log.clone();
    let mut conn = fixture.manager.conn(id).unwrap();
    conn.set_handler(move |conn, event| {
        written.add(conn.id(), format!("third {:?}", event.kind()));
    });
    client.send("x");
    fixture.until_line("third Read");
    drop(client);
    fixture.until_line("third Close");
    assert_eq!(log.count("accept"), 0);
}
