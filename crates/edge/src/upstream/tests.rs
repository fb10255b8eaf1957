use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use dwell_evloop::{Context, Driver, EventLoop, ListenOptions, Readiness, Token, bind_group};

use super::connection::Connection;
use super::*;

const KIND: u8 = 3;
/// For whatever is not expected to take time.
const PATIENCE: Duration = Duration::from_secs(20);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A loop with nothing but a client on it.
struct Edge {
    event_loop: EventLoop<()>,
    driver: EdgeDriver,
}

struct EdgeDriver {
    upstream: Upstream,
    events: Vec<UpstreamEvent>,
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
    fn new(options: UpstreamOptions) -> Self {
        Self {
            event_loop: EventLoop::new().unwrap(),
            driver: EdgeDriver {
                upstream: Upstream::new(KIND, options),
                events: Vec::new(),
            },
        }
    }

    fn send(&mut self, tag: u64, method: &str) -> Result<(), UpstreamError> {
        let text = format!("{method} /{tag} HTTP/1.1\r\nHost: a\r\n\r\n");
        self.send_bytes(tag, method, text.into())
    }

    fn send_bytes(&mut self, tag: u64, method: &str, bytes: Bytes) -> Result<(), UpstreamError> {
        self.send_by(None, tag, method, bytes)
    }

    fn send_by(
        &mut self,
        client: Option<IpAddr>,
        tag: u64,
        method: &str,
        bytes: Bytes,
    ) -> Result<(), UpstreamError> {
        let (is_head, is_idempotent) = (method == "HEAD", method != "POST");
        let request = UpstreamRequest {
            bytes,
            is_head,
            is_idempotent,
            body_follows: false,
            upgrade: None,
            taking: Taking::Whole,
            client,
            tag,
        };
        // The clock of the loop is that of its last turn.
        self.turn(Duration::ZERO);
        self.driver
            .upstream
            .send(self.event_loop.context(), request)
    }

    fn turn(&mut self, timeout: Duration) {
        self.event_loop
            .turn(&mut self.driver, Some(timeout))
            .unwrap();
    }

    #[track_caller]
    fn turn_until(&mut self, is_so: impl Fn(&EdgeDriver) -> bool) {
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
    fn next(&mut self) -> (u64, Result<(u16, Bytes), UpstreamError>) {
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
    fn ask(&mut self, tag: u64, method: &str) -> Result<(u16, Bytes), UpstreamError> {
        self.send(tag, method)?;
        let (seen, result) = self.next();
        assert_eq!(seen, tag);
        result
    }
}

/// An application that does as told with each connection, which it numbers from 0.
struct App {
    options: UpstreamOptions,
    connections: Arc<AtomicUsize>,
}

impl App {
    fn new(script: impl Fn(usize, &mut TcpStream) + Send + Sync + 'static) -> Self {
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
    fn answering(answer: &'static [u8]) -> Self {
        Self::new(move |_, stream| {
            while read_request(stream).is_some() {
                stream.write_all(answer).unwrap();
            }
        })
    }

    fn edge(&self) -> Edge {
        Edge::new(self.options)
    }

    fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

/// Reads one head without a body; `None` at the end of the stream.
fn read_request(stream: &mut TcpStream) -> Option<String> {
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
fn read_to_end(stream: &mut TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the value that outcomes are compared with"
)]
fn ok(body: &'static [u8]) -> Result<(u16, Bytes), UpstreamError> {
    Ok((200, Bytes::from_static(body)))
}

#[test]
fn a_connection_is_used_again() {
    let app = App::answering(OK);
    let mut edge = app.edge();
    for tag in 0..5 {
        assert_eq!(
            edge.ask(tag, if tag == 2 { "POST" } else { "GET" }),
            ok(b"ok")
        );
    }
    assert_eq!((app.connections(), edge.driver.upstream.idle()), (1, 1));
}

#[test]
fn the_connection_that_came_free_last_is_taken_first() {
    let app = App::new(|number, stream| {
        while read_request(stream).is_some() {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let mut edge = app.edge();
    edge.send(1, "GET").unwrap();
    edge.send(2, "GET").unwrap();
    assert!(edge.next().1.is_ok());
    let last = edge.next().1;
    assert_eq!(edge.driver.upstream.idle(), 2);
    for tag in 3..6 {
        assert_eq!(edge.ask(tag, "GET"), last);
    }
    assert_eq!(app.connections(), 2);
}

#[test]
fn every_framing_is_read() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n"[..],
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK,
    ] {
        let app = App::answering(answer);
        let mut edge = app.edge();
        assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
        assert_eq!(edge.ask(2, "GET"), ok(b"ok"));
        assert_eq!(app.connections(), 1);
    }
    let app = App::new(|_, stream| {
        read_request(stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nok").unwrap();
    });
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    assert_eq!(edge.driver.upstream.connections(), 0);

    let app = App::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n");
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "HEAD"), ok(b""));
    assert_eq!(edge.ask(2, "HEAD"), ok(b""));
    assert_eq!(app.connections(), 1);
}

#[test]
fn a_connection_that_says_close_or_too_much_is_not_kept() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"[..],
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok?",
    ] {
        let app = App::answering(answer);
        let mut edge = app.edge();
        assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
        assert_eq!(edge.driver.upstream.connections(), 0);
    }
}

#[test]
fn an_answer_in_single_bytes_is_read() {
    let app = App::new(|_, stream| {
        stream.set_nodelay(true).unwrap();
        while read_request(stream).is_some() {
            for byte in OK {
                stream.write_all(&[*byte]).unwrap();
                thread::yield_now();
            }
        }
    });
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    assert_eq!(edge.ask(2, "GET"), ok(b"ok"));
}

#[test]
fn long_bodies_pass_both_ways() {
    const LENGTH: usize = 6 << 20;
    let app = App::new(|_, stream| {
        read_request(stream);
        let mut body = vec![0; LENGTH];
        stream.read_exact(&mut body).unwrap();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n"
        )
        .unwrap();
        stream.write_all(&body).unwrap();
        read_to_end(stream);
    });
    let mut edge = app.edge();
    let body: Vec<u8> = (0..LENGTH).map(|index| (index / 1000) as u8).collect();
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n");
    edge.send_bytes(1, "POST", [head.as_bytes(), &body].concat().into())
        .unwrap();
    let (_, answer) = edge.next();
    assert!(answer.unwrap().1 == body);
    assert_eq!(edge.driver.upstream.idle(), 1);
}

#[test]
fn an_answer_before_the_end_of_the_request_counts() {
    let app = App::new(|_, stream| {
        read_request(stream);
        stream
            .write_all(b"HTTP/1.1 413 \r\nContent-Length: 0\r\n\r\n")
            .unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        read_to_end(stream);
    });
    let mut edge = app.edge();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n";
    let bytes = [&head[..], &vec![0; 30_000_000]].concat();
    edge.send_bytes(1, "POST", bytes.into()).unwrap();
    assert_eq!(edge.next(), (1, Ok((413, Bytes::new()))));
    assert_eq!(edge.driver.upstream.connections(), 0);
}

#[test]
fn a_refused_connect_is_told() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut edge = Edge::new(UpstreamOptions::new(address));
    let refused = UpstreamError::Connect(std::io::ErrorKind::ConnectionRefused);
    assert_eq!(edge.ask(1, "GET"), Err(refused.clone()));
    assert_eq!(
        (refused.status(), edge.driver.upstream.connections()),
        (502, 0)
    );
    assert_eq!(refused.to_string(), "cannot connect: connection refused");
}

#[test]
fn every_stage_has_its_deadline() {
    let short = Duration::from_millis(30);
    let silent = App::new(|_, stream| read_to_end(stream));
    let options = UpstreamOptions {
        header_timeout: short,
        ..silent.options
    };
    let mut edge = Edge::new(options);
    assert_eq!(edge.ask(1, "GET"), Err(UpstreamError::HeaderTimeout(short)));

    let options = UpstreamOptions {
        total_timeout: short,
        ..silent.options
    };
    let mut edge = Edge::new(options);
    assert_eq!(edge.ask(1, "GET"), Err(UpstreamError::TotalTimeout(short)));

    let stalling = App::new(|_, stream| {
        read_request(stream);
        stream.write_all(&OK[..OK.len() - 1]).unwrap();
        read_to_end(stream);
    });
    // Long enough for the head to come.
    let total = Duration::from_secs(1);
    let options = UpstreamOptions {
        header_timeout: total,
        total_timeout: total,
        ..stalling.options
    };
    let mut edge = Edge::new(options);
    assert_eq!(edge.ask(1, "GET"), Err(UpstreamError::TotalTimeout(total)));
    assert_eq!(edge.driver.upstream.connections(), 0);
}

#[test]
fn a_connect_that_hangs_is_given_up() {
    let mut options = ListenOptions::default();
    options.backlog = 0;
    let listener = bind_group(([127, 0, 0, 1], 0).into(), 1, options)
        .unwrap()
        .remove(0);
    let address = listener.address().unwrap();
    // Fill the backlog of a listener that nobody accepts from, so that the next connect waits.
    let mut waiting = Vec::new();
    let attempt = Duration::from_secs(1);
    while let Ok(stream) = TcpStream::connect_timeout(&address, attempt) {
        waiting.push(stream);
    }
    let short = Duration::from_millis(30);
    let options = UpstreamOptions {
        connect_timeout: short,
        ..UpstreamOptions::new(address)
    };
    let mut edge = Edge::new(options);
    let error = UpstreamError::ConnectTimeout(short);
    assert_eq!(error.status(), 502);
    assert_eq!(edge.ask(1, "GET"), Err(error));
}

#[test]
fn an_unused_connection_is_dropped_after_a_while() {
    let app = App::answering(OK);
    let idle_timeout = Duration::from_millis(30);
    let mut edge = Edge::new(UpstreamOptions {
        idle_timeout,
        ..app.options
    });
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    assert_eq!(edge.driver.upstream.idle(), 1);
    edge.turn_until(|driver| driver.upstream.connections() == 0);
    assert_eq!(edge.driver.upstream.idle(), 0);
    assert_eq!(edge.ask(2, "GET"), ok(b"ok"));
    assert_eq!(app.connections(), 2);
}

#[test]
fn no_more_than_the_allowed_connections_are_kept() {
    let app = App::answering(OK);
    let mut edge = Edge::new(UpstreamOptions {
        idle_max: 1,
        ..app.options
    });
    for tag in 0..3 {
        edge.send(tag, "GET").unwrap();
    }
    for _ in 0..3 {
        assert!(edge.next().1.is_ok());
    }
    assert_eq!(
        (
            edge.driver.upstream.idle(),
            edge.driver.upstream.connections()
        ),
        (1, 1)
    );
}

#[test]
fn bad_answers_are_told_apart() {
    for (bytes, expected) in [
        (&b"SSH-2.0-OpenSSH\r\n"[..], "malformed head of the answer"),
        (
            b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
            "malformed head of the answer",
        ),
        (
            b"HTTP/1.1 200 OK\r\nX: ",
            "connection closed before the end of the answer",
        ),
        (b"", "connection closed before the end of the answer"),
        (
            &OK[..OK.len() - 1],
            "connection closed before the end of the answer",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfish\r\n",
            "malformed body of the answer",
        ),
        (
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "unexpected switch of protocols",
        ),
    ] {
        let app = App::new(move |_, stream| {
            read_request(stream);
            stream.write_all(bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            read_to_end(stream);
        });
        let mut edge = app.edge();
        let error = edge.ask(1, "GET").unwrap_err();
        assert_eq!(
            (error.to_string(), error.status()),
            (expected.to_owned(), 502)
        );
        assert_eq!(
            (edge.driver.upstream.connections(), app.connections()),
            (0, 1)
        );
    }
}

/// Answers the first request of each connection, and hangs up when it has read the second.
fn hanging_up() -> App {
    App::new(|_, stream| {
        if read_request(stream).is_some() {
            stream.write_all(OK).unwrap();
            read_request(stream);
        }
    })
}

#[test]
fn a_used_connection_that_ends_without_an_answer_is_replaced_once() {
    let app = hanging_up();
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    assert_eq!(edge.ask(2, "GET"), ok(b"ok"));
    assert_eq!(app.connections(), 2);

    let app = App::new(|number, stream| {
        if read_request(stream).is_some() && number == 0 {
            stream.write_all(OK).unwrap();
            read_request(stream);
        }
    });
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    assert_eq!(edge.ask(2, "GET"), Err(UpstreamError::Closed));
    assert_eq!(app.connections(), 2);
}

#[test]
fn a_request_that_was_sent_and_may_not_be_sent_twice_is_not() {
    let app = hanging_up();
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    assert_eq!(edge.ask(2, "POST"), Err(UpstreamError::Closed));
    assert_eq!(app.connections(), 1);
}

#[test]
fn a_connection_that_is_already_closed_costs_no_request() {
    let app = App::new(|_, stream| {
        if read_request(stream).is_some() {
            stream.write_all(OK).unwrap();
        }
    });
    for method in ["GET", "POST"] {
        let mut edge = app.edge();
        for tag in 0..20 {
            assert_eq!(edge.ask(tag, "GET"), ok(b"ok"));
            // Whether the loop has heard of the end or not, a request that may not be sent twice
            // gets its answer, once the end has come.
            if method == "POST" {
                edge.turn_until(|driver| driver.upstream.connections() == 0);
            }
            assert_eq!(edge.ask(100 + tag, method), ok(b"ok"));
        }
    }
}

#[test]
fn a_connection_is_looked_at_before_it_gets_what_cannot_be_repeated() {
    let (ended, has_ended) = std::sync::mpsc::channel();
    let app = App::new(move |_, stream| {
        if read_request(stream).is_some() {
            stream.write_all(OK).unwrap();
            stream.shutdown(Shutdown::Both).unwrap();
            ended.send(()).unwrap();
        }
    });
    let mut edge = app.edge();
    edge.send(1, "GET").unwrap();
    edge.turn_until(|driver| !driver.events.is_empty());
    edge.driver.events.clear();
    has_ended.recv().unwrap();
    // No turn in between: the loop has not heard of the end.
    let bytes = Bytes::from_static(b"POST / HTTP/1.1\r\nHost: a\r\n\r\n");
    let request = UpstreamRequest {
        bytes,
        is_head: false,
        is_idempotent: false,
        body_follows: false,
        upgrade: None,
        taking: Taking::Whole,
        client: None,
        tag: 2,
    };
    edge.driver
        .upstream
        .send(edge.event_loop.context(), request)
        .unwrap();
    assert_eq!(edge.next(), (2, ok(b"ok")));
}

#[test]
fn requests_queue_for_a_connection() {
    let app = App::answering(OK);
    let options = UpstreamOptions {
        connections_max: 1,
        queue_max: 3,
        ..app.options
    };
    let mut edge = Edge::new(options);
    for tag in 0..4 {
        edge.send(tag, if tag % 2 == 0 { "GET" } else { "POST" })
            .unwrap();
        // The answers are not looked at before all are sent, or there would be no queue.
        if tag == 0 {
            assert_eq!(edge.driver.upstream.queued(), 0);
        }
    }
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (tag, answer) = edge.next();
        assert_eq!(answer, ok(b"ok"));
        seen.push(tag);
    }
    assert_eq!((seen, app.connections()), (vec![0, 1, 2, 3], 1));
}

#[test]
fn a_client_whose_requests_are_not_answered_leaves_connections_to_others() {
    let app = App::new(|_, stream| match read_request(stream) {
        Some(head) if head.starts_with("GET /good ") => stream.write_all(OK).unwrap(),
        _ => read_to_end(stream),
    });
    let options = UpstreamOptions {
        connections_max: 50,
        ..app.options
    };
    let mut edge = Edge::new(options);
    let bytes = |path| format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n").into();
    let client = |number| Some([192, 0, 2, number].into());
    for tag in 0..100 {
        edge.send_by(client(1), tag, "GET", bytes("slow")).unwrap();
    }
    // Four for each that is free.
    assert_eq!(edge.driver.upstream.queued(), 100 - 41);
    for tag in 100..110 {
        edge.send_by(client(2), tag, "GET", bytes("good")).unwrap();
        assert_eq!(edge.next(), (tag, ok(b"ok")));
    }
    assert_eq!(edge.driver.upstream.queued(), 100 - 41);
    // What one of its own leaves free it has itself.
    edge.driver.upstream.cancel(edge.event_loop.context(), 0);
    edge.turn_until(|driver| driver.upstream.queued() == 100 - 42);
}

#[test]
fn who_asks_for_the_same_lends_it_a_shorter_line() {
    let app = App::new(|_, stream| match read_request(stream) {
        Some(head) if head.starts_with("GET /good ") => stream.write_all(OK).unwrap(),
        _ => read_to_end(stream),
    });
    let options = UpstreamOptions {
        connections_max: 50,
        ..app.options
    };
    let mut edge = Edge::new(options);
    let bytes = |path| format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n").into();
    let client = |number| Some([192, 0, 2, number].into());
    for tag in 0..60 {
        edge.send_by(client(1), tag, "GET", bytes("slow")).unwrap();
    }
    edge.send_by(client(1), 60, "GET", bytes("good")).unwrap();
    for tag in 70..76 {
        edge.send_by(client(2), tag, "GET", bytes("slow")).unwrap();
    }
    let also_for = |edge: &mut Edge, number| {
        let context = edge.event_loop.context();
        edge.driver.upstream.also_for(context, 60, client(number));
        edge.driver.upstream.may_be_given(60)
    };
    // The second has too many under way to be sure of another connection.
    assert!(also_for(&mut edge, 1) && also_for(&mut edge, 2));
    assert!(!also_for(&mut edge, 3));
    assert_eq!(edge.next(), (60, ok(b"ok")));
    assert_eq!(edge.driver.upstream.queued(), 60 - 41);
}

#[test]
fn what_is_not_sent_again_is_not_kept() {
    let app = App::new(|_, stream| {
        read_request(stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nok").unwrap();
        read_to_end(stream);
    });
    let mut edge = app.edge();
    let kept = |driver: &EdgeDriver| -> usize {
        let connections = &driver.upstream.connections;
        let all = connections
            .tokens()
            .filter_map(|token| connections.get(token));
        let exchanges = all.filter_map(Connection::exchange);
        exchanges.map(|exchange| exchange.request.bytes.len()).sum()
    };
    let request = |tag, taking, body_follows| UpstreamRequest {
        bytes: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n".into(),
        is_head: false,
        is_idempotent: false,
        body_follows,
        upgrade: None,
        taking,
        client: None,
        tag,
    };
    let context = edge.event_loop.context();
    let answered = request(1, Taking::Parts, false);
    edge.driver.upstream.send(context, answered).unwrap();
    assert!(kept(&edge.driver) > 0);
    edge.turn_until(|driver| !driver.events.is_empty());
    assert_eq!(kept(&edge.driver), 0);
    edge.driver.events.clear();

    let silent = App::new(|_, stream| read_to_end(stream));
    let mut edge = silent.edge();
    let context = edge.event_loop.context();
    let begun = request(2, Taking::Parts, true);
    edge.driver.upstream.send(context, begun).unwrap();
    edge.turn_until(|driver| !driver.events.is_empty());
    let UpstreamEvent::Started { connection, .. } = edge.driver.events.remove(0) else {
        panic!("it has no connection");
    };
    assert!(kept(&edge.driver) > 0);
    let (context, piece) = (edge.event_loop.context(), Bytes::from_static(b"bo"));
    edge.driver
        .upstream
        .write_body(context, connection, 2, piece);
    assert_eq!(kept(&edge.driver), 0);
}

#[test]
fn the_queue_is_bounded_in_length_and_time() {
    let app = App::new(|_, stream| read_to_end(stream));
    let options = UpstreamOptions {
        connections_max: 1,
        queue_max: 1,
        header_timeout: Duration::from_millis(50),
        ..app.options
    };
    let mut edge = Edge::new(options);
    edge.send(1, "GET").unwrap();
    edge.send(2, "GET").unwrap();
    let full = UpstreamError::QueueFull { limit: 1 };
    assert_eq!(
        (edge.send(3, "GET"), full.status()),
        (Err(full.clone()), 503)
    );
    let mut failed = [edge.next(), edge.next()];
    failed.sort_by_key(|(tag, _)| *tag);
    let timeout = Duration::from_millis(50);
    assert_eq!(failed[0], (1, Err(UpstreamError::HeaderTimeout(timeout))));
    // It may have got the connection in the turn that gave the first one up.
    let (tag, error) = &failed[1];
    assert_eq!((*tag, error.is_err()), (2, true));
}

#[test]
fn whoever_waits_too_long_is_told_so() {
    let app = App::new(|_, stream| {
        read_request(stream);
        // The head in time, the body never.
        stream.write_all(&OK[..OK.len() - 1]).unwrap();
        read_to_end(stream);
    });
    let timeout = Duration::from_millis(50);
    let options = UpstreamOptions {
        connections_max: 1,
        queue_timeout: timeout,
        ..app.options
    };
    let mut edge = Edge::new(options);
    edge.send(1, "GET").unwrap();
    edge.send(2, "GET").unwrap();
    let error = UpstreamError::QueueTimeout(timeout);
    assert_eq!(error.status(), 503);
    assert_eq!(edge.next(), (2, Err(error)));
    assert_eq!(
        (
            edge.driver.upstream.queued(),
            edge.driver.upstream.connections()
        ),
        (0, 1)
    );
}

#[test]
fn an_application_that_takes_a_request_in_sips_has_no_longer_for_it() {
    const BODY_BYTES: usize = 1 << 30;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let timeout = Duration::from_millis(30);
    let mut edge = Edge::new(UpstreamOptions {
        total_timeout: timeout,
        ..UpstreamOptions::new(listener.local_addr().unwrap())
    });
    // Never written to, so it is only address space.
    let body = Bytes::from(vec![0; BODY_BYTES]);
    edge.send_bytes(1, "POST", body).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let (mut buffer, mut taken) = (vec![0; 256 << 10], 0);
    while edge.driver.events.is_empty() {
        taken += stream.read(&mut buffer).unwrap_or(0);
        assert!(taken < BODY_BYTES, "it was let go on to its end");
        edge.turn(Duration::ZERO);
    }
    let error = UpstreamError::TotalTimeout(timeout);
    assert_eq!(edge.next(), (1, Err(error)));
}

#[test]
fn a_cancelled_request_is_forgotten_and_makes_room() {
    let app = App::new(|number, stream| {
        if number == 0 {
            read_to_end(stream);
        } else {
            while read_request(stream).is_some() {
                stream.write_all(OK).unwrap();
            }
        }
    });
    let mut edge = Edge::new(UpstreamOptions {
        connections_max: 1,
        ..app.options
    });
    for tag in 1..=3 {
        edge.send(tag, "GET").unwrap();
    }
    // The first must have its connection before it loses it, or it would not be number 0.
    edge.turn_until(|_| app.connections() == 1);
    for tag in [2, 1, 7] {
        edge.driver.upstream.cancel(edge.event_loop.context(), tag);
    }
    assert_eq!(edge.next(), (3, ok(b"ok")));
    assert!(edge.driver.events.is_empty());
    edge.driver.upstream.cancel(edge.event_loop.context(), 3);
    assert_eq!(edge.ask(4, "GET"), ok(b"ok"));
    assert_eq!(app.connections(), 2);
}

#[test]
fn what_waits_is_told_when_the_application_goes_away() {
    let app = App::new(|_, stream| {
        read_request(stream);
    });
    let mut edge = Edge::new(UpstreamOptions {
        connections_max: 1,
        ..app.options
    });
    for tag in 0..5 {
        edge.send(tag, "GET").unwrap();
    }
    for tag in 0..5 {
        assert_eq!(edge.next(), (tag, Err(UpstreamError::Closed)));
    }
    assert_eq!(
        (
            edge.driver.upstream.queued(),
            edge.driver.upstream.connections()
        ),
        (0, 0)
    );
}

#[test]
fn news_of_nobody_changes_nothing() {
    let app = App::answering(OK);
    let mut edge = app.edge();
    let stranger = Token::new(KIND, 77, 12);
    let context = edge.event_loop.context();
    edge.driver
        .upstream
        .ready(context, stranger, Readiness::READABLE, &mut |_, _| ());
    edge.driver
        .upstream
        .expired(context, stranger, &mut |_, _| ());
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
}

#[test]
fn a_body_that_lost_its_connection_is_to_be_told_of_another() {
    let app = App::new(|number, stream| {
        read_request(stream);
        if number == 0 {
            stream.write_all(OK).unwrap();
            // The head of the second request, and never its body.
            read_request(stream);
        } else {
            stream.read_exact(&mut [0; 4]).unwrap();
            stream.write_all(OK).unwrap();
        }
    });
    let mut edge = app.edge();
    assert_eq!(edge.ask(1, "GET"), ok(b"ok"));
    let request = UpstreamRequest {
        bytes: "PUT /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n".into(),
        is_head: false,
        is_idempotent: true,
        body_follows: true,
        upgrade: None,
        taking: Taking::Whole,
        client: None,
        tag: 2,
    };
    let context = edge.event_loop.context();
    edge.driver.upstream.send(context, request).unwrap();
    let started = |edge: &mut Edge| {
        edge.turn_until(|driver| !driver.events.is_empty());
        match edge.driver.events.remove(0) {
            UpstreamEvent::Started { connection, .. } => connection,
            other => panic!("{other:?}"),
        }
    };
    let first = started(&mut edge);
    // It hangs up, and the request is sent to it again.
    edge.turn_until(|driver| driver.upstream.is_unannounced(2));
    let context = edge.event_loop.context();
    let piece = Bytes::from_static(b"body");
    let upstream = &mut edge.driver.upstream;
    let written = upstream.finish_body(context, first, 2, piece.clone());
    assert_eq!(written, Written::Gone);
    let second = started(&mut edge);
    let context = edge.event_loop.context();
    let written = edge.driver.upstream.finish_body(context, second, 2, piece);
    assert_ne!(written, Written::Gone);
    assert_eq!(edge.next(), (2, ok(b"ok")));
}
