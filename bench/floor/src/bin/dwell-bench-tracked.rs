//! The floor of a wait for a write to Redis: a bare loop on one connection that tracks.
//!
//! Each key that Redis announces is read by one `GET`. Each value that comes back goes to all who
//! wait for its key, as an answer of the edge's size, in the order in which they came. There is no
//! deadline, no second connection and no metric. What a server takes beyond this is its own.
//!
//! Usage: `dwell-bench-tracked PORT REDIS_PORT`, both on 127.0.0.1. The first request of a client
//! is answered with the value of the key that is its target, each later one once that is written.
//! A request comes in one piece and has no body. Nothing is written between a client's answer and
//! its next request.
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use dwell_bench_floor::{EVENTS_PER_WAIT, Places, answer_with, listen, wait};
use mio::event::Source;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Registry, Token};
use std::collections::VecDeque;

const LISTENER: Token = Token(usize::MAX);
const REDIS: Token = Token(usize::MAX - 1);
const READ_BUFFER_BYTES: usize = 16 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let mut ports = std::env::args().skip(1);
    let (Some(port), Some(redis)) = (ports.next(), ports.next()) else {
        return Err("usage: dwell-bench-tracked PORT REDIS_PORT".into());
    };
    let mut poll = Poll::new()?;
    let listener = listen(port.parse()?, LISTENER, poll.registry())?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, redis.parse()?));
    let mut redis = Redis::connect(address, poll.registry())?;

    let mut clients = Places::default();
    let mut events = Events::with_capacity(EVENTS_PER_WAIT);
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    loop {
        wait(&mut poll, &mut events)?;
        for event in &events {
            match event.token() {
                LISTENER => clients.accept_all(&listener, poll.registry(), Client::new)?,
                REDIS => redis.hear(&mut clients, &mut buffer)?,
                Token(index) => {
                    let Some(client) = clients.get_mut(index) else {
                        continue;
                    };
                    let asked = client.ask(&mut redis, &mut buffer);
                    if asked.is_err() || event.is_read_closed() {
                        clients.remove(index);
                    }
                }
            }
        }
        redis.send()?;
    }
}

/// The connection that tracks what is read on it.
struct Redis {
    stream: TcpStream,
    /// The commands of this turn.
    wire: Vec<u8>,
    /// Keys of the `GET`s under way.
    asked: VecDeque<Vec<u8>>,
    /// The beginning of a message whose end has not come yet.
    tail: Vec<u8>,
}

impl Redis {
    fn connect(address: SocketAddr, registry: &Registry) -> io::Result<Self> {
        let mut stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut tail = Vec::new();
        for words in [&[&b"HELLO"[..], b"3"][..], &[b"CLIENT", b"TRACKING", b"ON"]] {
            let mut wire = Vec::new();
            command(&mut wire, words);
            stream.write_all(&wire)?;
            while message(&tail).is_none() {
                let mut buffer = [0; 1024];
                let read = stream.read(&mut buffer)?;
                tail.extend_from_slice(&buffer[..read]);
            }
            tail.clear();
        }
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        registry.register(&mut stream, REDIS, Interest::READABLE)?;
        let (wire, asked) = (Vec::new(), VecDeque::new());
        Ok(Self {
            stream,
            wire,
            asked,
            tail,
        })
    }

    fn get(&mut self, key: &[u8]) {
        command(&mut self.wire, &[b"GET", key]);
        self.asked.push_back(key.to_vec());
    }

    /// Sends the commands of the turn.
    fn send(&mut self) -> io::Result<()> {
        if !self.wire.is_empty() {
            self.stream.write_all(&self.wire)?;
            self.wire.clear();
        }
        Ok(())
    }

    /// Reads the keys that are announced, and answers those whose values have come.
    fn hear(&mut self, clients: &mut Places<Client>, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            let read = match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.tail.extend_from_slice(&buffer[..read]);
            let input = std::mem::take(&mut self.tail);
            let mut rest = &input[..];
            while let Some((length, texts)) = message(rest) {
                if rest[0] == b'>' {
                    // The first text says that keys are invalid.
                    texts.iter().skip(1).for_each(|key| self.get(key));
                } else if let Some(key) = self.asked.pop_front() {
                    tell_all(clients, &key, texts.first().copied().unwrap_or_default());
                }
                rest = &rest[length..];
            }
            self.tail.extend_from_slice(rest);
            if read < buffer.len() {
                return Ok(());
            }
        }
    }
}

/// The bare loop.
fn tell_all(clients: &mut Places<Client>, key: &[u8], value: &[u8]) {
    let answer = answer_with(value);
    for client in clients.iter_mut() {
        if client.is_waiting && client.key == key {
            client.is_waiting = false;
            // One who has left is noticed by its own event.
            let _ = client.stream.write(&answer);
        }
    }
}

/// Appends a command.
fn command(wire: &mut Vec<u8>, words: &[&[u8]]) {
    wire.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        wire.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        wire.extend_from_slice(word);
        wire.extend_from_slice(b"\r\n");
    }
}

/// The length of the first message, and the texts in it; `None` while its end has not come.
fn message(input: &[u8]) -> Option<(usize, Vec<&[u8]>)> {
    let (mut used, mut left, mut texts) = (0, 1, Vec::new());
    while left > 0 {
        let line = input[used..].split(|byte| *byte == b'\n').next()?;
        let after = used + line.len() + 1;
        let number = str::from_utf8(line.get(1..line.len().checked_sub(1)?)?).ok()?;
        let number = number.parse().unwrap_or(0);
        used = after;
        left -= 1;
        match *line.first()? {
            b'$' => {
                texts.push(input.get(after..after + number)?);
                used += number + 2;
            }
            b'*' | b'>' | b'~' => left += number,
            b'%' => left += 2 * number,
            _ => {}
        }
        if used > input.len() {
            return None;
        }
    }
    Some((used, texts))
}

/// A connection of a client.
struct Client {
    stream: TcpStream,
    /// The target of its requests.
    key: Vec<u8>,
    is_waiting: bool,
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            key: Vec::new(),
            is_waiting: false,
        }
    }

    /// Takes a request, if one has come; the first one asks for a value.
    fn ask(&mut self, redis: &mut Redis, buffer: &mut [u8]) -> io::Result<()> {
        let read = match self.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        self.is_waiting = true;
        if self.key.is_empty() {
            let target = buffer[..read].split(|byte| *byte == b' ').nth(1);
            self.key = target.ok_or(ErrorKind::InvalidData)?.to_vec();
            redis.get(&self.key);
        }
        Ok(())
    }
}

impl Source for Client {
    fn register(&mut self, registry: &Registry, token: Token, want: Interest) -> io::Result<()> {
        self.stream.register(registry, token, want)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, want: Interest) -> io::Result<()> {
        self.stream.reregister(registry, token, want)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.stream.deregister(registry)
    }
}
