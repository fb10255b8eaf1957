//! Sockets that leave for elsewhere in the process.

use super::{BlockingStream, Stream};
use std::os::fd::OwnedFd;

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
    use std::os::fd::{AsFd, AsRawFd};
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
