//! Clients that come, break off, stall and leave in every way.

use crate::support::{Client, PATIENCE, get, serve, until};
use dwell_engine::handler::{Answer, BodyMode, Exchange, Handler};
use dwell_engine::{Request, Running};
use dwell_proto::http1::RequestHead;
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Every way to answer, by the path.
struct Everything;

impl Handler for Everything {
    fn body(&self, head: &RequestHead<'_, '_>) -> BodyMode {
        match head.path {
            "/collect" => BodyMode::Collect,
            _ => BodyMode::Stream,
        }
    }

    fn handle(&self, request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
        match request.head.path {
            "/pool" => {
                let mut owned = exchange.owned(request);
                let responder = exchange.responder();
                // Whatever becomes of the client, the pool goes on.
                let _ = exchange.offload(move || {
                    let text = match owned.body.read_all(1 << 20) {
                        Ok(body) => format!("{} bytes", body.len()),
                        Err(error) => error.to_string(),
                    };
                    let _ = responder.send(Answer::text(200, text));
                });
            }
            "/stream" => {
                let responder = exchange.responder();
                let _ = exchange.offload(move || {
                    let Ok(mut writer) = responder.stream(Answer::new(200), None) else {
                        return;
                    };
                    for _ in 0..20 {
                        if writer.write_blocking(vec![b's'; 50_000]).is_err() {
                            return;
                        }
                    }
                    let _ = writer.finish(Vec::new());
                });
            }
            "/future" => {
                let mut body = exchange.body(request);
                exchange.spawn(|responder| async move {
                    while let Some(Ok(_)) = std::future::poll_fn(|task| body.poll_next(task)).await
                    {
                    }
                    let _ = responder.send(Answer::text(200, "read"));
                });
            }
            "/switch" => {
                let echo = |stream: &mut dwell_engine::StreamRef<'_>, input: &[u8]| {
                    stream.write(input);
                    input.len()
                };
                let head = Answer::new(101)
                    .field("Connection", "Upgrade")
                    .field("Upgrade", "own");
                exchange.take_over(head, echo);
            }
            _ => exchange.text(200, "fine"),
        }
    }
}

/// A small generator of numbers: every run does the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

const REQUESTS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /collect HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n0123456789abcdefghij",
    "POST /pool HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n0123456789abcdefghij",
    "POST /pool HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "POST /future HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /pool HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    "GET /switch HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: own\r\n\r\nmore",
    "POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nbut not so many",
    "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03 no TLS here",
];

fn is_alive(running: &Running) {
    assert_eq!(Client::connect(running).get("/").text(), "fine\n");
    assert_eq!(running.statistics().panics, 0);
}

#[test]
fn random_lives_leave_nothing_behind() {
    let running = serve(
        |options| options.pollers(2).max_connections(200),
        Everything,
    );
    for seed in 0..4 {
        let mut numbers = Numbers(seed);
        let mut stalled: Vec<TcpStream> = Vec::new();
        for _ in 0..150 {
            let socket = TcpStream::connect(running.addresses()[0]).unwrap();
            socket.set_nonblocking(true).unwrap();
            live(socket, &mut numbers, &mut stalled);
            if stalled.len() > 40 {
                stalled.remove(numbers.below(40));
            }
        }
        drop(stalled);
        until(&running, |figures| {
            figures.connections == 0 && figures.in_flight == 0
        });
        is_alive(&running);
    }
}

/// One client: sends and reads pieces, then leaves in one of the ways there are.
fn live(mut socket: TcpStream, numbers: &mut Numbers, stalled: &mut Vec<TcpStream>) {
    for _ in 0..numbers.below(4) {
        let request = REQUESTS[numbers.below(REQUESTS.len())].as_bytes();
        let end = if numbers.below(2) == 0 {
            request.len()
        } else {
            numbers.below(request.len())
        };
        let mut rest = &request[..end];
        while !rest.is_empty() {
            let piece = 1 + numbers.below(rest.len());
            // A server that has ended the connection takes nothing more.
            if !matches!(socket.write(&rest[..piece]), Ok(written) if written == piece) {
                break;
            }
            rest = &rest[piece..];
        }
        if numbers.below(3) == 0 {
            let mut buffer = vec![0; 1 + numbers.below(5000)];
            let _ = socket.read(&mut buffer);
        }
    }
    match numbers.below(4) {
        0 => drop(socket),
        1 => SockRef::from(&socket)
            .set_linger(Some(Duration::ZERO))
            .unwrap(),
        2 => {
            let _ = socket.shutdown(std::net::Shutdown::Write);
            stalled.push(socket);
        }
        _ => stalled.push(socket),
    }
}

/// Three hundred clients that each do the same.
fn scan(each: impl Fn(&mut TcpStream)) {
    let running = serve(|options| options.pollers(2), Everything);
    for _ in 0..300 {
        let mut socket = TcpStream::connect(running.addresses()[0]).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        each(&mut socket);
    }
    until(&running, |figures| {
        figures.connections == 0 && figures.in_flight == 0
    });
    is_alive(&running);
}

#[test]
fn three_hundred_that_fire_and_forget() {
    scan(|socket| socket.write_all(get("/pool").as_bytes()).unwrap());
}

#[test]
fn three_hundred_that_close_half_after_half_a_head() {
    scan(|socket| {
        socket.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    });
}

#[test]
fn three_hundred_that_send_garbage() {
    scan(|socket| {
        let garbage = (0..2000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8);
        let _ = socket.write_all(&garbage.collect::<Vec<_>>());
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    });
}
