//! Sockets that come from elsewhere in the process, and leave for it.

use super::{BlockingStream, Stream};
use mio::net::{TcpStream, UnixStream};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

impl Stream {
    /// Takes over a connected socket that somebody else has accepted or opened.
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
