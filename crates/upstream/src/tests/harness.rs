//! A loop with a client, and applications that do as told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dwell_evloop::{Context, Driver, EventLoop, Readiness, Token};

use super::super::{Upstream, UpstreamError, UpstreamEvent, UpstreamOptions, UpstreamRequest};

pub(super) const KIND: u8 = 3;
/// For whatever is not expected to take time.
pub(in super::super) const PATIENCE: Duration = Duration::from_secs(20);
pub(in super::super) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A loop with nothing but a client on it.
pub(super) struct Edge {
    pub(super) event_loop: EventLoop<()>,
    pub(super) driver: EdgeDriver,
}

pub(super) struct EdgeDriver {
    pub(super) upstream: Upstream,
    pub(super) events: Vec<UpstreamEvent>,
}

impl Driver for EdgeDriver {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        let events = &mut self.events;
        let mut sink = |_: &mut Context, event| events.push(event);
        self.upstream.ready(context, token, readiness, &mut sink);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        let events = &mut self.events;
        self.upstream
            .expired(context, token, &mut |_: &mut Context, event| {
                events.push(event);
            });
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}

impl Edge {
    pub(super) fn new(options: UpstreamOptions) -> Self {
        Self {
            event_loop: EventLoop::new().unwrap(),
            driver: EdgeDriver {
                upstream: Upstream::new(KIND, options),
                events: Vec::new(),
            },
        }
    }

    pub(super) fn send(&mut self, tag: u64, method: &str) -> Result<(), UpstreamError> {
        self.send_request(request(tag, method, &format!("/{tag}"), None))
    }

    pub(super) fn send_request(&mut self, request: UpstreamRequest) -> Result<(), UpstreamError> {
        // The clock of the loop is that of its last turn.
        self.turn(Duration::ZERO);
        self.send_now(request)
    }

    /// As [`send_request`](Self::send_request), without a turn in which the loop hears of anything.
    pub(super) fn send_now(&mut self, request: UpstreamRequest) -> Result<(), UpstreamError> {
        let context = self.event_loop.context();
        self.driver.upstream.send(context, request)
    }

    pub(super) fn turn(&mut self, timeout: Duration) {
        self.event_loop
            .turn(&mut self.driver, Some(timeout))
            .unwrap();
    }

    #[track_caller]
    pub(super) fn turn_until(&mut self, is_so: impl Fn(&EdgeDriver) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(&self.driver) {
            assert!(
                Instant::now() < end,
                "nothing came of it: {:?}",
                self.driver.events
            );
            self.turn(Duration::from_millis(20));
        }
    }

    /// The next event: its tag, and the status with the body or the error.
    #[track_caller]
    pub(super) fn next(&mut self) -> (u64, Result<(u16, Bytes), UpstreamError>) {
        self.turn_until(|driver| !driver.events.is_empty());
        match self.driver.events.remove(0) {
            UpstreamEvent::Answer { tag, answer } => {
                (tag, Ok((answer.status, answer.body.clone())))
            }
            UpstreamEvent::Failed { tag, error, .. } => (tag, Err(error)),
            other => panic!("{other:?}"),
        }
    }

    /// Sends a request and waits for what becomes of it.
    #[track_caller]
    pub(super) fn ask(&mut self, tag: u64, method: &str) -> Result<(u16, Bytes), UpstreamError> {
        self.send(tag, method)?;
        let (seen, result) = self.next();
        assert_eq!(seen, tag);
        result
    }
}

/// An application that does as told with each connection, which it numbers from 0.
pub(super) struct App {
    pub(super) options: UpstreamOptions,
    pub(super) connections: Arc<AtomicUsize>,
}

impl App {
    pub(super) fn new(script: impl Fn(usize, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = UpstreamOptions::new(listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let (counter, script) = (Arc::clone(&connections), Arc::new(script));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (number, script) = (counter.fetch_add(1, SeqCst), Arc::clone(&script));
                thread::spawn(move || script(number, &mut stream.unwrap()));
            }
        });
        Self {
            options,
            connections,
        }
    }

    /// Answers every request with the same bytes.
    pub(super) fn answering(answer: &'static [u8]) -> Self {
        Self::new(move |_, stream| {
            while read_request(stream).is_some() {
                stream.write_all(answer).unwrap();
            }
        })
    }

    pub(super) fn edge(&self) -> Edge {
        Edge::new(self.options.clone())
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

pub(in super::super) fn request(
    tag: u64,
    method: &str,
    path: &str,
    client: Option<u8>,
) -> UpstreamRequest {
    let bytes = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n").into();
    UpstreamRequest {
        is_head: method == "HEAD",
        is_idempotent: method != "POST",
        client: client.map(|number| [192, 0, 2, number].into()),
        ..UpstreamRequest::new(bytes, tag)
    }
}

/// Reads one head without a body; `None` at the end of the stream.
pub(in super::super) fn read_request(stream: &mut impl Read) -> Option<String> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return None;
        }
        text.push(byte[0]);
    }
    Some(String::from_utf8(text).unwrap())
}

/// Waits for the end of the stream.
pub(super) fn read_to_end(stream: &mut TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the value that outcomes are compared with"
)]
pub(super) fn ok(body: &'static [u8]) -> Result<(u16, Bytes), UpstreamError> {
    Ok((200, Bytes::from_static(body)))
}
