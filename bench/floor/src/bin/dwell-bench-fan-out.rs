//! The floor of a fan-out: one value is set, and a bare loop of `send` tells all who wait.
//!
//! The answer is encoded once, has the size of the edge's, and goes to one connection after the
//! other in the order in which they came: there is no table, no deadline and no metric. What a
//! server takes beyond this is its own.
//!
//! Usage: `dwell-bench-fan-out PORT STORE_PORT`, both on 127.0.0.1. Every connection to the first
//! is a client: its first request is answered with the value, and each later one once the value is
//! set. Those to the second set it, by memcached's `set`. A request comes in one piece and has no
//! body.
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};

use dwell_bench_floor::{EVENTS_PER_WAIT, Places, answer_with, listen, wait};
use mio::event::Source;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Registry, Token};

const LISTENER: Token = Token(usize::MAX);
const STORE: Token = Token(usize::MAX - 1);
const READ_BUFFER_BYTES: usize = 16 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let mut ports = std::env::args().skip(1);
    let (Some(port), Some(store)) = (ports.next(), ports.next()) else {
        return Err("usage: dwell-bench-fan-out PORT STORE_PORT".into());
    };
    let mut poll = Poll::new()?;
    let listener = listen(port.parse()?, LISTENER, poll.registry())?;
    let store = listen(store.parse()?, STORE, poll.registry())?;

    let mut peers = Places::default();
    let mut answer = answer_with(b"");
    let mut events = Events::with_capacity(EVENTS_PER_WAIT);
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    loop {
        wait(&mut poll, &mut events)?;
        for event in &events {
            match event.token() {
                LISTENER => peers.accept_all(&listener, poll.registry(), Peer::client)?,
                STORE => peers.accept_all(&store, poll.registry(), Peer::writer)?,
                Token(index) => {
                    let Some(peer) = peers.get_mut(index) else {
                        continue;
                    };
                    let told = peer.hear(&answer, &mut buffer);
                    if let Ok(Some(value)) = told {
                        answer = answer_with(&value);
                        tell_all(&mut peers, &answer);
                        if let Some(writer) = peers.get_mut(index) {
                            writer.stream.write_all(b"STORED\r\n")?;
                        }
                    } else if told.is_err() || event.is_read_closed() {
                        peers.remove(index);
                    }
                }
            }
        }
    }
}

/// The bare loop.
fn tell_all(peers: &mut Places<Peer>, answer: &[u8]) {
    for peer in peers.iter_mut() {
        if peer.state == State::Waits {
            peer.state = State::Answered;
            // One who has left is noticed by its own event.
            let _ = peer.stream.write(answer);
        }
    }
}

/// A connection: of a client, or of one who sets the value.
struct Peer {
    stream: TcpStream,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Answered,
    Waits,
    Sets,
}

impl Peer {
    fn client(stream: TcpStream) -> Self {
        let state = State::New;
        Self { stream, state }
    }

    fn writer(stream: TcpStream) -> Self {
        let state = State::Sets;
        Self { stream, state }
    }

    /// Reads once; returns the value that it sets.
    fn hear(&mut self, answer: &[u8], buffer: &mut [u8]) -> io::Result<Option<Vec<u8>>> {
        let read = match self.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => &buffer[..read],
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        match self.state {
            State::New => {
                self.stream.write_all(answer)?;
                self.state = State::Answered;
            }
            State::Answered | State::Waits => self.state = State::Waits,
            State::Sets => return value_of(read).map(Some),
        }
        Ok(None)
    }
}

/// The value of a `set`.
fn value_of(command: &[u8]) -> io::Result<Vec<u8>> {
    let line = command.windows(2).position(|end| end == b"\r\n");
    let data = line.and_then(|line| command[line + 2..].strip_suffix(b"\r\n"));
    data.map(<[u8]>::to_vec)
        .ok_or_else(|| ErrorKind::InvalidData.into())
}

impl Source for Peer {
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
