//! Raw connections: bytes, bounds, addresses, user data.

use crate::support::{Client, Fixture};
use dwell_engine::manager::{Conn, ConnError, Event, Manager, ManagerOptions};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn echo(conn: &mut Conn<'_>, event: &Event<'_>) {
    if let Event::Read { data, .. } = event {
        conn.send(data).unwrap();
    }
}

#[test]
fn bytes_come_and_go() {
    let mut fixture = Fixture::new("tcp", |conn, event| echo(conn, &event));
    let (mut client, id) = fixture.client();
    client.send("hello");
    fixture.receive(&mut client, "hello");
    let expected = ["open", "accept", "read 5 'hello'", "write"];
    assert_eq!(fixture.log.of(id), expected);
}

#[test]
fn what_is_kept_is_handed_out_again() {
    let mut fixture = Fixture::new("tcp", |conn, event| {
        if let Event::Read { data, .. } = event {
            let lines = data.iter().rposition(|byte| *byte == b'\n');
            conn.keep(data.len() - lines.map_or(0, |end| end + 1));
        }
    });
    let (mut client, id) = fixture.client();
    for piece in ["one\nt", "wo\n"] {
        client.send(piece);
        let before = fixture.log.of(id).len();
        fixture.until("it comes", |log| log.of(id).len() > before);
    }
    let lines = fixture.log.of(id);
    assert_eq!(lines[2..], [r"read 5 'one\nt'", r"read 3 'two\n'"]);
}

#[test]
fn output_is_bounded_and_goes_on_when_it_is_drained() {
    let mut options = ManagerOptions::default();
    options.streams.output_bytes_max = 100_000;
    let mut fixture = Fixture::with_options("tcp", options, |conn, event| {
        if matches!(event, Event::Drained) {
            conn.send(b"the end").unwrap();
        }
    });
    let (mut client, id) = fixture.client();
    let mut conn = fixture.manager.conn(id).unwrap();
    let piece = vec![b'x'; 50_000];
    let mut sent = 0;
    while conn.send(&piece).is_ok() {
        sent += piece.len();
    }
    assert!(conn.is_full() && conn.is_writable());
    assert!(conn.queued_bytes() < 150_000);
    assert_eq!(conn.send(b"more"), Err(ConnError::Full { limit: 100_000 }));
    let received = fixture.receive(&mut client, "the end");
    assert_eq!(received.len(), sent + "the end".len());
}

#[test]
fn a_paused_connection_is_not_read() {
    let mut fixture = Fixture::new("tcp", |conn, event| echo(conn, &event));
    let (mut client, id) = fixture.client();
    fixture.manager.conn(id).unwrap().pause();
    client.send("waits");
    for _ in 0..5 {
        fixture.poll();
    }
    assert!(!fixture.log.has("read 5 'waits'"));
    fixture.manager.conn(id).unwrap().resume();
    fixture.receive(&mut client, "waits");
}

#[test]
fn addresses_flags_and_user_data() {
    let mut fixture = Fixture::new("tcp", |conn, event| match event {
        Event::Accept => conn.set_user_data(0_usize),
        Event::Read { data, .. } => *conn.user_data::<usize>().unwrap() += data.len(),
        _ => {}
    });
    let (mut client, id) = fixture.client();
    let (address, listener) = (fixture.address, fixture.listener);
    client.send("four");
    fixture.until_line("read 4 'four'");
    let mut conn = fixture.manager.conn(id).unwrap();
    assert_eq!(conn.local_address(), Some(address));
    assert!(conn.remote_address().unwrap().ip().is_loopback());
    assert_eq!(conn.user_data::<usize>(), Some(&mut 4));
    assert_eq!(conn.user_data::<String>(), None);
    assert!(!conn.is_listening() && !conn.is_client() && !conn.is_websocket());
    assert!(!conn.is_closing() && !conn.is_full() && !conn.is_draining());
    let mut conn = fixture.manager.conn(listener).unwrap();
    assert!(conn.is_listening());
    assert_eq!(conn.remote_address(), None);
    assert_eq!(conn.send(b"x"), Err(ConnError::Protocol));
    assert_eq!(conn.reply(200, &[], b""), Err(ConnError::Protocol));
}

#[test]
fn another_connection_is_reached_from_a_handler() {
    // A chat: what one says, all hear.
    let mut fixture = Fixture::new("tcp", |conn, event| {
        if let Event::Read { data, .. } = event {
            let mut scope = conn.scope();
            for id in scope.connections() {
                let mut other = scope.conn(id).unwrap();
                if !other.is_listening() {
                    other.send(data).unwrap();
                }
            }
        }
    });
    let mut clients: Vec<_> = (0..5).map(|_| fixture.client().0).collect();
    clients[2].send("hear, hear");
    for client in &mut clients {
        fixture.receive(client, "hear, hear");
    }
}

#[test]
fn a_handler_listens_and_connects() {
    let mut fixture = Fixture::new("tcp", |conn, event| match event {
        Event::Read { data: b"new", .. } => {
            let mut scope = conn.scope();
            let id = scope.listen("tcp://127.0.0.1:0").unwrap();
            let address = scope.conn(id).unwrap().local_address().unwrap();
            scope.connect(&format!("tcp://{address}")).unwrap();
            conn.send(format!("{address};").as_bytes()).unwrap();
        }
        Event::Connect => conn.send(b"from within").unwrap(),
        _ => {}
    });
    let (mut client, _) = fixture.client();
    client.send("new");
    let address = fixture.receive(&mut client, ";");
    fixture.until_line("read 11 'from within'");
    let address = address.trim_end_matches(';').parse().unwrap();
    let accepted = fixture.log.count("accept");
    let _second = Client::connect(address);
    fixture.until("it is accepted", |log| log.count("accept") > accepted);
    assert_eq!(fixture.log.count("open"), 6, "{:?}", fixture.log.all());
}

#[test]
fn a_unix_socket_is_listened_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raw.sock");
    let mut manager = Manager::new(|conn, event| echo(conn, &event)).unwrap();
    let listener = manager
        .listen(&format!("unix://{}", path.display()))
        .unwrap();
    assert_eq!(manager.conn(listener).unwrap().local_address(), None);
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"local").unwrap();
    manager.poll(Duration::from_secs(5)).unwrap();
    manager.poll(Duration::from_secs(5)).unwrap();
    let mut received = [0; 5];
    client.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"local");
}
