mod faults;
mod http2;
mod random;
#[cfg(feature = "tls")]
mod secure;

use super::*;
use std::io::{Read, Write};
use std::net::TcpStream;

/// An engine with one client.
struct Pair {
    engine: Engine,
    batch: Batch,
    client: TcpStream,
    /// What has happened so far, and its bytes.
    seen: Vec<(Event, Vec<u8>)>,
}

const PATIENCE: Duration = Duration::from_secs(5);

impl Pair {
    fn new(options: &Options) -> Self {
        let mut engine = Engine::new(*options).unwrap();
        let address = engine.listen(([127, 0, 0, 1], 0).into()).unwrap();
        let client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            engine,
            batch: Batch::new(),
            client,
            seen: Vec::new(),
        }
    }

    fn with_request(request: &str) -> (Self, u64) {
        let mut pair = Self::new(&Options::default());
        pair.send(request.as_bytes());
        let handle = pair.wait_for(EventKind::Request).handle;
        (pair, handle)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.client.write_all(bytes).unwrap();
    }

    fn turn(&mut self, timeout: Duration) {
        self.engine.turn(Some(timeout), &mut self.batch).unwrap();
        let batch = &self.batch;
        let events = batch.events().iter();
        let events = events.map(|event| (*event, batch.bytes(event).to_vec()));
        self.seen.extend(events);
    }

    /// Turns until something of this kind has happened, and takes it out of what was seen.
    fn wait_for(&mut self, kind: EventKind) -> Event {
        self.wait_for_bytes(kind).0
    }

    fn wait_for_bytes(&mut self, kind: EventKind) -> (Event, Vec<u8>) {
        for _ in 0..20 {
            let mut kinds = self.seen.iter();
            if let Some(place) = kinds.position(|(event, _)| event.kind == kind as u32) {
                return self.seen.remove(place);
            }
            self.turn(PATIENCE);
        }
        panic!("{kind:?} does not happen; seen: {:?}", self.seen);
    }

    fn order(&mut self, command: &Command<'_>) {
        self.engine.execute(command).unwrap();
    }

    fn write(&mut self, handle: u64, flags: u32, bytes: &[u8]) {
        self.order(&Command {
            flags,
            bytes,
            ..Operation::Write.on(handle)
        });
    }

    /// Reads what the client is sent up to `end`, turning meanwhile.
    fn read_until(&mut self, end: &str) -> String {
        let mut text = Vec::new();
        self.client.set_nonblocking(true).unwrap();
        for _ in 0..10_000 {
            let mut buffer = [0; 4096];
            match self.client.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => text.extend_from_slice(&buffer[..read]),
                Err(_) => self.turn(Duration::from_millis(1)),
            }
            if text.ends_with(end.as_bytes()) && !end.is_empty() {
                break;
            }
        }
        self.client.set_nonblocking(false).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }
}

const GET: &str = "GET /a?b HTTP/1.1\r\nhost: h\r\nx-two-words: 1\r\n\r\n";

#[test]
fn a_request_is_handed_over_with_all_that_it_says() {
    let options = Options {
        canonical_names: true,
        ..Options::default()
    };
    let mut pair = Pair::new(&options);
    pair.send(GET.as_bytes());
    let address = pair.client.local_addr().unwrap().to_string();
    while pair.batch.is_empty() {
        pair.turn(PATIENCE);
    }
    let event = &pair.batch.events()[0];
    let request = pair.batch.request(event).unwrap();
    assert_eq!(request.method(), b"GET");
    assert_eq!(request.target(), b"/a?b");
    assert_eq!(request.flags(), request_flags::KEEP_ALIVE);
    assert_eq!(request.content_length(), Some(0));
    assert_eq!(request.peer_address(), address.as_bytes());
    let fields: Vec<_> = request.fields().collect();
    assert_eq!(fields, [(&b"Host"[..], &b"h"[..]), (b"X-Two-Words", b"1")]);
    assert_eq!(request.head().len(), GET.len());
    let handle = event.handle;
    assert_eq!(
        pair.engine.peer_address(handle).unwrap().to_string(),
        address
    );
    assert!(pair.engine.local_address(handle).is_some());
}

#[test]
fn an_answer_is_given_in_each_of_the_ways() {
    let (mut pair, handle) = Pair::with_request(GET);
    pair.order(&Command {
        status: 201,
        // What frames it is the engine's, however the host has it.
        fields: FieldLines(b"X-One: 1\ncontent-length: 9\nTransfer-Encoding: chunked\nDate: 1\n"),
        bytes: b"whole",
        ..Operation::Answer.on(handle)
    });
    let answer = pair.read_until("whole");
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
    let end = "\r\nX-One: 1\r\nContent-Length: 5\r\n\r\nwhole";
    assert!(answer.ends_with(end), "{answer}");

    pair.send(GET.as_bytes());
    let handle = pair.wait_for(EventKind::Request).handle;
    pair.order(&Command {
        status: 103,
        fields: FieldLines(b"Link: </a>\n"),
        ..Operation::Informational.on(handle)
    });
    pair.order(&Command {
        status: 200,
        argument: u64::MAX,
        ..Operation::Begin.on(handle)
    });
    pair.write(handle, write_flags::NOTIFY, b"one");
    assert_eq!(pair.wait_for(EventKind::Writable).handle, handle);
    pair.write(handle, write_flags::FINISH, b"two");
    let answer = pair.read_until("0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200"));
    assert!(
        answer.ends_with("3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
        "{answer}"
    );

    pair.send(GET.as_bytes());
    let handle = pair.wait_for(EventKind::Request).handle;
    let flags = write_flags::FINISH | write_flags::CLOSE;
    pair.write(handle, 0, b"HTTP/1.1 299 Mine\r\nConnection: close\r\n");
    pair.write(handle, flags, b"Content-Length: 2\r\n\r\nok");
    let answer = "HTTP/1.1 299 Mine\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    assert_eq!(pair.read_until(""), answer);
    assert_eq!(pair.engine.connections(), 0);
}

#[test]
fn a_body_comes_as_it_is_granted_and_its_end_with_trailers() {
    let options = Options {
        body_credit: 3,
        ..Options::default()
    };
    let mut pair = Pair::new(&options);
    pair.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    pair.send(b"5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n");
    let (event, _) = pair.wait_for_bytes(EventKind::Request);
    let handle = event.handle;
    let mut body = Vec::new();
    let trailers = loop {
        pair.order(&Command {
            argument: 100,
            ..Operation::Grant.on(handle)
        });
        pair.turn(Duration::from_millis(10));
        for (event, bytes) in std::mem::take(&mut pair.seen) {
            match event.kind {
                kind if kind == EventKind::Body as u32 => body.extend_from_slice(&bytes),
                _ => pair.seen.push((event, bytes)),
            }
        }
        if let Some((_, trailers)) = pair.seen.pop() {
            break trailers;
        }
    };
    assert_eq!(
        (&body[..], &trailers[..]),
        (&b"hello"[..], &b"X-Sum:7\n"[..])
    );
}

#[test]
fn a_client_that_waits_is_told_to_go_on_by_the_first_grant() {
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    let (mut pair, handle) = Pair::with_request(head);
    pair.order(&Command {
        argument: 10,
        ..Operation::Grant.on(handle)
    });
    assert_eq!(pair.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    pair.send(b"ok");
    assert_eq!(pair.wait_for_bytes(EventKind::Body).1, b"ok");
    pair.wait_for(EventKind::BodyEnd);
}

#[test]
fn orders_for_those_who_are_gone_say_so_and_do_nothing() {
    let (mut pair, handle) = Pair::with_request(GET);
    pair.write(
        handle,
        write_flags::FINISH,
        b"HTTP/1.1 204 No Content\r\n\r\n",
    );
    pair.send(GET.as_bytes());
    let next = pair.wait_for(EventKind::Request).handle;
    assert_ne!(handle, next);
    let orders = [
        Command {
            bytes: b"x",
            ..Operation::Write.on(handle)
        },
        Command {
            argument: 1,
            ..Operation::Grant.on(handle)
        },
        Operation::Abort.on(handle),
        Operation::Detach.on(handle),
        Operation::Close.on(handle),
        Operation::Pause.on(4 << 56),
        Operation::Abort.on(2 << 56 | 0xffff),
        Command {
            flags: 1,
            ..Operation::Send.on(4 << 56)
        },
    ];
    for order in &orders {
        let result = pair.engine.execute(order);
        assert_eq!(result, Err(CommandError::Stale), "{order:?}");
    }
    assert_eq!(pair.engine.statistics().stale, orders.len() as u64);
    pair.write(
        next,
        write_flags::FINISH,
        b"HTTP/1.1 204 No Content\r\n\r\n",
    );
    let both = "HTTP/1.1 204 No Content\r\n\r\n".repeat(2);
    assert_eq!(pair.read_until(&both), both);
}

#[test]
fn a_client_that_leaves_is_told_of() {
    let (mut pair, handle) = Pair::with_request(GET);
    pair.client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(pair.wait_for(EventKind::PeerClosed).handle, handle);
    pair.write(handle, 0, b"HTTP/1.1 200 OK\r\n");
    socket2::SockRef::from(&pair.client)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    pair.client = TcpStream::connect(pair.client.peer_addr().unwrap()).unwrap();
    assert_eq!(pair.wait_for(EventKind::Gone).handle, handle);
    assert_eq!(pair.engine.statistics().held, 0);
}

#[test]
fn a_connection_leaves_with_what_was_sent_behind_its_request() {
    let (mut pair, handle) = Pair::with_request(&format!("{GET}early"));
    pair.order(&Operation::Detach.on(handle));
    let (event, input) = pair.wait_for_bytes(EventKind::Detached);
    assert_eq!((event.handle, &input[..]), (handle, &b"early"[..]));
    let detached = pair.engine.take_detached(handle).unwrap();
    assert!(pair.engine.take_detached(handle).is_none());
    assert_eq!(pair.engine.connections(), 0);

    let stream = pair.engine.adopt_stream(detached).unwrap();
    assert_eq!(pair.wait_for_bytes(EventKind::StreamData).1, b"early");
    pair.send(b"more");
    assert_eq!(pair.wait_for_bytes(EventKind::StreamData).1, b"more");
    pair.write(stream, write_flags::NOTIFY, b"answer");
    assert_eq!(pair.wait_for(EventKind::Writable).handle, stream);
    assert_eq!(pair.read_until("answer"), "answer");
    pair.write(stream, write_flags::FINISH, b"bye");
    assert_eq!(pair.read_until(""), "bye");
    assert_eq!(pair.wait_for(EventKind::StreamClosed).handle, stream);
}

#[test]
fn a_request_becomes_a_web_socket() {
    let head = "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let (mut pair, handle) = Pair::with_request(head);
    pair.order(&Command {
        flags: upgrade_flags::PLAIN,
        fields: FieldLines(b"X-Own: 1\nContent-Length: 7\nSec-WebSocket-Accept: x\nUpgrade: h3\n"),
        bytes: head.as_bytes(),
        ..Operation::Upgrade.on(handle)
    });
    let event = pair.wait_for(EventKind::WebSocketOpened);
    assert_eq!(event.other, handle);
    let answer = pair.read_until("\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
    assert!(answer.ends_with("\r\nX-Own: 1\r\n\r\n"), "{answer}");
    assert!(
        !answer.contains("h3") && !answer.contains("Accept: x"),
        "{answer}"
    );
    // "hi", masked with zeros.
    pair.send(b"\x81\x82\0\0\0\0hi");
    let (message, payload) = pair.wait_for_bytes(EventKind::WebSocketMessage);
    assert_eq!((message.detail, &payload[..]), (1, &b"hi"[..]));
    let handle = event.handle;
    pair.order(&Command {
        flags: 1,
        bytes: b"ho",
        ..Operation::Send.on(handle)
    });
    assert!(pair.read_until("\x02ho").ends_with("\x02ho"));
    pair.order(&Command {
        status: 1000,
        ..Operation::Close.on(handle)
    });
    pair.send(b"\x88\x82\0\0\0\0\x03\xe8");
    assert_eq!(pair.wait_for(EventKind::WebSocketClosed).detail, 1000);
}

#[test]
fn a_handshake_that_is_none_is_refused() {
    let (mut pair, handle) = Pair::with_request(GET);
    pair.order(&Command {
        bytes: GET.as_bytes(),
        ..Operation::Upgrade.on(handle)
    });
    let event = pair.wait_for(EventKind::UpgradeRefused);
    assert_eq!((event.handle, event.detail), (handle, 400));
    assert_eq!(pair.engine.statistics().held, 0);
}

#[test]
fn other_threads_order_and_end_the_wait() {
    let (mut pair, handle) = Pair::with_request(GET);
    let remote = pair.engine.remote();
    let other = std::thread::spawn(move || {
        let mut commands = Commands::new();
        commands.push(&Command {
            flags: write_flags::NOTIFY,
            bytes: b"HTTP/1.1 200 OK\r\n",
            ..Operation::Write.on(handle)
        });
        remote.submit(commands).unwrap();
    });
    assert_eq!(pair.wait_for(EventKind::Writable).handle, handle);
    other.join().unwrap();
}

#[test]
fn a_write_that_cannot_be_carried_out_ends_the_connection() {
    let (mut pair, handle) = Pair::with_request(GET);
    let mut commands = Commands::new();
    commands.push(&Command {
        status: 200,
        argument: 1,
        ..Operation::Begin.on(handle)
    });
    commands.push(&Command {
        bytes: b"two",
        ..Operation::Write.on(handle)
    });
    assert_eq!(pair.engine.submit(commands.as_bytes()), Ok(0));
    assert_eq!(pair.wait_for(EventKind::Gone).handle, handle);
    assert_eq!(pair.engine.connections(), 0);
    assert_eq!(pair.engine.submit(b"x"), Err(CommandError::Malformed));
}

#[test]
fn connections_are_reported_where_that_is_wanted() {
    let options = Options {
        reports_connections: true,
        ..Options::default()
    };
    let mut pair = Pair::new(&options);
    let opened = pair.wait_for(EventKind::Opened).handle;
    pair.send(GET.as_bytes());
    let request = pair.wait_for(EventKind::Request);
    assert_eq!(request.other, opened);
    let handle = opened;
    pair.order(&Operation::Close.on(handle));
    assert_eq!(pair.wait_for(EventKind::Gone).handle, request.handle);
    assert_eq!(pair.wait_for(EventKind::Closed).handle, opened);
}

#[test]
fn draining_ends_with_the_answers_that_are_owed() {
    let (mut pair, handle) = Pair::with_request(GET);
    let idle = TcpStream::connect(pair.client.peer_addr().unwrap()).unwrap();
    pair.engine.drain();
    pair.write(
        handle,
        write_flags::FINISH,
        b"HTTP/1.1 204 No Content\r\n\r\n",
    );
    pair.read_until("");
    drop(idle);
    while pair.engine.connections() > 0 {
        pair.turn(PATIENCE);
    }
}

#[test]
fn options_that_cannot_be_are_refused() {
    let mut options = Options::default();
    options.http.head.head_bytes_max = INPUT_BYTES;
    let error = Engine::new(options).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_file_is_written_into_an_answer() {
    let (mut pair, handle) = Pair::with_request(GET);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"<contents>").unwrap();
    pair.write(handle, 0, b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n");
    let slice = FileSlice {
        file: file.into(),
        offset: 1,
        length: 8,
    };
    let written = pair.engine.write_file(handle, write_flags::FINISH, slice);
    assert_eq!(written, Ok(()));
    assert!(pair.read_until("contents").ends_with("\r\n\r\ncontents"));
}
