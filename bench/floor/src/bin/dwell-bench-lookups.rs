//! The floor of a hit in memcached: a bare epoll loop that asks memcached for what it was asked.
//!
//! All requests of a turn become one `gets` on the one connection to memcached, and each value that
//! comes back lets one answer of the edge's size go out, in the order of the requests. Of a request
//! the target is looked for, of a reply the ends of lines: there is no table, no deadline and no
//! metric. What a server takes beyond this is its own.
//!
//! Usage: `dwell-bench-lookups PORT MEMCACHED_PORT`, both on 127.0.0.1. Every key has to be there,
//! with a value of one line. A request comes in one piece and has no body.
use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use dwell_bench_floor::{EVENTS_PER_WAIT, Places, listen, wait};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX);
const MEMCACHED: Token = Token(usize::MAX - 1);
const READ_BUFFER_BYTES: usize = 16 * 1024;

/// An answer of the edge.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
    ETag: \"lVXoVVxi3P0\"\r\n\
    Poll-Cursor: lVXoVVxi3P0\r\n\
    Access-Control-Expose-Headers: ETag, Poll-Cursor\r\n\
    Cache-Control: no-store\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    X-Content-Type-Options: nosniff\r\n\
    Cache-Status: dwell; hit\r\n\
    Content-Length: 13\r\n\
    \r\n\
    Hello, World!";

fn main() -> Result<(), Box<dyn Error>> {
    let mut ports = std::env::args().skip(1);
    let (Some(port), Some(memcached)) = (ports.next(), ports.next()) else {
        return Err("usage: dwell-bench-lookups PORT MEMCACHED_PORT".into());
    };
    let mut poll = Poll::new()?;
    let listener = listen(port.parse()?, LISTENER, poll.registry())?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, memcached.parse()?));
    let mut stream = TcpStream::from_std(connected(address)?);
    let registry = poll.registry();
    registry.register(&mut stream, MEMCACHED, Interest::READABLE)?;
    let mut lookups = Lookups::new(stream);

    let mut clients = Places::default();
    let mut events = Events::with_capacity(EVENTS_PER_WAIT);
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    loop {
        wait(&mut poll, &mut events)?;
        for event in &events {
            match event.token() {
                LISTENER => clients.accept_all(&listener, poll.registry(), |stream| stream)?,
                MEMCACHED => lookups.answer(&mut clients, &mut buffer)?,
                Token(index) => {
                    let Some(stream) = clients.get_mut(index) else {
                        continue;
                    };
                    let asked = lookups.ask(index, stream, &mut buffer);
                    if asked.is_err() || event.is_read_closed() {
                        clients.remove(index);
                    }
                }
            }
        }
        lookups.send()?;
    }
}

fn connected(address: SocketAddr) -> io::Result<std::net::TcpStream> {
    let stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// The connection to memcached, and those who wait for it.
struct Lookups {
    memcached: TcpStream,
    /// The command of this turn.
    wire: Vec<u8>,
    /// Keys of it.
    keys: usize,
    /// Keys of each command under way.
    commands: VecDeque<usize>,
    /// Clients, in the order of their keys.
    waiting: VecDeque<usize>,
    /// Lines of the reply to the first command that have come.
    lines: usize,
}

impl Lookups {
    fn new(memcached: TcpStream) -> Self {
        Self {
            memcached,
            wire: Vec::new(),
            keys: 0,
            commands: VecDeque::new(),
            waiting: VecDeque::new(),
            lines: 0,
        }
    }

    /// Takes a request, if one has come.
    fn ask(&mut self, client: usize, stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
        let read = match stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let target = buffer[..read].split(|byte| *byte == b' ').nth(1);
        let target = target.ok_or(ErrorKind::InvalidData)?;
        let before: &[u8] = if self.keys == 0 { b"gets " } else { b" " };
        self.wire.extend_from_slice(before);
        self.wire.extend_from_slice(target);
        self.keys += 1;
        self.waiting.push_back(client);
        Ok(())
    }

    /// Sends the lookups of the turn.
    fn send(&mut self) -> io::Result<()> {
        if self.keys > 0 {
            self.wire.extend_from_slice(b"\r\n");
            self.memcached.write_all(&self.wire)?;
            self.wire.clear();
            self.commands.push_back(std::mem::take(&mut self.keys));
        }
        Ok(())
    }

    /// Answers those whose values have come: each has two lines, and a command one more.
    fn answer(&mut self, clients: &mut Places<TcpStream>, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            let read = match self.memcached.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            for _ in buffer[..read].iter().filter(|byte| **byte == b'\n') {
                self.lines += 1;
                if self.commands.front() == Some(&(self.lines / 2)) && self.lines % 2 == 1 {
                    self.commands.pop_front();
                    self.lines = 0;
                } else if self.lines.is_multiple_of(2)
                    && let Some(client) = self.waiting.pop_front()
                    && let Some(stream) = clients.get_mut(client)
                {
                    // One who has left is noticed by its own event.
                    let _ = stream.write(ANSWER);
                }
            }
            if read < buffer.len() {
                return Ok(());
            }
        }
    }
}
