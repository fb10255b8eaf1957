//! Requests on streams of HTTP/2: their names, what ends them, and what tells that a client reads.

use super::*;
use dwell_proto::http2::{ErrorCode, PREFACE, encode, encode_field};
use std::collections::VecDeque;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const HTTP_1_1_REQUIRED: u32 = 13;
const INTERNAL_ERROR: u32 = 2;

/// A frame that the client was sent.
#[derive(Debug)]
struct Got {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// An engine with one client that speaks HTTP/2.
struct Framed {
    pair: Pair,
    input: Vec<u8>,
    frames: VecDeque<Got>,
}

impl Framed {
    fn new() -> Self {
        Self::with(&Options::default())
    }

    fn with(options: &Options) -> Self {
        let options = Options {
            h2c: true,
            reports_connections: true,
            ..*options
        };
        let mut pair = Pair::new(&options);
        pair.send(PREFACE);
        // Empty settings.
        pair.send(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
        Self {
            pair,
            input: Vec::new(),
            frames: VecDeque::new(),
        }
    }

    /// Sends the head of a request; returns its event.
    fn ask(&mut self, stream: u32, ends: bool) -> Event {
        self.send_head(stream, &[(":method", "POST"), (":path", "/path")], ends);
        self.pair.wait_for(EventKind::Request)
    }

    fn send_head(&mut self, stream: u32, lines: &[(&str, &str)], ends: bool) {
        let (mut block, mut frames) = (Vec::new(), Vec::new());
        let all = [(":scheme", "http"), (":authority", "a")];
        for (name, value) in all.iter().chain(lines) {
            encode_field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        encode::block(stream, &block, ends, 16_384, &mut frames);
        self.pair.send(&frames);
    }

    /// Asks for a WebSocket; returns the event and the head of the request.
    fn ask_for_socket(&mut self, stream: u32) -> (Event, Vec<u8>) {
        let lines = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":path", "/socket"),
            ("sec-websocket-version", "13"),
        ];
        self.send_head(stream, &lines, false);
        let event = self.pair.wait_for(EventKind::Request);
        let request = self.pair.batch.request(&event).unwrap();
        (event, request.head().to_vec())
    }

    fn reset(&mut self, stream: u32) {
        let mut frames = Vec::new();
        encode::reset(stream, ErrorCode::CANCEL, &mut frames);
        self.pair.send(&frames);
    }

    fn data(&mut self, stream: u32, bytes: &[u8]) {
        let mut frames = Vec::new();
        encode::data_header(stream, bytes.len(), false, &mut frames);
        frames.extend_from_slice(bytes);
        self.pair.send(&frames);
    }

    fn window(&mut self, stream: u32, bytes: u32) {
        let mut frames = Vec::new();
        encode::window_update(stream, bytes, &mut frames);
        self.pair.send(&frames);
    }

    /// Turns and reads until a frame of this kind has come on this stream.
    fn wait_for(&mut self, kind: u8, stream: u32) -> Got {
        self.pair.client.set_nonblocking(true).unwrap();
        let begun = std::time::Instant::now();
        loop {
            let is_it = |got: &Got| got.kind == kind && got.stream == stream;
            if let Some(place) = self.frames.iter().position(is_it) {
                self.pair.client.set_nonblocking(false).unwrap();
                return self.frames.remove(place).unwrap();
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{kind} on {stream}: {:?}",
                self.frames
            );
            let mut piece = [0; 8192];
            match self.pair.client.read(&mut piece) {
                Ok(length) => self.input.extend_from_slice(&piece[..length]),
                Err(_) => self.pair.turn(Duration::from_millis(1)),
            }
            self.take();
        }
    }

    /// Takes the frames that are whole out of the input.
    fn take(&mut self) {
        while let Some(header) = self.input.first_chunk::<9>() {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let (kind, flags) = (header[3], header[4]);
            let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            if self.input.len() < 9 + length {
                return;
            }
            let payload = self.input[9..9 + length].to_vec();
            self.input.drain(..9 + length);
            self.frames.push_back(Got {
                kind,
                flags,
                stream,
                payload,
            });
        }
    }

    fn reset_code(&mut self, stream: u32) -> u32 {
        let payload = self.wait_for(RESET, stream).payload;
        u32::from_be_bytes(payload[..4].try_into().unwrap())
    }
}

fn begin(handle: u64) -> Command<'static> {
    Command {
        status: 200,
        argument: u64::MAX,
        ..Operation::Begin.on(handle)
    }
}

#[test]
fn streams_are_requests_of_one_connection() {
    let mut framed = Framed::new();
    let connection = framed.pair.wait_for(EventKind::Opened).handle;
    let requests = [1, 3].map(|stream| framed.ask(stream, true));
    for request in requests {
        assert_eq!(request.other, connection);
        let engine = &framed.pair.engine;
        let own = framed.pair.client.local_addr().unwrap();
        assert_eq!(engine.peer_address(request.handle), Some(own));
        let peer = framed.pair.client.peer_addr().unwrap();
        assert_eq!(engine.local_address(request.handle), Some(peer));
    }
    // The second is answered first.
    for (request, stream) in requests.into_iter().zip([1, 3]).rev() {
        let handle = request.handle;
        framed.pair.order(&begin(handle));
        framed.pair.write(handle, 0, b"body");
        framed.pair.order(&Command {
            flags: write_flags::FINISH,
            fields: FieldLines(b"X-Sum: 4\n"),
            ..Operation::Write.on(handle)
        });
        assert_eq!(framed.wait_for(HEADERS, stream).flags & END_STREAM, 0);
        assert_eq!(framed.wait_for(DATA, stream).payload, b"body");
        let trailers = framed.wait_for(HEADERS, stream);
        assert_eq!(trailers.flags & END_STREAM, END_STREAM);
        assert!(!framed.pair.engine.is_alive(handle));
    }
    assert_eq!(framed.pair.engine.statistics().held, 0);
    framed
        .pair
        .client
        .shutdown(std::net::Shutdown::Both)
        .unwrap();
    assert_eq!(framed.pair.wait_for(EventKind::Closed).handle, connection);
    let is_told = |(event, _): &(Event, _)| event.kind == EventKind::Closed as u32;
    assert!(!framed.pair.seen.iter().any(is_told), "it is told once");
}

#[test]
fn a_request_says_what_it_came_by() {
    let mut framed = Framed::new();
    framed.pair.turn(Duration::ZERO);
    let request = framed.ask(1, false);
    let view = framed.pair.batch.request(&request).unwrap();
    let expected = request_flags::HTTP2 | request_flags::BODY_FOLLOWS | request_flags::CHUNKED;
    assert_eq!(view.flags() & !request_flags::KEEP_ALIVE, expected);
    assert_eq!(view.target(), b"/path");
}

#[test]
fn what_ends_a_request_ends_its_stream_alone() {
    let mut framed = Framed::new();
    let handle = framed.ask(1, true).handle;
    framed.pair.order(&Operation::Abort.on(handle));
    assert_eq!(framed.reset_code(1), INTERNAL_ERROR);
    let handle = framed.ask(3, true).handle;
    framed.pair.order(&begin(handle));
    framed.pair.order(&Operation::Close.on(handle));
    assert_eq!(framed.reset_code(3), INTERNAL_ERROR);
    // There is no connection that could leave, and the host is told so.
    let handle = framed.ask(5, true).handle;
    framed.pair.order(&Operation::Detach.on(handle));
    assert_eq!(framed.pair.wait_for(EventKind::Gone).handle, handle);
    assert_eq!(framed.reset_code(5), HTTP_1_1_REQUIRED);
    // Bytes as they are would be none of HTTP/2.
    let handle = framed.ask(7, true).handle;
    let verbatim = Command {
        bytes: b"HTTP/1.1 200 OK\r\n\r\n",
        ..Operation::Write.on(handle)
    };
    let refused = framed.pair.engine.execute(&verbatim);
    assert_eq!(refused, Err(CommandError::Misplaced));
    assert!(framed.pair.engine.is_alive(handle), "nothing was done");
    let mut orders = Commands::default();
    orders.push(&verbatim);
    framed.pair.engine.submit(orders.as_bytes()).unwrap();
    assert_eq!(framed.pair.wait_for(EventKind::Gone).handle, handle);
    assert_eq!(framed.reset_code(7), INTERNAL_ERROR);
    // The connection goes on.
    let handle = framed.ask(9, true).handle;
    framed.pair.order(&begin(handle));
    assert_eq!(framed.wait_for(HEADERS, 9).flags & END_STREAM, 0);
    assert_eq!(framed.pair.engine.connections(), 1);
}

#[test]
fn a_connection_that_is_closed_ends_all_of_its_streams() {
    for operation in [Operation::Close, Operation::Abort] {
        let mut framed = Framed::new();
        let connection = framed.pair.wait_for(EventKind::Opened).handle;
        let mut handles: Vec<_> = [1, 3, 5]
            .map(|stream| framed.ask(stream, true).handle)
            .into();
        framed.pair.order(&operation.on(connection));
        if operation == Operation::Close {
            framed.wait_for(GOAWAY, 0);
        }
        for _ in 0..3 {
            let gone = framed.pair.wait_for(EventKind::Gone).handle;
            handles.retain(|handle| *handle != gone);
        }
        assert!(handles.is_empty(), "{operation:?}");
        // After an abort there is nothing to shut down.
        framed.pair.client.shutdown(std::net::Shutdown::Both).ok();
        assert_eq!(framed.pair.wait_for(EventKind::Closed).handle, connection);
    }
}

#[test]
fn a_reset_is_the_end_of_a_request() {
    let mut framed = Framed::new();
    let handle = framed.ask(1, true).handle;
    framed.pair.send(&[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8]);
    assert_eq!(framed.pair.wait_for(EventKind::Gone).handle, handle);
    assert!(!framed.pair.engine.is_alive(handle));
}

#[test]
fn a_host_is_told_when_a_window_has_taken_all() {
    let mut framed = Framed::new();
    let handle = framed.ask(1, true).handle;
    framed.pair.order(&begin(handle));
    // More than the window of the stream has room for, so a part of it waits.
    let body = vec![b'b'; 70_000];
    framed.pair.write(handle, write_flags::NOTIFY, &body);
    let mut taken = 0;
    while taken < 65_535 {
        taken += framed.wait_for(DATA, 1).payload.len();
    }
    let is_told = |(event, _): &(Event, _)| event.kind == EventKind::Writable as u32;
    assert!(!framed.pair.seen.iter().any(is_told), "it is not out");
    framed.window(0, 100_000);
    framed.window(1, 100_000);
    assert_eq!(framed.pair.wait_for(EventKind::Writable).handle, handle);
    framed.pair.write(handle, write_flags::FINISH, b"end");
    while taken < body.len() + 3 {
        taken += framed.wait_for(DATA, 1).payload.len();
    }
    assert_eq!(taken, body.len() + 3);
}

#[test]
fn a_file_that_a_window_holds_up_is_told_of_when_it_is_out() {
    let mut framed = Framed::new();
    let handle = framed.ask(1, true).handle;
    framed.pair.order(&begin(handle));
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![b'f'; 70_000]).unwrap();
    let slice = FileSlice {
        file: file.into(),
        offset: 0,
        length: 70_000,
    };
    let flags = write_flags::NOTIFY;
    framed.pair.engine.write_file(handle, flags, slice).unwrap();
    let mut taken = 0;
    while taken < 65_535 {
        taken += framed.wait_for(DATA, 1).payload.len();
    }
    let is_told = |(event, _): &(Event, _)| event.kind == EventKind::Writable as u32;
    assert!(!framed.pair.seen.iter().any(is_told), "it is not out");
    framed.window(0, 100_000);
    framed.window(1, 100_000);
    assert_eq!(framed.pair.wait_for(EventKind::Writable).handle, handle);
}

fn with_sockets() -> Framed {
    Framed::with(&Options {
        websocket_streams: true,
        ..Options::default()
    })
}

#[test]
fn a_stream_becomes_a_websocket() {
    let mut client = with_sockets();
    let opened = client.pair.wait_for(EventKind::Opened).handle;
    let (asked, head) = client.ask_for_socket(1);
    assert!(head.starts_with(b"GET /socket HTTP/1.1\r\n"));
    let upgrade = Command {
        bytes: &head,
        ..Operation::Upgrade.on(asked.handle)
    };
    client.pair.engine.execute(&upgrade).unwrap();
    let socket = client.pair.wait_for(EventKind::WebSocketOpened);
    assert_eq!(socket.other, asked.handle);
    // It begins by the status 200, which the static table has.
    assert_eq!(client.wait_for(HEADERS, 1).payload[0], 0x88);
    client.data(1, b"\x81\x82\0\0\0\0hi");
    let message = client.pair.wait_for(EventKind::WebSocketMessage);
    assert_eq!((message.handle, message.detail), (socket.handle, 1));
    let answer = Command {
        bytes: b"hello",
        flags: 1,
        ..Operation::Send.on(socket.handle)
    };
    client.pair.engine.execute(&answer).unwrap();
    assert_eq!(client.wait_for(DATA, 1).payload, b"\x81\x05hello");
    client.reset(1);
    let closed = client.pair.wait_for(EventKind::WebSocketClosed);
    assert_eq!((closed.handle, closed.detail), (socket.handle, 1006));
    // The connection is there, and is told once, when it is gone.
    let asked = client.ask(3, true);
    assert_eq!(asked.other, opened);
    drop(client.pair.client.shutdown(std::net::Shutdown::Both));
    assert_eq!(client.pair.wait_for(EventKind::Closed).handle, opened);
}

#[test]
fn a_websocket_on_a_stream_is_refused_in_every_other_way() {
    let mut client = with_sockets();
    let (detached, _) = client.ask_for_socket(1);
    let detach = Operation::Detach.on(detached.handle);
    client.pair.engine.execute(&detach).unwrap();
    assert_eq!(
        client.pair.wait_for(EventKind::Gone).handle,
        detached.handle
    );
    assert_eq!(client.reset_code(1), HTTP_1_1_REQUIRED);
    // A success would accept it; nothing is left of it when it was begun.
    let (begun, _) = client.ask_for_socket(3);
    let order = Command {
        status: 200,
        argument: u64::MAX,
        ..Operation::Begin.on(begun.handle)
    };
    client.pair.engine.execute(&order).unwrap();
    assert_eq!(client.pair.wait_for(EventKind::Gone).handle, begun.handle);
    let head = client.wait_for(HEADERS, 3);
    assert_eq!(head.flags & END_STREAM, END_STREAM);
    assert_ne!(head.payload[0], 0x88);
    let (refused, _) = client.ask_for_socket(5);
    let no = Command {
        status: 403,
        ..Operation::Answer.on(refused.handle)
    };
    client.pair.engine.execute(&no).unwrap();
    client.wait_for(HEADERS, 5);
    // Where it is not switched on, the host hears nothing of it.
    let mut client = Framed::new();
    let lines = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":path", "/socket"),
        ("sec-websocket-version", "13"),
    ];
    client.send_head(1, &lines, false);
    client.wait_for(HEADERS, 1);
    assert_eq!(client.pair.engine.statistics().requests, 0);
}

#[test]
fn work_for_streams_that_were_reset_counts_until_the_host_has_done() {
    let mut client = Framed::with(&Options {
        counts_work: true,
        ..Options::default()
    });
    let refused = ErrorCode::REFUSED_STREAM.0;
    let mut gone = Vec::new();
    for place in 0..128 {
        let stream = 2 * place + 1;
        gone.push(client.ask(stream, true).handle);
        client.reset(stream);
        let told = client.pair.wait_for(EventKind::Gone);
        assert_eq!(Some(&told.handle), gone.last());
    }
    client.send_head(257, &[(":method", "GET"), (":path", "/")], true);
    assert_eq!(client.reset_code(257), refused);
    // Each order with which a host ends a request, and the one for that alone.
    let finish = Command {
        flags: write_flags::FINISH,
        ..Operation::Write.on(gone[1])
    };
    let orders = [
        Command {
            status: 200,
            ..Operation::Answer.on(gone[0])
        },
        finish,
        Operation::Abort.on(gone[2]),
        Operation::Close.on(gone[3]),
    ];
    for order in orders {
        assert_eq!(
            client.pair.engine.execute(&order),
            Err(CommandError::Stale),
            "{order:?}"
        );
    }
    let done = Operation::Done.on(gone[4]);
    assert_eq!(client.pair.engine.execute(&done), Ok(()));
    assert_eq!(client.pair.engine.execute(&done), Err(CommandError::Stale));
    // Five are done, and what is no end of a request ends none.
    let grant = Command {
        argument: 1,
        ..Operation::Grant.on(gone[5])
    };
    assert_eq!(client.pair.engine.execute(&grant), Err(CommandError::Stale));
    for place in 129..134 {
        client.ask(2 * place + 1, true);
    }
    client.send_head(269, &[(":method", "GET"), (":path", "/")], true);
    assert_eq!(client.reset_code(269), refused);
}
