//! Clients that ask, stall, leave and read as chance will have it, and what they may be told.

use super::model::Exchange;
use super::random::Random;
use dwell_proto::http1::{
    BodyDecoder, BodyFraming, FieldStorage, HeadLimits, encode, head_end, parse_response,
};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// A request that a client has on its list.
pub(super) struct Planned {
    pub(super) method: &'static str,
    pub(super) body: Vec<u8>,
    /// Where it ends among all that the client has to send.
    end: usize,
}

pub(super) struct Client {
    pub(super) planned: Vec<Planned>,
    socket: Option<TcpStream>,
    wire: Vec<u8>,
    sent: usize,
    /// How much of `wire` is ever sent.
    sent_max: usize,
    /// It has ended its sending side.
    is_half_closed: bool,
    received: Vec<u8>,
    /// The server has ended its side, or the connection has failed.
    is_ended: bool,
}

impl Client {
    pub(super) fn new(random: &mut Random, address: SocketAddr, client: usize) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        if random.once_in(2) {
            socket.set_recv_buffer_size(8 * 1024).unwrap();
        }
        socket.connect(&address.into()).unwrap();
        let socket: TcpStream = socket.into();
        socket.set_nodelay(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let (mut wire, mut planned) = (Vec::new(), Vec::new());
        for number in 0..=random.below(6) {
            planned.push(plan(random, &mut wire, client, number));
        }
        if random.once_in(10) {
            wire.extend_from_slice(b"no request\r\n\r\n");
        }
        let sent_max = match random.below(4) {
            0 => random.below(wire.len() + 1),
            _ => wire.len(),
        };
        Self {
            planned,
            socket: Some(socket),
            wire,
            sent: 0,
            sent_max,
            is_half_closed: false,
            received: Vec::new(),
            is_ended: false,
        }
    }

    /// Does one thing, or nothing.
    pub(super) fn step(&mut self, random: &mut Random) {
        match random.below(40) {
            0 => self.reset(),
            1..=3 if self.sent == self.sent_max => self.half_close(),
            4..=18 => {
                let bytes = random.of(&[1, 3, 20, 100, 1000, 100_000]);
                self.send(bytes);
            }
            19..=30 => {
                let bytes = random.of(&[1, 100, 5000, 1_000_000]);
                self.receive(bytes);
            }
            _ => {}
        }
    }

    /// Sends what is left and reads what there is; true when anything happened.
    pub(super) fn go_on(&mut self) -> bool {
        let before = (self.sent, self.received.len(), self.is_ended);
        self.send(usize::MAX);
        self.receive(usize::MAX);
        before != (self.sent, self.received.len(), self.is_ended)
    }

    fn send(&mut self, bytes: usize) {
        let end = self.sent_max.min(self.sent.saturating_add(bytes));
        let Some(socket) = self.socket.as_mut().filter(|_| self.sent < end) else {
            return;
        };
        // A server that has closed says so when it is read from.
        self.sent += socket.write(&self.wire[self.sent..end]).unwrap_or(0);
    }

    fn receive(&mut self, bytes: usize) {
        let mut buffer = [0; 16_384];
        let until = self.received.len().saturating_add(bytes);
        while !self.is_ended && self.received.len() < until {
            let Some(socket) = &mut self.socket else {
                return;
            };
            let room = buffer.len().min(until - self.received.len());
            match socket.read(&mut buffer[..room]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Ok(read) if read > 0 => self.received.extend_from_slice(&buffer[..read]),
                Ok(_) | Err(_) => self.is_ended = true,
            }
        }
    }

    fn half_close(&mut self) {
        if let Some(socket) = &self.socket {
            // It fails where the server was first.
            let _ = socket.shutdown(Shutdown::Write);
            self.is_half_closed = true;
        }
    }

    fn reset(&mut self) {
        if let Some(socket) = self.socket.take() {
            SockRef::from(&socket)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
        }
    }

    /// Goes, one way or the other.
    pub(super) fn leave(&mut self, random: &mut Random) {
        if random.once_in(2) {
            self.reset();
        }
        self.socket = None;
    }

    /// Checks what was received against what the app has done; `is_settled` says that everything
    /// that could happen has.
    pub(super) fn check(&self, planned: &[Planned], exchanges: &[&Exchange], is_settled: bool) {
        let missing = self.missing(planned, exchanges);
        assert!(!is_settled || missing.is_none(), "{missing:?}");
    }

    /// Checks what was received, and returns what has to come yet.
    pub(super) fn missing(&self, planned: &[Planned], exchanges: &[&Exchange]) -> Option<Missing> {
        let is_gone = self.is_ended || self.socket.is_none();
        let (mut rest, mut number) = (&self.received[..], 0);
        while !rest.is_empty() {
            let Some(read) = read_answer(rest, number, planned, exchanges) else {
                // Part of an answer, or one that cannot be read.
                let is_broken = exchanges
                    .get(number)
                    .is_some_and(|exchange| exchange.is_broken);
                return (!is_broken && !is_gone).then_some(Missing::RestOfAnswer(number));
            };
            rest = &rest[read.length..];
            number += usize::from(read.is_final);
            assert!(
                !read.is_last || rest.is_empty(),
                "more after the last answer"
            );
        }
        if is_gone {
            return None;
        }
        if self.is_half_closed {
            return Some(Missing::End);
        }
        let asked = planned.iter().filter(|planned| planned.end <= self.sent);
        (number < asked.count()).then_some(Missing::Answer(number))
    }
}

/// A debt to a client.
#[derive(Debug)]
#[expect(
    dead_code,
    reason = "the numbers of answers are shown where a test fails"
)]
pub(super) enum Missing {
    Answer(usize),
    RestOfAnswer(usize),
    /// The end of a connection whose client has ended its side.
    End,
}

/// The answer at the front of `input`, if it is complete.
fn read_answer(
    input: &[u8],
    number: usize,
    planned: &[Planned],
    exchanges: &[&Exchange],
) -> Option<Answer> {
    let end = head_end(input, &mut 0)?;
    let mut storage = FieldStorage::new();
    let method = planned.get(number).map_or("GET", |planned| planned.method);
    let exchange = exchanges.get(number);
    let parsed = parse_response(&input[..end], &mut storage, &HeadLimits::default(), method);
    let head = match parsed {
        Ok(head) => head,
        Err(_) if exchange.is_some_and(|exchange| exchange.is_broken) => return None,
        Err(error) => panic!("{error}: {:?}", String::from_utf8_lossy(&input[..end])),
    };
    if head.status < 200 && head.status != 101 {
        return Some(Answer {
            length: end,
            is_final: false,
            is_last: false,
        });
    }
    let Some(name) = head.fields.find("x-number") else {
        assert!(!head.keep_alive && head.status >= 400, "{head:?}");
        // Of a request whose head never came whole the server knows no method.
        let is_whole = input.len() == end
            || head.fields.find("content-length")
                == Some((input.len() - end).to_string().as_bytes());
        return is_whole.then_some(Answer {
            length: input.len(),
            is_final: true,
            is_last: true,
        });
    };
    assert_eq!(name, number.to_string().as_bytes(), "answers in order");
    let exchange = exchange.expect("an answer to a request that came");
    let mut body = Vec::new();
    let length = decode(&input[end..], head.framing, &mut body);
    assert!(exchange.answer.starts_with(&body), "body {number} differs");
    let is_whole = length.is_some() && method != "HEAD" && head.status == 200;
    assert!(!is_whole || body == exchange.answer, "body {number} is cut");
    let is_last = !head.keep_alive;
    Some(Answer {
        length: end + length?,
        is_final: true,
        is_last,
    })
}

/// What is known of an answer that was read.
struct Answer {
    length: usize,
    is_final: bool,
    is_last: bool,
}

/// Decodes a body; returns its length as it came, if its end has.
fn decode(input: &[u8], framing: BodyFraming, body: &mut Vec<u8>) -> Option<usize> {
    let mut decoder = BodyDecoder::new(framing, u64::MAX);
    let mut used = 0;
    loop {
        let step = decoder.decode(&input[used..]).expect("a well-formed body");
        body.extend_from_slice(step.data);
        used += step.consumed;
        if step.done {
            return Some(used);
        }
        if step.consumed == 0 {
            return None;
        }
    }
}

/// Bytes that tell where they belong.
pub(super) fn pattern(client: usize, number: usize, length: usize) -> Vec<u8> {
    let start = client * 31 + number * 7;
    (start..start + length)
        .map(|place| (place % 251) as u8)
        .collect()
}

/// Makes up a request and appends it to `wire`.
fn plan(random: &mut Random, wire: &mut Vec<u8>, client: usize, number: usize) -> Planned {
    let (method, has_body) = random.of(&[("GET", false), ("HEAD", false), ("POST", true)]);
    let is_old = random.once_in(8);
    let version = if is_old { "1.0" } else { "1.1" };
    let mut head = format!("{method} /{client}/{number} HTTP/{version}\r\nHost: a\r\n");
    if is_old && !random.once_in(3) {
        head += "Connection: keep-alive\r\n";
    } else if random.once_in(12) {
        head += "Connection: close\r\n";
    }
    if has_body && random.once_in(4) {
        head += "Expect: 100-continue\r\n";
    }
    let length = random.of(&[1, 10, 300, 30_000]);
    let body = if has_body {
        pattern(client, number, length)
    } else {
        Vec::new()
    };
    if has_body && (is_old || random.once_in(2)) {
        wire.extend_from_slice(head.as_bytes());
        encode::field_u64(wire, "Content-Length", length as u64);
        encode::end_of_head(wire);
        wire.extend_from_slice(&body);
    } else if has_body {
        head += "Transfer-Encoding: chunked\r\n\r\n";
        wire.extend_from_slice(head.as_bytes());
        let size = random.of(&[1, 100, 50_000]).max(length / 50);
        for piece in body.chunks(size) {
            encode::chunk(wire, piece);
        }
        encode::last_chunk(wire);
    } else {
        wire.extend_from_slice(head.as_bytes());
        wire.extend_from_slice(b"\r\n");
    }
    Planned {
        method,
        body,
        end: wire.len(),
    }
}
