//! The floor of the benchmark tables: a bare epoll loop with a fixed answer.
//!
//! One thread, edge-triggered, nothing parsed and nothing counted: whatever one `read` returns gets
//! one answer. A server that does the same number of system calls and adds nothing of its own costs
//! exactly this much, so a ratio to this program is the price of everything a real server does.
//!
//! It also plays the upstream application where a benchmark needs one that costs next to nothing.
//!
//! Usage: `dwell-bench-floor PORT`, on 127.0.0.1 only. Short of descriptors it stops: a floor that
//! silently refuses clients would measure nothing.
use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};

/// The 13-byte body every contender of the tables answers with.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Content-Type: text/plain\r\n\
    Content-Length: 13\r\n\
    \r\n\
    Hello, World!";

const LISTENER: Token = Token(usize::MAX);
const EVENTS_PER_WAIT: usize = 1024;
const READ_BUFFER_BYTES: usize = 16 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args()
        .nth(1)
        .ok_or("usage: dwell-bench-floor PORT")?
        .parse()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut listener = TcpListener::bind(address)?;
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;

    let mut connections = Connections::default();
    let mut events = Events::with_capacity(EVENTS_PER_WAIT);
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    loop {
        if let Err(error) = poll.poll(&mut events, None)
            && error.kind() != ErrorKind::Interrupted
        {
            return Err(error.into());
        }
        for event in &events {
            match event.token() {
                LISTENER => connections.accept_all(&listener, poll.registry())?,
                Token(index) => connections.serve(index, event.is_read_closed(), &mut buffer),
            }
        }
    }
}

/// Open connections by token, with the free places kept for reuse.
///
/// A descriptor reports at most once per wait, so a place freed in a batch cannot be hit again by
/// an older event of the same batch, and tokens need no generation.
#[derive(Default)]
struct Connections {
    places: Vec<Option<TcpStream>>,
    free: Vec<usize>,
}

impl Connections {
    fn accept_all(&mut self, listener: &TcpListener, registry: &Registry) -> io::Result<()> {
        loop {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or(self.places.len());
            registry.register(&mut stream, Token(index), Interest::READABLE)?;
            if index == self.places.len() {
                self.places.push(Some(stream));
            } else {
                self.places[index] = Some(stream);
            }
        }
    }

    /// Answers one readiness event; `finished` is whether the peer has sent its last byte.
    fn serve(&mut self, index: usize, finished: bool, buffer: &mut [u8]) {
        let Some(stream) = self.places[index].as_mut() else {
            return;
        };
        if !answer_reads(stream, buffer) || finished {
            self.places[index] = None;
            self.free.push(index);
        }
    }
}

/// Answers each read of one readiness event; returns whether the connection stays open.
///
/// A read that does not fill the buffer has emptied the socket, so the usual request costs one
/// `read` and one `write`. An answer the socket does not take whole closes the connection: that
/// client has stopped reading, and queues are not what the floor is about.
fn answer_reads(stream: &mut TcpStream, buffer: &mut [u8]) -> bool {
    loop {
        match stream.read(buffer) {
            Ok(0) => return false,
            Ok(count) => {
                if !matches!(stream.write(ANSWER), Ok(written) if written == ANSWER.len()) {
                    return false;
                }
                if count < buffer.len() {
                    return true;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}
