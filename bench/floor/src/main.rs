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
use std::io::{ErrorKind, Read, Write};

use dwell_bench_floor::{EVENTS_PER_WAIT, Places, listen, wait};
use mio::net::TcpStream;
use mio::{Events, Poll, Token};

/// The 13-byte body every contender of the tables answers with.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Content-Type: text/plain\r\n\
    Content-Length: 13\r\n\
    \r\n\
    Hello, World!";

const LISTENER: Token = Token(usize::MAX);
const READ_BUFFER_BYTES: usize = 16 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args()
        .nth(1)
        .ok_or("usage: dwell-bench-floor PORT")?
        .parse()?;
    let mut poll = Poll::new()?;
    let listener = listen(port, LISTENER, poll.registry())?;

    let mut connections = Places::default();
    let mut events = Events::with_capacity(EVENTS_PER_WAIT);
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    loop {
        wait(&mut poll, &mut events)?;
        for event in &events {
            match event.token() {
                LISTENER => connections.accept_all(&listener, poll.registry(), |stream| stream)?,
                Token(index) => {
                    let Some(stream) = connections.get_mut(index) else {
                        continue;
                    };
                    if !answer_reads(stream, &mut buffer) || event.is_read_closed() {
                        connections.remove(index);
                    }
                }
            }
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
