//! A connected socket: reads into the caller's buffer, writes through, keeps what is refused.

use bytes::{Buf, Bytes};
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};

/// A non-blocking TCP or unix stream with a write-through output queue.
///
/// Shape: owns no buffer while the socket takes what it is given. Only what the socket refuses is
/// queued; a shared body is queued by reference. Whoever writes bounds the queue by looking at
/// [`queued_bytes`](Self::queued_bytes) before it produces more.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    queue: Option<Box<Queue>>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

#[derive(Debug, Default)]
struct Queue {
    segments: VecDeque<Bytes>,
    bytes: usize,
}

/// What one read gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOutcome {
    /// This many bytes, and the socket may hold more.
    More(usize),
    /// This many bytes, which was all: the next readiness tells of more.
    Drained(usize),
    /// Nothing to read now.
    WouldBlock,
    /// The peer ended its side in order.
    Closed,
}

impl Stream {
    /// Starts connecting to `address`; writable readiness tells that it ended, then
    /// [`connect_error`](Self::connect_error) tells how.
    ///
    /// # Errors
    /// When no socket can be made or the system refuses at once.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        Ok(Self::from_tcp(socket))
    }

    /// Wraps a socket that was accepted or connected.
    pub fn from_tcp(socket: TcpStream) -> Self {
        Self {
            socket: Socket::Tcp(socket),
            queue: None,
        }
    }

    /// Wraps a unix stream.
    pub fn from_unix(socket: UnixStream) -> Self {
        Self {
            socket: Socket::Unix(socket),
            queue: None,
        }
    }

    /// Why the connect failed, if it did; `None` once it is established.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn connect_error(&self) -> io::Result<Option<io::Error>> {
        let pending = match &self.socket {
            Socket::Tcp(socket) => socket.take_error()?,
            Socket::Unix(socket) => socket.take_error()?,
        };
        if pending.is_some() {
            return Ok(pending);
        }
        match self.peer_address() {
            Ok(_) => Ok(None),
            Err(error) => Ok(Some(error)),
        }
    }

    /// The peer's address; `None` for a unix stream.
    ///
    /// # Errors
    /// When the stream is not connected.
    pub fn peer_address(&self) -> io::Result<Option<SocketAddr>> {
        match &self.socket {
            Socket::Tcp(socket) => socket.peer_addr().map(Some),
            Socket::Unix(socket) => socket.peer_addr().map(|_| None),
        }
    }

    /// Reads once into `buffer`.
    ///
    /// # Errors
    /// When the connection failed (reset, for one); it is then of no more use.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        let size = buffer.len();
        loop {
            let read = match &mut self.socket {
                Socket::Tcp(socket) => socket.read(buffer),
                Socket::Unix(socket) => socket.read(buffer),
            };
            return match read {
                Ok(0) if size > 0 => Ok(ReadOutcome::Closed),
                // A stream that gives less than was asked has no more (epoll(7), on EPOLLET);
                // the end of the stream is told by its own readiness.
                Ok(read) if read < size => Ok(ReadOutcome::Drained(read)),
                Ok(read) => Ok(ReadOutcome::More(read)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Ok(ReadOutcome::WouldBlock)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }

    /// Writes `bytes` through to the socket and queues a copy of what it refuses.
    ///
    /// # Errors
    /// When the connection failed; the queue is then of no more use.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = if self.queue.is_some() || bytes.is_empty() {
            0
        } else {
            write_to(&mut self.socket, &[bytes])?
        };
        if written < bytes.len() {
            self.enqueue(Bytes::copy_from_slice(&bytes[written..]));
        }
        Ok(())
    }

    /// Writes `head` and then `body` in one system call; what the socket refuses of `body` is
    /// queued by reference, so that a slow reader holds no copy of a shared answer.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_shared(&mut self, head: &[u8], body: Bytes) -> io::Result<()> {
        let written = if self.queue.is_some() {
            0
        } else {
            write_to(&mut self.socket, &[head, &body])?
        };
        if written < head.len() {
            self.enqueue(Bytes::copy_from_slice(&head[written..]));
            self.enqueue(body);
        } else if written < head.len() + body.len() {
            self.enqueue(body.slice(written - head.len()..));
        }
        Ok(())
    }

    /// Writes what is queued, as far as the socket takes it; true when nothing is left.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn flush(&mut self) -> io::Result<bool> {
        while let Some(queue) = &mut self.queue {
            let mut parts: [&[u8]; PARTS_PER_WRITE] = [&[]; PARTS_PER_WRITE];
            let mut count = 0;
            for (part, segment) in parts.iter_mut().zip(&queue.segments) {
                *part = segment;
                count += 1;
            }
            let parts = &parts[..count];
            let offered: usize = parts.iter().map(|part| part.len()).sum();
            let written = write_to(&mut self.socket, parts)?;
            queue.advance(written);
            if queue.segments.is_empty() {
                self.queue = None;
            } else if written < offered {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Bytes that wait for the socket to take them.
    pub fn queued_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes)
    }

    /// Ends the sending side, so that the peer reads the end of the stream.
    ///
    /// # Errors
    /// When the connection has failed already.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match &self.socket {
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Socket::Unix(socket) => socket.shutdown(Shutdown::Write),
        }
    }

    fn enqueue(&mut self, segment: Bytes) {
        if segment.is_empty() {
            return;
        }
        let queue = self.queue.get_or_insert_default();
        queue.bytes += segment.len();
        queue.segments.push_back(segment);
    }
}

impl Queue {
    /// Forgets the first `written` bytes.
    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(front) = self.segments.front_mut() {
            if written < front.len() {
                front.advance(written);
                return;
            }
            written -= front.len();
            self.segments.pop_front();
        }
    }
}

/// One write of at most [`PARTS_PER_WRITE`] parts; zero when the socket is full.
fn write_to(socket: &mut Socket, parts: &[&[u8]]) -> io::Result<usize> {
    loop {
        let result = if let [single] = parts {
            match socket {
                Socket::Tcp(socket) => socket.write(single),
                Socket::Unix(socket) => socket.write(single),
            }
        } else {
            let mut slices = [IoSlice::new(&[]); PARTS_PER_WRITE];
            for (slice, part) in slices.iter_mut().zip(parts) {
                *slice = IoSlice::new(part);
            }
            let slices = &slices[..parts.len().min(PARTS_PER_WRITE)];
            match socket {
                Socket::Tcp(socket) => socket.write_vectored(slices),
                Socket::Unix(socket) => socket.write_vectored(slices),
            }
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            other => return other,
        }
    }
}

/// Pieces of the queue that one system call is offered.
const PARTS_PER_WRITE: usize = 16;

impl Source for Stream {
    fn register(&mut self, registry: &Registry, token: Token, want: Interest) -> io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(socket) => socket.register(registry, token, want),
            Socket::Unix(socket) => socket.register(registry, token, want),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, want: Interest) -> io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(socket) => socket.reregister(registry, token, want),
            Socket::Unix(socket) => socket.reregister(registry, token, want),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(socket) => socket.deregister(registry),
            Socket::Unix(socket) => socket.deregister(registry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Stream, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Stream::from_unix(UnixStream::from_std(ours)), theirs)
    }

    #[test]
    fn what_the_socket_refuses_is_kept_in_order() {
        let (mut stream, mut peer) = pair();
        let body = Bytes::from(vec![b'b'; 4 << 20]);
        stream.write_shared(b"head", body.clone()).unwrap();
        let tail: Vec<u8> = (0..100).collect();
        for byte in &tail {
            stream.write(&[*byte]).unwrap();
        }
        assert!(stream.queued_bytes() > tail.len());
        let mut seen = Vec::new();
        let mut buffer = vec![0; 1 << 20];
        while seen.len() < 4 + body.len() + tail.len() {
            let read = peer.read(&mut buffer).unwrap();
            seen.extend_from_slice(&buffer[..read]);
            stream.flush().unwrap();
        }
        assert_eq!(&seen[..4], b"head");
        assert_eq!(&seen[4..4 + body.len()], &body[..]);
        assert_eq!(&seen[4 + body.len()..], tail);
        assert_eq!(stream.queued_bytes(), 0);
        assert!(stream.queue.is_none(), "an empty queue owns no memory");
    }

    #[test]
    fn a_read_tells_whether_the_socket_may_hold_more() {
        let (mut stream, mut peer) = pair();
        let mut buffer = [0; 4];
        assert_eq!(stream.read(&mut buffer).unwrap(), ReadOutcome::WouldBlock);
        peer.write_all(b"abcdef").unwrap();
        assert_eq!(stream.read(&mut buffer).unwrap(), ReadOutcome::More(4));
        assert_eq!(stream.read(&mut buffer).unwrap(), ReadOutcome::Drained(2));
        drop(peer);
        assert_eq!(stream.read(&mut buffer).unwrap(), ReadOutcome::Closed);
    }
}
