//! Connections that leave HTTP.

use crate::support::{Client, End, serve, until};
use dwell_engine::handler::{
    Answer, Exchange, Responder, SendError, StreamHandler, StreamSender, streamed,
};
use dwell_engine::websocket::{Message, OriginPolicy, UpgradeOptions, WebSocketRef};
use dwell_engine::{Request, StreamEnd, StreamRef};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const UPGRADE: &str = "GET /own HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: own\r\n\r\n";
/// A handshake that asks for a WebSocket.
pub(crate) const HANDSHAKE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn switching() -> Answer {
    Answer::new(101)
        .field("Connection", "Upgrade")
        .field("Upgrade", "own")
}

/// Echoes lines, and tells what becomes of it.
struct Lines(Sender<Told>);

enum Told {
    Opened(StreamSender),
    Closed(StreamEnd),
}

impl StreamHandler for Lines {
    fn opened(&mut self, _: &mut StreamRef<'_>, sender: StreamSender) {
        self.0.send(Told::Opened(sender)).unwrap();
    }

    fn data(&mut self, stream: &mut StreamRef<'_>, input: &[u8]) -> usize {
        assert_ne!(input, b"panic\n", "as the test wants it");
        let end = input.iter().rposition(|byte| *byte == b'\n');
        let lines = &input[..end.map_or(0, |end| end + 1)];
        stream.write(lines);
        lines.len()
    }

    fn closed(&mut self, end: StreamEnd) {
        self.0.send(Told::Closed(end)).unwrap();
    }
}

#[test]
fn a_read_handler_lives_on_the_loop_and_is_written_to_from_anywhere() {
    let (to, told) = channel();
    let to = Mutex::new(to);
    let handler = move |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let handler = Lines(to.lock().unwrap().clone());
        exchange.take_over(switching(), handler);
    };
    let running = serve(|options| options, handler);
    let mut client = Client::connect(&running);
    // The first line comes with the request, the second in two pieces.
    client.send(format!("{UPGRADE}early\nha"));
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("upgrade")), (101, Some("own")));
    client.send("lf\n");
    let mut line = |text: &[u8]| {
        while client.received.len() < text.len() {
            assert_eq!(client.receive(), None);
        }
        assert_eq!(client.received, text);
    };
    line(b"early\nhalf\n");
    let Told::Opened(sender) = told.recv().unwrap() else {
        panic!("closed before it was opened");
    };
    sender.write("from afar\n").unwrap();
    line(b"early\nhalf\nfrom afar\n");
    until(&running, |figures| {
        let open = (figures.connections, figures.raw_connections);
        open == (1, 1) && figures.in_flight == 0
    });
    sender.close().unwrap();
    assert_eq!(client.finish_sending().end(), End::InOrder);
    assert!(matches!(
        told.recv().unwrap(),
        Told::Closed(StreamEnd::Closed)
    ));
    until(&running, |figures| figures.connections == 0);
    sender.write("nobody reads this").unwrap();

    let mut client = Client::connect(&running);
    client.send(format!("{UPGRADE}panic\n")).answer();
    client.end();
    until(&running, |figures| figures.connections == 0);
    assert_eq!(running.statistics().panics, 1);
}

#[test]
fn what_is_on_its_way_to_a_loop_has_a_bound_for_each_connection() {
    const LIMIT: usize = 1000;
    let (to, told) = channel();
    let (release, released) = channel::<()>();
    let held = Mutex::new(Some((to, released)));
    let handler = move |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let (to, released) = held.lock().unwrap().take().unwrap();
        exchange.take_over(switching(), Held(to, Some(released)));
    };
    let running = serve(|options| options.pollers(1).output_bytes(LIMIT), handler);
    let mut client = Client::connect(&running);
    client.send(UPGRADE);
    let sender = told.recv().unwrap();
    // The loop stands still, so that nothing is taken: one piece may go beyond the bound.
    let piece = [b'x'; 600];
    assert_eq!(sender.write(piece.to_vec()), Ok(()));
    assert_eq!(sender.clone().write(piece.to_vec()), Ok(()));
    let full = SendError::Full {
        limit: LIMIT,
        waiting: 1200,
    };
    assert_eq!(sender.write("more"), Err(full));
    release.send(()).unwrap();
    assert_eq!(client.answer().status, 101);
    while client.received.len() < 1200 {
        assert_eq!(client.receive(), None);
    }
    // What has been taken waits no more.
    assert_eq!(sender.write("the end"), Ok(()));
    sender.close().unwrap();
    client.end();
    assert!(client.received.ends_with(b"xthe end"));
}

/// Holds its loop up until it is released.
struct Held(Sender<StreamSender>, Option<Receiver<()>>);

impl StreamHandler for Held {
    fn opened(&mut self, _: &mut StreamRef<'_>, sender: StreamSender) {
        self.0.send(sender).unwrap();
        if let Some(released) = self.1.take() {
            released.recv().unwrap();
        }
    }

    fn data(&mut self, _: &mut StreamRef<'_>, input: &[u8]) -> usize {
        input.len()
    }
}

#[test]
fn a_connection_may_leave_for_a_thread_and_keeps_its_place() {
    let handler = |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let echo = |mut socket: dwell_evloop::BlockingStream, early: Vec<u8>| {
            socket.write_all(&early).unwrap();
            let mut piece = [0; 100];
            while let Ok(read) = socket.read(&mut piece)
                && read > 0
            {
                socket.write_all(&piece[..read]).unwrap();
            }
        };
        let responder = exchange.responder();
        // From another thread, as a handler of the pool would.
        std::thread::spawn(move || responder.take_over_blocking(switching(), echo).unwrap());
    };
    let running = serve(|options| options, handler);
    let mut client = Client::connect(&running);
    client.send(format!("{UPGRADE}early"));
    assert_eq!(client.answer().status, 101);
    client.send(" and late");
    while client.received != b"early and late" {
        assert_eq!(client.receive(), None);
    }
    until(&running, |figures| figures.connections == 1);
    drop(client);
    until(&running, |figures| figures.connections == 0);
}

#[test]
fn a_web_socket_lives_on_the_loop_and_is_closed_with_the_server() {
    let handler = |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let options = UpgradeOptions {
            origin: OriginPolicy::Any,
            ..UpgradeOptions::default()
        };
        let echo = |socket: &mut WebSocketRef<'_>, message: Message<'_>| {
            socket.send(message.kind, &message.payload).unwrap();
        };
        exchange.web_socket(request, &options, echo);
    };
    let running = serve(|options| options, handler);
    let mut client = Client::connect(&running);
    assert_eq!(client.get("/").status, 400, "no handshake");
    client.send(HANDSHAKE);
    let answer = client.answer();
    assert_eq!(answer.status, 101);
    assert_eq!(
        answer.field("sec-websocket-accept"),
        Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    );
    // "hi", masked with zeros.
    client.send([0x81, 0x82, 0, 0, 0, 0, b'h', b'i']);
    while client.received.len() < 4 {
        assert_eq!(client.receive(), None);
    }
    assert_eq!(client.received, [0x81, 2, b'h', b'i']);
    until(&running, |figures| figures.raw_connections == 1);
    let ending = std::thread::spawn(move || running.shutdown(Duration::from_secs(20)));
    while client.received.len() < 8 {
        assert_eq!(client.receive(), None);
    }
    assert_eq!(
        client.received[4..],
        [0x88, 2, 0x03, 0xe9],
        "1001, going away"
    );
    client.send([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9]);
    assert_eq!(client.finish_sending().end(), End::InOrder);
    assert_eq!(ending.join().unwrap().cut_connections, 0);
}

#[test]
fn who_leaves_http_while_the_server_ends_is_told_of_it() {
    let (to, responders) = channel::<Responder>();
    let to = Mutex::new(to);
    let handler = move |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        if request.head.path == "/own" {
            to.lock().unwrap().send(exchange.responder()).unwrap();
            return;
        }
        let echo = |socket: &mut WebSocketRef<'_>, message: Message<'_>| {
            socket.send(message.kind, &message.payload).unwrap();
        };
        // Upgraded in a later turn, when the loop ends already.
        exchange.web_socket(request, &UpgradeOptions::default(), echo);
    };
    let running = serve(|options| options, handler);
    let (told, heard) = channel();
    let mut own = Client::connect(&running);
    own.send(UPGRADE);
    let responder = responders.recv().unwrap();
    let mut socket = Client::connect(&running);
    let (first, rest) = HANDSHAKE.split_at(20);
    socket.send(first);
    until(&running, |figures| figures.connections == 2);
    let address = running.addresses()[0];
    let ending = std::thread::spawn(move || running.shutdown(Duration::from_secs(60)));
    // Nobody listens any more: the loop ends.
    while TcpStream::connect(address).is_ok() {
        std::thread::yield_now();
    }
    responder.take_over(switching(), Lines(told)).unwrap();
    assert_eq!(own.answer().status, 101);
    assert_eq!(own.finish_sending().end(), End::InOrder);
    socket.send(rest);
    assert_eq!(socket.answer().status, 101);
    while socket.received.len() < 4 {
        assert_eq!(socket.receive(), None);
    }
    assert_eq!(socket.received, [0x88, 2, 0x03, 0xe9], "1001, going away");
    socket.send([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9]);
    assert_eq!(socket.finish_sending().end(), End::InOrder);
    let shutdown = ending.join().unwrap();
    assert_eq!((shutdown.cut_connections, shutdown.cut_requests), (0, 0));
    assert!(matches!(heard.recv().unwrap(), Told::Opened(_)));
    assert!(matches!(
        heard.recv().unwrap(),
        Told::Closed(StreamEnd::Closed)
    ));
}

#[test]
fn a_thread_that_panics_costs_its_own_connection_and_is_counted() {
    let handler = |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let panics = |_: dwell_evloop::BlockingStream, _: Vec<u8>| panic!("as the test wants it");
        exchange
            .responder()
            .take_over_blocking(switching(), panics)
            .unwrap();
    };
    let running = serve(|options| options, handler);
    let mut client = Client::connect(&running);
    assert_eq!(client.send(UPGRADE).answer().status, 101);
    client.end();
    until(&running, |figures| figures.connections == 0);
    assert_eq!(running.statistics().panics, 1);
}

#[test]
fn no_other_protocol_begins_within_a_body() {
    let handler = streamed(|request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        if request.head.path == "/later" {
            let responder = exchange.responder();
            std::thread::spawn(move || {
                let echo = |stream: &mut StreamRef<'_>, input: &[u8]| {
                    stream.write(input);
                    input.len()
                };
                responder.take_over(switching(), echo).unwrap();
            });
            return;
        }
        exchange.take_over(switching(), |_: &mut StreamRef<'_>, _: &[u8]| {
            panic!("what came is a body");
        });
    });
    let running = serve(|options| options, handler);
    for (target, body) in [("/", "body"), ("/", ""), ("/later", "body")] {
        let mut client = Client::connect(&running);
        client.send(format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\
             Connection: upgrade\r\nUpgrade: own\r\n\r\n{body}"
        ));
        let answer = client.answer();
        assert_eq!(
            (answer.status, answer.field("connection")),
            (400, Some("close"))
        );
    }
    assert_eq!(running.statistics().panics, 0);
}

#[test]
fn behind_a_body_that_was_read_another_protocol_begins() {
    let handler = |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        assert_eq!(request.body, b"body");
        exchange.take_over(switching(), |stream: &mut StreamRef<'_>, input: &[u8]| {
            stream.write(input);
            input.len()
        });
    };
    let running = serve(|options| options, handler);
    let mut client = Client::connect(&running);
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: upgrade\r\n\
         Upgrade: own\r\n\r\nbodyearly",
    );
    assert_eq!(client.answer().status, 101);
    while client.received.len() < 5 {
        assert_eq!(client.receive(), None);
    }
    assert_eq!(client.received, b"early");
}
