//! Streams of HTTP/2: each is a connection of its own to its handler.

mod sockets;

use crate::support::{Fixture, PATIENCE};
use dwell_engine::manager::{Conn, ConnError, Event, ManagerOptions};
use dwell_proto::http2::{PREFACE, encode, encode_field};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const INTERNAL_ERROR: u32 = 2;

/// A frame that came: kind, flags, stream, payload.
type Got = (u8, u8, u32, Vec<u8>);

/// A client that speaks HTTP/2.
struct Peer {
    socket: TcpStream,
    input: Vec<u8>,
    frames: Vec<Got>,
    ended: bool,
}

impl Peer {
    fn new(fixture: &Fixture) -> Self {
        let mut socket = TcpStream::connect(fixture.address).unwrap();
        socket.write_all(PREFACE).unwrap();
        // Empty settings.
        socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self {
            socket,
            input: Vec::new(),
            frames: Vec::new(),
            ended: false,
        }
    }

    fn ask(&mut self, stream: u32, path: &str, ends: bool) {
        let lines = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", path),
        ];
        self.head(stream, &lines, ends);
    }

    fn head(&mut self, stream: u32, lines: &[(&str, &str)], ends: bool) {
        let (mut block, mut frames) = (Vec::new(), Vec::new());
        for (name, value) in lines {
            encode_field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        encode::block(stream, &block, ends, 16_384, &mut frames);
        self.socket.write_all(&frames).unwrap();
    }

    fn data(&mut self, stream: u32, bytes: &[u8], ends: bool) {
        let mut frames = Vec::new();
        encode::data_header(stream, bytes.len(), ends, &mut frames);
        frames.extend_from_slice(bytes);
        self.socket.write_all(&frames).unwrap();
    }

    fn reset(&mut self, stream: u32) {
        let [a, b, c, d] = stream.to_be_bytes();
        let frame = [0, 0, 4, RESET, 0, a, b, c, d, 0, 0, 0, 8];
        self.socket.write_all(&frame).unwrap();
    }

    /// Polls and reads once.
    fn turn(&mut self, fixture: &mut Fixture) {
        fixture.manager.poll(Duration::from_millis(1)).unwrap();
        let mut piece = [0; 8192];
        if let Ok(length) = self.socket.read(&mut piece) {
            self.ended |= length == 0;
            self.input.extend_from_slice(&piece[..length]);
        }
        while let Some(header) = self.input.first_chunk::<9>() {
            let end = 9 + u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            let (kind, flags) = (header[3], header[4]);
            if self.input.len() < end {
                break;
            }
            let payload = self.input[9..end].to_vec();
            self.input.drain(..end);
            self.frames.push((kind, flags, stream, payload));
        }
    }

    /// Polls and reads until a frame of this kind has come on this stream.
    fn wait_for(&mut self, fixture: &mut Fixture, kind: u8, stream: u32) -> Got {
        let begun = Instant::now();
        loop {
            let is_it = |got: &Got| got.0 == kind && got.2 == stream;
            if let Some(place) = self.frames.iter().position(is_it) {
                return self.frames.remove(place);
            }
            assert!(begun.elapsed() < PATIENCE, "{kind}: {:?}", self.frames);
            self.turn(fixture);
        }
    }

    /// The body of an answer that comes in one piece.
    fn answer(&mut self, fixture: &mut Fixture, stream: u32) -> String {
        self.wait_for(fixture, HEADERS, stream);
        let (_, flags, _, body) = self.wait_for(fixture, DATA, stream);
        if flags & END_STREAM == 0 {
            let (_, flags, _, rest) = self.wait_for(fixture, DATA, stream);
            assert_eq!((flags & END_STREAM, rest.len()), (END_STREAM, 0));
        }
        String::from_utf8(body).unwrap()
    }

    fn reset_code(&mut self, fixture: &mut Fixture, stream: u32) -> u32 {
        let payload = self.wait_for(fixture, RESET, stream).3;
        u32::from_be_bytes(payload[..4].try_into().unwrap())
    }
}

fn until(fixture: &mut Fixture, peer: &mut Peer, mut condition: impl FnMut(&Fixture) -> bool) {
    let begun = Instant::now();
    while !condition(fixture) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", fixture.log.all());
        peer.turn(fixture);
    }
}

fn fixture(handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static) -> Fixture {
    let mut options = ManagerOptions::default();
    options.h2c = true;
    Fixture::with_options("http", options, handler)
}

#[test]
fn it_is_off_unless_it_is_switched_on() {
    let mut fixture = Fixture::new("http", |_, _| {});
    let mut peer = Peer::new(&fixture);
    until(&mut fixture, &mut peer, |fixture| fixture.log.has("close"));
    assert!(
        !fixture
            .log
            .all()
            .iter()
            .any(|(_, line)| line.starts_with("message"))
    );
}

#[test]
fn each_stream_is_a_connection_of_its_own() {
    let mut fixture = fixture(|conn, event| match event {
        Event::Accept => conn.set_user_data(String::new()),
        Event::HttpMessage(message) => {
            assert!(conn.is_stream() && !conn.is_secure());
            assert_eq!(message.version(), "HTTP/2");
            assert!(conn.remote_address().is_some());
            *conn.user_data::<String>().unwrap() = message.path().to_owned();
        }
        _ => {}
    });
    let mut peer = Peer::new(&fixture);
    peer.ask(1, "/one", true);
    peer.ask(3, "/two", true);
    until(&mut fixture, &mut peer, |fixture| {
        fixture.log.has("message /two ''")
    });
    let ids = ["/one", "/two"].map(|path| {
        let id = fixture.log.id_of(&format!("message {path} ''")).unwrap();
        assert_eq!(fixture.log.of(id).first().unwrap(), "open");
        id
    });
    let own = peer.socket.local_addr().unwrap();
    for (id, stream) in ids.into_iter().zip([1, 3]).rev() {
        let mut conn = fixture.manager.conn(id).unwrap();
        assert_eq!(conn.remote_address(), Some(own));
        let path = conn.user_data::<String>().unwrap().clone();
        conn.reply(200, &[], path.as_bytes()).unwrap();
        assert_eq!(
            conn.reply(200, &[], b"").unwrap_err().to_string(),
            ConnError::NoRequest.to_string()
        );
        let body = peer.answer(&mut fixture, stream);
        assert_eq!(body, if stream == 1 { "/one" } else { "/two" });
    }
    until(&mut fixture, &mut peer, |fixture| {
        fixture.log.count("close") == 2
    });
    for (id, path) in ids.into_iter().zip(["/one", "/two"]) {
        let events = [
            "open",
            "accept",
            &format!("headers POST {path}"),
            &format!("message {path} ''"),
            "close",
        ];
        assert_eq!(fixture.log.of(id), events);
    }
    // The connection has none of their events, and is still there.
    assert_eq!(fixture.manager.connections().len(), 2);
    let connection = fixture.manager.connections()[1];
    let events = fixture.log.of(connection);
    assert_eq!(events[..2], ["open", "accept"]);
    assert!(
        events[2..]
            .iter()
            .all(|line| line.starts_with("read") || line == "write"),
        "{events:?}"
    );
}

#[test]
fn a_reset_is_the_close_of_its_stream() {
    let mut fixture = fixture(|conn, event| {
        if let Event::HttpMessage(message) = event
            && message.path() == "/answer"
        {
            conn.reply(200, &[], b"ok").unwrap();
        }
    });
    let mut peer = Peer::new(&fixture);
    peer.ask(1, "/wait", true);
    until(&mut fixture, &mut peer, |fixture| {
        fixture.log.has("message /wait ''")
    });
    let id = fixture.log.id_of("message /wait ''").unwrap();
    peer.reset(1);
    until(&mut fixture, &mut peer, |fixture| fixture.log.has("close"));
    assert_eq!(fixture.log.of(id).last().unwrap(), "close");
    assert!(fixture.manager.conn(id).is_none());
    // Its place is used again, by another stream.
    peer.ask(3, "/answer", true);
    assert_eq!(peer.answer(&mut fixture, 3), "ok");
}

#[test]
fn places_of_streams_that_end_in_the_same_turn_are_told_apart() {
    let mut fixture = fixture(|conn, event| {
        if let Event::HttpMessage(message) = event {
            conn.reply(200, &[], message.path().as_bytes()).unwrap();
        }
    });
    let mut peer = Peer::new(&fixture);
    for number in 0..50 {
        // In one read, as often as not: a request, its reset, and the next request.
        peer.ask(4 * number + 1, "/reset", true);
        peer.reset(4 * number + 1);
        peer.ask(4 * number + 3, "/next", true);
        assert_eq!(peer.answer(&mut fixture, 4 * number + 3), "/next");
    }
    until(&mut fixture, &mut peer, |fixture| {
        fixture.log.count("close") >= 100
    });
    let (opened, closed) = (fixture.log.count("open"), fixture.log.count("close"));
    // The listener and the connection are open.
    assert_eq!(opened, closed + 2);
    assert_eq!(fixture.manager.connections().len(), 2);
}

#[test]
fn a_handler_ends_its_stream_alone() {
    let mut fixture = fixture(|conn, event| {
        let Event::HttpMessage(message) = event else {
            return;
        };
        match message.path() {
            "/close" => conn.close(),
            "/abort" => conn.abort(),
            "/begun" => {
                conn.begin(200, &[], None).unwrap();
                conn.chunk(b"half").unwrap();
                conn.close();
            }
            "/panic" => panic!("on purpose"),
            "/hijack" => {
                assert!(matches!(conn.hijack(), Err(ConnError::Protocol)));
                assert!(matches!(
                    conn.send(b"HTTP/1.1 200 OK\r\n\r\n"),
                    Err(ConnError::Protocol)
                ));
                conn.reply(200, &[], b"not possible").unwrap();
            }
            _ => conn.reply(200, &[], b"ok").unwrap(),
        }
    });
    let mut peer = Peer::new(&fixture);
    for (stream, path) in [(1, "/close"), (3, "/abort"), (5, "/begun"), (7, "/panic")] {
        peer.ask(stream, path, true);
        assert_eq!(
            peer.reset_code(&mut fixture, stream),
            INTERNAL_ERROR,
            "{path}"
        );
    }
    peer.ask(9, "/hijack", true);
    assert_eq!(peer.answer(&mut fixture, 9), "not possible");
    peer.ask(11, "/", true);
    assert_eq!(peer.answer(&mut fixture, 11), "ok");
    until(&mut fixture, &mut peer, |fixture| {
        fixture.log.count("close") == 6
    });
    assert_eq!(fixture.manager.connections().len(), 2);
}

#[test]
fn bodies_are_whole_or_in_pieces_by_credit() {
    let total = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&total);
    let mut fixture = fixture(move |conn, event| match event {
        Event::HttpHeaders(message) if message.path() == "/pieces" => {
            conn.stream_body(1 << 30);
            conn.pause();
        }
        Event::HttpMessage(message) => conn.reply(200, &[], message.body()).unwrap(),
        Event::HttpBody { data, is_last } => {
            *counted.lock().unwrap() += data.len();
            if is_last {
                conn.reply(200, &[], b"all").unwrap();
            }
        }
        _ => {}
    });
    let mut peer = Peer::new(&fixture);
    peer.ask(1, "/whole", false);
    peer.data(1, b"who", false);
    peer.data(1, b"le", true);
    assert_eq!(peer.answer(&mut fixture, 1), "whole");
    peer.ask(3, "/pieces", false);
    peer.data(3, &[b'p'; 10_000], true);
    until(&mut fixture, &mut peer, |fixture| {
        fixture.log.has("headers POST /pieces")
    });
    // Answered behind what has come before it.
    peer.ask(5, "/whole", false);
    peer.data(5, b"other", true);
    assert_eq!(peer.answer(&mut fixture, 5), "other");
    assert_eq!(*total.lock().unwrap(), 0, "it is paused");
    let id = fixture.log.id_of("headers POST /pieces").unwrap();
    fixture.manager.conn(id).unwrap().resume();
    assert_eq!(peer.answer(&mut fixture, 3), "all");
    assert_eq!(*total.lock().unwrap(), 10_000);
}

#[test]
fn each_stream_has_its_own_deadline() {
    let mut options = ManagerOptions::default();
    options.h2c = true;
    options.answer_timeout = Duration::from_millis(50);
    let mut fixture = Fixture::with_options("http", options, |conn, event| {
        if let Event::HttpMessage(message) = event
            && message.path() == "/begun"
        {
            // An answer that was begun may take any time.
            conn.begin(200, &[], None).unwrap();
        }
    });
    let mut peer = Peer::new(&fixture);
    peer.ask(1, "/begun", true);
    peer.ask(3, "/never", true);
    assert_eq!(peer.answer(&mut fixture, 3), "no answer in time\n");
    let id = fixture.log.id_of("message /begun ''").unwrap();
    let mut conn = fixture.manager.conn(id).unwrap();
    conn.chunk(b"late").unwrap();
    conn.finish(&[]).unwrap();
    assert_eq!(peer.answer(&mut fixture, 1), "late");
}

#[test]
fn a_connection_that_is_drained_lets_its_streams_finish() {
    let mut fixture = fixture(|_, _| {});
    let mut peer = Peer::new(&fixture);
    peer.ask(1, "/wait", true);
    until(&mut fixture, &mut peer, |fixture| {
        fixture.log.has("message /wait ''")
    });
    let id = fixture.log.id_of("message /wait ''").unwrap();
    let connection = fixture.manager.connections()[1];
    assert_ne!(connection, id);
    fixture.manager.conn(connection).unwrap().drain();
    peer.wait_for(&mut fixture, GOAWAY, 0);
    fixture
        .manager
        .conn(id)
        .unwrap()
        .reply(200, &[], b"finished")
        .unwrap();
    assert_eq!(peer.answer(&mut fixture, 1), "finished");
}

#[test]
fn a_connection_that_is_closed_ends_its_streams() {
    for abort in [false, true] {
        let mut fixture = fixture(|_, _| {});
        let mut peer = Peer::new(&fixture);
        peer.ask(1, "/a", true);
        peer.ask(3, "/b", true);
        until(&mut fixture, &mut peer, |fixture| {
            fixture.log.has("message /b ''")
        });
        let connection = fixture.manager.connections()[1];
        let mut conn = fixture.manager.conn(connection).unwrap();
        if abort {
            conn.abort();
        } else {
            conn.close();
        }
        let wanted = if abort { 3 } else { 2 };
        until(&mut fixture, &mut peer, |fixture| {
            fixture.log.count("close") == wanted
        });
        drop(peer);
        while fixture.log.count("close") < 3 {
            fixture.manager.poll(Duration::from_millis(1)).unwrap();
        }
        assert_eq!(fixture.manager.connections().len(), 1);
    }
}

#[test]
fn a_manager_that_is_closed_tells_every_stream() {
    let mut fixture = fixture(|_, _| {});
    let mut peer = Peer::new(&fixture);
    peer.ask(1, "/a", true);
    peer.ask(3, "/b", true);
    until(&mut fixture, &mut peer, |fixture| {
        fixture.log.has("message /b ''")
    });
    drop(peer);
    fixture.manager.close();
    assert_eq!(fixture.log.count("open"), fixture.log.count("close"));
}
