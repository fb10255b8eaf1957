//! Connections that come, break off, stall and go in every order, with handlers that do anything:
//! each is told one beginning and one end, and nothing is left.

use crate::support::{Client, Log};
use dwell_engine::manager::{Conn, Event, Manager, ManagerOptions};
use dwell_engine::websocket::UpgradeOptions;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What a peer does next.
#[derive(Clone, Debug)]
enum Step {
    Connect,
    Send(usize, Vec<u8>),
    HalfClose(usize),
    Drop(usize),
    Reset(usize),
    Poll,
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let known: [&[u8]; 8] = [
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHo",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabc",
        b"de",
        b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"0\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x81\x83\0\0\0\0abc\x88\x80\0\0\0\0",
    ];
    prop_oneof![
        4 => prop::sample::select(known.map(<[u8]>::to_vec).to_vec()),
        1 => Just(HANDSHAKE.to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..40),
    ]
}

const HANDSHAKE: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => Just(Step::Connect),
        5 => (any::<usize>(), pieces()).prop_map(|(peer, piece)| Step::Send(peer, piece)),
        1 => any::<usize>().prop_map(Step::HalfClose),
        1 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::Reset),
        4 => Just(Step::Poll),
    ];
    prop::collection::vec(step, 1..60)
}

/// Does one of all things a handler can do; what is refused is refused.
fn act(conn: &mut Conn<'_>, event: &Event<'_>, choice: u8) {
    let fields: &[(&str, &[u8])] = &[("X-A", b"1")];
    match choice {
        0 => drop(conn.reply(200, fields, b"whole")),
        1 => drop(conn.begin(200, fields, None)),
        2 => drop(conn.chunk(b"piece")),
        3 => drop(conn.finish(&[])),
        4 => conn.close(),
        5 => conn.abort(),
        6 => conn.drain(),
        7 => drop(conn.hijack()),
        8 => conn.pause(),
        9 => conn.resume(),
        10 => drop(conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")),
        11 => conn.stream_body(1000),
        12 => conn.error("chosen"),
        13 => conn.set_poll_events(true),
        14 => drop(conn.sse()),
        15 => conn.keep(1),
        16 => {
            let mut scope = conn.scope();
            for id in scope.connections() {
                let mut other = scope.conn(id).unwrap();
                if !other.is_listening() {
                    drop(other.send(b"from another"));
                    drop(other.ws_text("from another"));
                    if id % 3 == 0 {
                        other.close();
                    }
                }
            }
        }
        17..=19 => {
            if let Event::HttpMessage(message) = event {
                drop(conn.ws_upgrade(message, &UpgradeOptions::default()));
            }
        }
        20 => drop(conn.ws_text("text")),
        _ => drop(conn.reply_json(200, "{}")),
    }
}

fn manager(choices: Vec<u8>, log: Log) -> Manager {
    let mut options = ManagerOptions::default();
    options.close_timeout = Duration::from_millis(50);
    let next = AtomicUsize::new(0);
    Manager::with_options(options, move |conn, event| {
        match &event {
            Event::Open => log.add(conn.id(), "open"),
            Event::Close => log.add(conn.id(), "close"),
            Event::Poll => return,
            _ => log.add(conn.id(), "event"),
        }
        if !conn.is_listening() {
            let at = next.fetch_add(1, Ordering::Relaxed) % choices.len();
            act(conn, &event, choices[at]);
        }
    })
    .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_connection_has_one_beginning_and_one_end(
        steps in steps(),
        choices in prop::collection::vec(0..24_u8, 1..40),
        is_raw: bool,
    ) {
        let log = Log::default();
        let mut manager = manager(choices, log.clone());
        let scheme = if is_raw { "tcp" } else { "http" };
        let listener = manager.listen(&format!("{scheme}://127.0.0.1:0")).unwrap();
        let address = manager.conn(listener).unwrap().local_address().unwrap();
        let mut peers: Vec<Client> = Vec::new();
        for step in steps {
            let count = peers.len().max(1);
            match step {
                Step::Connect => peers.push(Client::connect(address)),
                Step::Poll => manager.poll(Duration::ZERO).unwrap(),
                Step::Send(at, piece) => {
                    if let Some(peer) = peers.get_mut(at % count) {
                        peer.offer(&piece);
                        peer.read();
                    }
                }
                Step::HalfClose(at) => {
                    if let Some(peer) = peers.get(at % count) {
                        peer.try_shutdown();
                    }
                }
                Step::Drop(at) if !peers.is_empty() => drop(peers.swap_remove(at % count)),
                Step::Reset(at) if !peers.is_empty() => peers.swap_remove(at % count).reset(),
                Step::Drop(_) | Step::Reset(_) => {}
            }
        }
        drop(peers);
        let begun = Instant::now();
        manager.poll(Duration::ZERO).unwrap();
        manager.close();
        prop_assert!(begun.elapsed() < Duration::from_secs(10));
        let lines = log.all();
        let mut ids: Vec<_> = lines.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let lines = log.of(id);
            let of = |wanted: &str| lines.iter().filter(|line| *line == wanted).count();
            prop_assert_eq!((of("open"), of("close")), (1, 1), "{} {:?}", id, lines);
            prop_assert_eq!(&lines[0], "open");
            prop_assert_eq!(lines.last().unwrap(), "close");
        }
    }
}

#[test]
fn a_manager_may_be_moved_to_another_thread() {
    fn assert_send<T: Send>() {}
    assert_send::<Manager>();
    assert_send::<dwell_engine::manager::Timer>();
    assert_send::<dwell_engine::manager::Waker>();
}
