//! Sockets that come from elsewhere in the process, and leave for it.

use super::{BlockingStream, Stream};
use mio::net::{TcpStream, UnixStream};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

impl Stream {
    /// Takes over a connected socket that other code has accepted or opened.
    ///
    /// Shape: a TCP or unix stream; it becomes non-blocking, and TCP sends short segments at once.
    ///
    /// # Errors
    /// When the descriptor is no socket, or is gone.
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        let socket = socket2::Socket::from(descriptor);
        let is_unix = socket.local_addr()?.is_unix();
        socket.set_nonblocking(true)?;
        if is_unix {
            let socket = std::os::unix::net::UnixStream::from(OwnedFd::from(socket));
            return Ok(Self::from_unix(UnixStream::from_std(socket)));
        }
        // Refused only for a socket that has failed, which its first read tells.
        let _ = socket.set_tcp_nodelay(true);
        Ok(Self::from_tcp(TcpStream::from_std(socket.into())))
    }

    /// Compares the number of the socket's descriptor with `bound`, the first one that is too high.
    ///
    /// Shape: the system gives a new descriptor the lowest number that is free (POSIX.1, section
    /// 2.6), so this bounds the descriptors of the whole process without a count of them.
    pub fn is_numbered_below(&self, bound: RawFd) -> bool {
        #[cfg(feature = "sim")]
        if matches!(self.socket, super::Socket::Sim(_)) {
            return true;
        }
        self.as_fd().as_raw_fd() < bound
    }
}

/// A connection that has left the protocol it was made for: its new owner has the socket, which is
/// registered with no loop.
///
/// ```
/// use dwell_evloop::{Detached, Stream};
/// use std::os::unix::net::UnixStream;
///
/// let (ours, _theirs) = UnixStream::pair()?;
/// let stream = Stream::from_descriptor(ours.into())?;
/// let detached = Detached { stream, input: b"read already".to_vec() };
/// assert!(detached.stream.is_flushed());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Detached {
    /// The socket, with what it has not taken yet of what was written to it.
    pub stream: Stream,
    /// Bytes that the peer has sent and nothing has used: those behind its last message; of an HTTP
    /// client before them, the rest of a streamed body.
    pub input: Vec<u8>,
}

/// The socket, to be given to another process; what is queued here does not go with it.
impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<BlockingStream> for OwnedFd {
    fn from(stream: BlockingStream) -> Self {
        match stream {
            BlockingStream::Tcp(socket) => socket.into(),
            BlockingStream::Unix(socket) => socket.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReadOutcome;
    use std::io::{Read, Write};
    use std::os::unix::net;

    #[test]
    fn a_socket_comes_from_elsewhere_and_goes_back() {
        let (ours, mut theirs) = net::UnixStream::pair().unwrap();
        let mut stream = Stream::from_descriptor(ours.into()).unwrap();
        let mut buffer = [0; 8];
        let number = stream.as_fd().as_raw_fd();
        assert!(!stream.is_numbered_below(number) && stream.is_numbered_below(number + 1));
        assert_eq!(stream.read(&mut buffer).unwrap(), ReadOutcome::WouldBlock);
        theirs.write_all(b"in").unwrap();
        assert_eq!(stream.read(&mut buffer).unwrap(), ReadOutcome::Drained(2));
        let left = OwnedFd::from(stream.into_blocking().unwrap());
        net::UnixStream::from(left).write_all(b"out").unwrap();
        let mut answer = String::new();
        theirs.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "out");
        let file = std::fs::File::open("Cargo.toml").unwrap();
        assert!(Stream::from_descriptor(file.into()).is_err());
    }
}
