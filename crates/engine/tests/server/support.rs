//! Clients on plain sockets that wait, and servers to ask.

use dwell_engine::handler::Handler;
use dwell_engine::{Running, Server, ServerBuilder, Statistics};
use dwell_proto::http1::{BodyDecoder, FieldStorage, HeadLimits, parse_response};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server on a free port, with one loop if nothing else is asked for.
pub(crate) fn serve(
    options: impl FnOnce(ServerBuilder) -> ServerBuilder,
    handler: impl Handler,
) -> Running {
    let builder = Server::builder()
        .pollers(1)
        .listen(([127, 0, 0, 1], 0).into());
    options(builder).serve(handler).unwrap()
}

/// Waits until what the server has done satisfies `condition`.
pub(crate) fn until(running: &Running, condition: impl Fn(&Statistics) -> bool) {
    let begun = Instant::now();
    while !condition(&running.statistics()) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", running.statistics());
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// How a connection ended, as its client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    InOrder,
    Reset,
}

pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    pub(crate) received: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(running: &Running) -> Self {
        Self::to(running.addresses()[0])
    }

    pub(crate) fn to(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            received: Vec::new(),
        }
    }

    /// Sends as much as the server lets it.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        // A server that has refused the beginning need not take the rest.
        let _ = self.socket.write_all(bytes.as_ref());
        self
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.send(get(target)).answer()
    }

    pub(crate) fn finish_sending(&mut self) -> &mut Self {
        // A connection that the server has ended needs no ending.
        let _ = self.socket.shutdown(Shutdown::Write);
        self
    }

    /// The next answer, to a request of any method but HEAD.
    pub(crate) fn answer(&mut self) -> Answer {
        self.answer_to("GET")
    }

    pub(crate) fn answer_to(&mut self, method: &str) -> Answer {
        let found = self.try_answer_to(method);
        found.unwrap_or_else(|end| {
            let received = String::from_utf8_lossy(&self.received);
            panic!("the connection ended ({end:?}) with {received:?}")
        })
    }

    pub(crate) fn try_answer_to(&mut self, method: &str) -> Result<Answer, End> {
        loop {
            if let Some((answer, used)) = Answer::parse(&self.received, method, false) {
                self.received.drain(..used);
                return Ok(answer);
            }
            if let Some(end) = self.receive() {
                let all = Answer::parse(&self.received, method, true);
                return all
                    .map(|(answer, used)| {
                        self.received.drain(..used);
                        answer
                    })
                    .ok_or(end);
            }
        }
    }

    /// Waits for the end of the connection; what came before it is in `received`.
    pub(crate) fn end(&mut self) -> End {
        loop {
            if let Some(end) = self.receive() {
                return end;
            }
        }
    }

    /// Waits for more; says so when it is the end.
    pub(crate) fn receive(&mut self) -> Option<End> {
        let mut buffer = [0; 16 * 1024];
        match self.socket.read(&mut buffer) {
            Ok(0) => Some(End::InOrder),
            Ok(read) => {
                self.received.extend_from_slice(&buffer[..read]);
                None
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(End::Reset),
            Err(error) => panic!(
                "{error}, after {:?}",
                String::from_utf8_lossy(&self.received)
            ),
        }
    }
}

/// One answer as it came, its transfer coding removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, Vec<u8>)>,
}

impl Answer {
    /// The answer at the front of `input` and its size, if it is complete.
    fn parse(input: &[u8], method: &str, is_all: bool) -> Option<(Self, usize)> {
        let mut storage = FieldStorage::new();
        let end = input.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
        let head = parse_response(&input[..end], &mut storage, &HeadLimits::default(), method);
        let head = head.unwrap();
        let mut answer = Self {
            status: head.status,
            head: String::from_utf8(input[..end].to_vec()).unwrap(),
            body: Vec::new(),
            trailers: Vec::new(),
        };
        if matches!(head.status, 100..=199) {
            return Some((answer, end));
        }
        let mut decoder = BodyDecoder::new(head.framing, u64::MAX);
        let mut used = end;
        loop {
            let part = decoder.decode(&input[used..]).unwrap();
            answer.body.extend_from_slice(part.data);
            used += part.consumed;
            if part.done {
                break;
            }
            if part.consumed == 0 {
                if is_all && decoder.eof().is_ok() {
                    break;
                }
                return None;
            }
        }
        let trailers = decoder.trailers();
        let fields = trailers.iter();
        answer.trailers = fields
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        Some((answer, used))
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// `GET target` with a host.
pub(crate) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// `POST target` with a body of this size to follow.
pub(crate) fn post(target: &str, length: usize) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
}
