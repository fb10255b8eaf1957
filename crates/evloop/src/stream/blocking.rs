//! Sockets that have left the loop for a thread of their own.

use super::socket::{Socket, flags};
use rustix::net::send;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A socket of either family whose calls wait.
#[derive(Debug)]
pub enum BlockingStream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
}

impl BlockingStream {
    /// A second handle to the same socket, to read in one thread and write in another.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(socket) => socket.try_clone().map(Self::Tcp),
            Self::Unix(socket) => socket.try_clone().map(Self::Unix),
        }
    }

    /// Ends one direction, or both.
    ///
    /// # Errors
    /// When the connection has failed already.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.shutdown(how),
            Self::Unix(socket) => socket.shutdown(how),
        }
    }

    /// Sets how long a read waits; `None` for no limit.
    ///
    /// # Errors
    /// `InvalidInput` for a timeout of zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_read_timeout(timeout),
            Self::Unix(socket) => socket.set_read_timeout(timeout),
        }
    }
}

impl Read for BlockingStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buffer),
            Self::Unix(socket) => socket.read(buffer),
        }
    }
}

impl Write for BlockingStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = match self {
            Self::Tcp(socket) => send(socket, bytes, flags::QUIET),
            Self::Unix(socket) => send(socket, bytes, flags::QUIET),
        };
        Ok(sent?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket {
    pub(super) fn set_blocking(&self) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(self.as_fd(), false)?)
    }
}

impl From<Socket> for BlockingStream {
    fn from(socket: Socket) -> Self {
        match socket {
            Socket::Tcp(socket) => Self::Tcp(OwnedFd::from(socket).into()),
            Socket::Unix(socket) => Self::Unix(OwnedFd::from(socket).into()),
            Socket::Carried(_) => panic!("a carried stream has no descriptor"),
            #[cfg(feature = "sim")]
            Socket::Sim(_) => panic!("a simulated socket has no descriptor"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{BlockingStream, Stream};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_that_left_the_loop_waits_and_loses_no_output() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut stream = Stream::from_unix(mio::net::UnixStream::from_std(ours));
        let much = vec![b'x'; 4 * 1024 * 1024];
        stream.write(&much).unwrap();
        assert!(!stream.is_flushed());
        let thread = std::thread::spawn(move || {
            let mut socket: BlockingStream = stream.into_blocking().unwrap();
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            socket.write_all(&byte).unwrap();
        });
        let mut received = vec![0; much.len()];
        theirs.read_exact(&mut received).unwrap();
        assert!(received == much);
        theirs.write_all(b"?").unwrap();
        let mut byte = [0];
        theirs.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"?");
        thread.join().unwrap();
    }
}
