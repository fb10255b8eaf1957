//! Event streams on real sockets, turn by turn.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dwell_engine::sse::{self, Event, SendEventError, SharedEvent, SseError};
use dwell_engine::{App, ExchangeId, Limits, Outcome, Reply, Request, WriteError};
use dwell_evloop::{Context, EventLoop};
use dwell_proto::sse::EventStreamDecoder;
use dwell_testkit::{GUARD, Rig, Serving};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const HEARTBEAT: Duration = Duration::from_millis(50);

/// Opens a stream for every request, and greets with the id the client has seen.
#[derive(Default)]
struct EventStream {
    held: Vec<ExchangeId>,
    heartbeats: usize,
}

impl App for EventStream {
    fn request(
        &mut self,
        _: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let seen = sse::last_event_id(request.head.fields).unwrap_or("nothing");
        sse::begin(reply, &[("X-Own", b"mine")]);
        let hello = Event {
            event: Some("hello"),
            ..Event::new(seen)
        };
        sse::send(reply, &hello).unwrap();
        self.held.push(request.exchange);
        Outcome::Held {
            tag: 7,
            timeout: Some(HEARTBEAT),
        }
    }

    fn expired(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        assert_eq!(tag, 7);
        self.heartbeats += 1;
        sse::keep_alive(reply, tag, HEARTBEAT)
    }

    fn abandoned(&mut self, _: &mut Context, exchange: ExchangeId, _: u64) {
        self.held.retain(|held| *held != exchange);
    }
}

type Server = Serving<EventStream>;

struct Fixture {
    event_loop: EventLoop<()>,
    server: Server,
    address: SocketAddr,
}

impl Fixture {
    fn new() -> Self {
        let app = EventStream::default();
        let (event_loop, server, address) = Serving::start(Limits::default(), app);
        Self {
            event_loop,
            server,
            address,
        }
    }

    /// A client of this version of HTTP, and the head of the answer it got.
    fn client(&mut self, version: &str, fields: &str) -> (TcpStream, String) {
        let mut client = TcpStream::connect(self.address).unwrap();
        let head = format!("GET / HTTP/{version}\r\nHost: localhost\r\n{fields}\r\n");
        client.write_all(head.as_bytes()).unwrap();
        let received = self.until(&mut client, "\n\n\r\n");
        (client, received)
    }

    /// What `client` reads until it has read `end`; for HTTP/1.0, without the end of a chunk.
    fn until(&mut self, client: &mut TcpStream, end: &str) -> String {
        let short = end.trim_end_matches("\r\n").as_bytes();
        let is_enough = |bytes: &[u8]| bytes.ends_with(end.as_bytes()) || bytes.ends_with(short);
        String::from_utf8(self.receive_until(client, is_enough)).unwrap()
    }

    fn broadcast(&mut self, event: &SharedEvent) -> Vec<Option<Result<(), WriteError>>> {
        let held = self.server.app.held.clone();
        let context = self.event_loop.context();
        let http = &mut self.server.http;
        held.iter()
            .map(|held| http.with_reply(context, *held, |reply| event.send(reply)))
            .collect()
    }
}

impl Rig for Fixture {
    type Driver = Server;

    fn parts(&mut self) -> (&mut EventLoop<()>, &mut Server) {
        (&mut self.event_loop, &mut self.server)
    }
}

#[test]
fn a_stream_begins_with_fields_that_keep_others_from_holding_it_up() {
    let mut fixture = Fixture::new();
    let (_client, received) = fixture.client("1.1", "Last-Event-ID: 41\r\n");
    let (head, body) = received.split_once("\r\n\r\n").unwrap();
    for line in [
        "HTTP/1.1 200 OK",
        "Content-Type: text/event-stream",
        "Cache-Control: no-store",
        "X-Accel-Buffering: no",
        "X-Own: mine",
        "Transfer-Encoding: chunked",
    ] {
        assert!(
            head.split("\r\n").any(|found| found == line),
            "{line}: {head}"
        );
    }
    assert_eq!(body, "17\r\nevent: hello\ndata: 41\n\n\r\n");
}

#[test]
fn an_event_for_many_is_framed_once_and_fits_each() {
    let mut fixture = Fixture::new();
    let (mut chunked, _) = fixture.client("1.1", "");
    let (mut until_close, received) = fixture.client("1.0", "");
    assert!(!received.contains("chunked"), "{received}");
    let event = SharedEvent::new(&Event {
        id: Some("42"),
        ..Event::new("two\nlines")
    })
    .unwrap();
    assert_eq!(fixture.broadcast(&event), [Some(Ok(())), Some(Ok(()))]);
    let data = "id: 42\ndata: two\ndata: lines\n\n";
    let chunk = format!("{:x}\r\n{data}\r\n", data.len());
    assert!(fixture.until(&mut chunked, &chunk).ends_with(&chunk));
    let received = fixture.until(&mut until_close, data);
    assert!(
        received.ends_with(data) && !received.contains('\r'),
        "{received:?}"
    );
    let mut decoder = EventStreamDecoder::new(1_000);
    let step = decoder.decode(data.as_bytes()).unwrap();
    let read = step.event.unwrap();
    assert_eq!((read.data, read.last_event_id), ("two\nlines", "42"));
}

#[test]
fn silence_is_filled_with_comments() {
    let mut fixture = Fixture::new();
    let (mut client, _) = fixture.client("1.1", "");
    let begun = Instant::now();
    let received = fixture.until(&mut client, "3\r\n:\n\n\r\n3\r\n:\n\n\r\n");
    assert_eq!(received, "3\r\n:\n\n\r\n".repeat(2));
    assert!(begun.elapsed() + Duration::from_millis(15) >= 2 * HEARTBEAT);
    assert_eq!(fixture.server.app.heartbeats, 2);
    let event = SharedEvent::new(&Event::new("still here")).unwrap();
    assert_eq!(fixture.broadcast(&event), [Some(Ok(()))]);
}

#[test]
fn a_client_that_reads_nothing_is_bounded_and_one_that_left_is_nobody() {
    let mut fixture = Fixture::new();
    let (slow, _) = fixture.client("1.1", "");
    let event = SharedEvent::new(&Event::new(&"x".repeat(200_000))).unwrap();
    let mut sent = 0;
    let refused = loop {
        match fixture.broadcast(&event)[0] {
            Some(Ok(())) => sent += 1,
            refused => break refused,
        }
        assert!(sent < 1_000);
    };
    let limit = Limits::default().output_bytes_max;
    assert!(
        matches!(refused, Some(Err(WriteError::Full { limit: told, .. })) if told == limit),
        "{refused:?}"
    );
    let gone = fixture.server.app.held.clone();
    drop(slow);
    while !fixture.server.app.held.is_empty() {
        fixture.turn_for(GUARD);
    }
    fixture.server.app.held = gone;
    assert_eq!(fixture.broadcast(&event), [None]);
}

#[test]
fn what_the_format_cannot_carry_is_refused() {
    let broken = Event {
        id: Some("a\nb"),
        ..Event::new("")
    };
    assert_eq!(SharedEvent::new(&broken).unwrap_err(), SseError::Id);
    let error = SendEventError::Event(SseError::Id);
    assert_eq!(error.to_string(), "event cannot be encoded");
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "line end or NUL in the id of an event");
}
