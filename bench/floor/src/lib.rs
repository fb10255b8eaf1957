//! Parts of the floor programs: a listener, a wait, an answer, and the connections by their tokens.
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};

use mio::event::Source;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};

/// Events that one wait takes.
pub const EVENTS_PER_WAIT: usize = 1024;

/// The fields of an answer of the edge to a poll that has waited, but the length.
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
    ETag: \"lVXoVVxi3P0\"\r\n\
    Poll-Cursor: lVXoVVxi3P0\r\n\
    Access-Control-Expose-Headers: ETag, Poll-Cursor\r\n\
    Cache-Control: no-store\r\n\
    Preference-Applied: wait=50\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    X-Content-Type-Options: nosniff\r\n\
    Cache-Status: dwell; hit\r\n";

/// An answer with a value, of the size of the edge's to a poll that has waited.
#[must_use]
pub fn answer_with(value: &[u8]) -> Vec<u8> {
    let length = format!("Content-Length: {}\r\n\r\n", value.len());
    [HEAD, length.as_bytes(), value].concat()
}

/// Listens on a port of 127.0.0.1.
///
/// # Errors
/// When the port is taken.
pub fn listen(port: u16, token: Token, registry: &Registry) -> io::Result<TcpListener> {
    let mut listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    registry.register(&mut listener, token, Interest::READABLE)?;
    Ok(listener)
}

/// Waits for events, without end.
///
/// # Errors
/// The error of the system; a wait that a signal has ended is none.
pub fn wait(poll: &mut Poll, events: &mut Events) -> io::Result<()> {
    match poll.poll(events, None) {
        Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Open connections by token, with the free places kept for reuse.
///
/// A descriptor reports at most once per wait, so a place freed in a batch cannot be hit again by
/// an older event of the same batch, and tokens need no generation.
#[derive(Debug)]
pub struct Places<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T: Source> Places<T> {
    /// Accepts all who wait for it, as what `make` says.
    ///
    /// # Errors
    /// When there are no descriptors left: a floor that silently refuses clients would measure
    /// nothing.
    pub fn accept_all(
        &mut self,
        listener: &TcpListener,
        registry: &Registry,
        make: impl Fn(TcpStream) -> T,
    ) -> io::Result<()> {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let mut peer = make(stream);
            let index = self.free.pop().unwrap_or(self.places.len());
            registry.register(&mut peer, Token(index), Interest::READABLE)?;
            if index == self.places.len() {
                self.places.push(Some(peer));
            } else {
                self.places[index] = Some(peer);
            }
        }
    }

    /// The connection with this token, if it is open.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.places[index].as_mut()
    }

    /// All open connections, in the order of their places.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }

    /// Closes one.
    pub fn remove(&mut self, index: usize) {
        self.places[index] = None;
        self.free.push(index);
    }
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}
