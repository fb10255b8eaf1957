//! The system's socket beneath a stream.

use super::outcome::ReadOutcome;
use crate::carried::socket::CarriedSocket;
#[cfg(feature = "sim")]
use crate::sim::SimSocket;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::{RecvFlags, SendAncillaryBuffer, recv, send, sendmsg};
use socket2::SockRef;
use std::io::{self, IoSlice, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A non-blocking socket of either family, or what is in the place of one.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Carried(CarriedSocket),
    #[cfg(feature = "sim")]
    Sim(SimSocket),
}

/// Pieces that one system call is offered.
pub(super) const PARTS_PER_WRITE: usize = 16;

impl Socket {
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).read(buffer),
            Socket::Unix(socket) => (&*socket).read(buffer),
            Socket::Carried(socket) => socket.read(buffer),
            #[cfg(feature = "sim")]
            Socket::Sim(socket) => socket.read(buffer),
        }
    }

    /// One read that ends as [`Stream::read`](super::Stream::read) does.
    pub(super) fn read_some(&self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        let size = buffer.len();
        loop {
            return match self.read(buffer) {
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

    /// Copies what a read would give, and leaves it in the socket.
    pub(super) fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "sim")]
        if let Socket::Sim(socket) = self {
            return socket.peek(buffer);
        }
        if let Socket::Carried(socket) = self {
            return socket.peek(buffer);
        }
        loop {
            match recv(self, &mut *buffer, RecvFlags::PEEK) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.map(|(peeked, _)| peeked).map_err(io::Error::from),
            }
        }
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "sim")]
        if let Socket::Sim(socket) = self {
            return socket.write(&[bytes]);
        }
        if let Socket::Carried(socket) = self {
            return socket.write(&[bytes]);
        }
        Ok(send(self, bytes, flags::QUIET)?)
    }

    pub(super) fn reset_on_drop(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => SockRef::from(socket).set_linger(Some(Duration::ZERO)),
            Socket::Unix(_) => Ok(()),
            Socket::Carried(socket) => {
                socket.reset_on_drop();
                Ok(())
            }
            #[cfg(feature = "sim")]
            Socket::Sim(socket) => {
                socket.reset_on_drop();
                Ok(())
            }
        }
    }

    /// One write of at most [`PARTS_PER_WRITE`] parts; zero when the socket is full.
    ///
    /// `more` says that something follows at once, for which a short segment may wait.
    pub(super) fn write_parts(&self, parts: &[&[u8]], more: bool) -> io::Result<usize> {
        loop {
            let result = if let ([single], false) = (parts, more) {
                self.write(single)
            } else {
                self.write_several(&parts[..parts.len().min(PARTS_PER_WRITE)], more)
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                other => return other,
            }
        }
    }

    fn write_several(&self, parts: &[&[u8]], more: bool) -> io::Result<usize> {
        #[cfg(feature = "sim")]
        if let Socket::Sim(socket) = self {
            return socket.write(parts);
        }
        if let Socket::Carried(socket) = self {
            return socket.write(parts);
        }
        let mut slices = [IoSlice::new(&[]); PARTS_PER_WRITE];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let slices = &slices[..parts.len()];
        let flags = if more { flags::MORE } else { flags::QUIET };
        let mut control = SendAncillaryBuffer::default();
        sendmsg(self, slices, &mut control, flags).map_err(io::Error::from)
    }

    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Socket::Tcp(socket) => socket.take_error(),
            Socket::Unix(socket) => socket.take_error(),
            Socket::Carried(_) => Ok(None),
            #[cfg(feature = "sim")]
            Socket::Sim(socket) => Ok(socket.take_error()),
        }
    }

    pub(super) fn peer_address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Socket::Tcp(socket) => socket.peer_addr().map(Some),
            Socket::Unix(socket) => socket.peer_addr().map(|_| None),
            Socket::Carried(socket) => Ok(socket.addresses()[0]),
            #[cfg(feature = "sim")]
            Socket::Sim(socket) => socket.peer_address().map(Some),
        }
    }

    pub(super) fn local_address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Socket::Tcp(socket) => socket.local_addr().map(Some),
            Socket::Unix(socket) => socket.local_addr().map(|_| None),
            Socket::Carried(socket) => Ok(socket.addresses()[1]),
            #[cfg(feature = "sim")]
            Socket::Sim(socket) => socket.local_address().map(Some),
        }
    }

    pub(super) fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Socket::Unix(socket) => socket.shutdown(Shutdown::Write),
            Socket::Carried(socket) => socket.shutdown_write(),
            #[cfg(feature = "sim")]
            Socket::Sim(socket) => socket.shutdown_write(),
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Socket::Tcp(socket) => socket,
            Socket::Unix(socket) => socket,
            Socket::Carried(socket) => socket,
            #[cfg(feature = "sim")]
            Socket::Sim(socket) => socket,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Carried(_) => panic!("a carried stream has no descriptor"),
            #[cfg(feature = "sim")]
            Socket::Sim(_) => panic!("a simulated socket has no descriptor"),
        }
    }
}

impl Source for Socket {
    fn register(&mut self, registry: &Registry, token: Token, want: Interest) -> io::Result<()> {
        self.source().register(registry, token, want)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, want: Interest) -> io::Result<()> {
        self.source().reregister(registry, token, want)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.source().deregister(registry)
    }
}

/// Flags of every write: a peer that has gone is an error of the call, and never a signal to the
/// process, which belongs to the host.
#[cfg(not(target_vendor = "apple"))]
pub(super) mod flags {
    use rustix::net::SendFlags;

    pub(in super::super) const QUIET: SendFlags = SendFlags::NOSIGNAL;
    /// More data follows at once.
    #[cfg(target_os = "linux")]
    pub(super) const MORE: SendFlags = SendFlags::MORE.union(QUIET);
    #[cfg(not(target_os = "linux"))]
    pub(super) const MORE: SendFlags = QUIET;
}

/// Flags for systems with an option of the socket instead, which mio and the standard library set.
#[cfg(target_vendor = "apple")]
pub(super) mod flags {
    use rustix::net::SendFlags;

    pub(in super::super) const QUIET: SendFlags = SendFlags::empty();
    pub(super) const MORE: SendFlags = QUIET;
}
