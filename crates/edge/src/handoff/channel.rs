//! Frames between the two processes of an upgrade, over a socket pair; some carry a descriptor, and
//! some secrets, which are nowhere else on their way.
//!
//! A frame has its kind, a mark, two unused bytes, and the length of its body (little-endian). A
//! descriptor travels with the first byte of its frame, which is therefore read alone.

use super::passed::Passed;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

const HEAD_BYTES: usize = 8;
/// The longest frame: an unfinished command with a value.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// From the predecessor: its version; the mark tells if it has a store.
    Hello = 1,
    /// A listening socket: its role (the mark), and its address.
    Listener = 2,
    /// End of the listening sockets.
    Listeners = 3,
    /// From the successor: it could serve now; the mark tells if it wants the store, and the bytes
    /// what of TLS it [takes](super::TakesTls).
    Ready = 4,
    /// From the predecessor: the mark tells if the items follow.
    Store = 5,
    /// From the successor: it has the items.
    Taken = 6,
    /// From the predecessor: the successor serves from now on.
    Serve = 7,
    /// A connection: its role (the mark), and the bytes of its next request or command.
    Connection = 8,
    /// A connection of an authenticated memcached client.
    TrustedConnection = 9,
    /// From the successor: it has got [`Serve`](Self::Serve), and serves; the mark has the parts of
    /// clients that it [reads](super::ReadsClient).
    Serving = 10,
    /// A connection under TLS, for a successor that takes those: as `Connection`, with the frozen
    /// stream before the other bytes.
    SecureConnection = 11,
    /// From the predecessor, before [`Store`](Self::Store), to a successor that takes those: its
    /// keys of session tickets.
    TicketKeys = 12,
}

const KINDS: [FrameKind; 12] = [
    FrameKind::Hello,
    FrameKind::Listener,
    FrameKind::Listeners,
    FrameKind::Ready,
    FrameKind::Store,
    FrameKind::Taken,
    FrameKind::Serve,
    FrameKind::Connection,
    FrameKind::TrustedConnection,
    FrameKind::Serving,
    FrameKind::SecureConnection,
    FrameKind::TicketKeys,
];

/// A frame that was received, or is to be sent.
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) mark: u8,
    /// Erased when it is dropped, as some frames carry secrets.
    pub(crate) bytes: Zeroizing<Vec<u8>>,
    pub(crate) descriptor: Option<Passed>,
}

/// Says how long the bytes are, which may be secrets.
impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({:?}, {} bytes)", self.kind, self.bytes.len())
    }
}

impl Frame {
    pub(crate) fn new(kind: FrameKind, mark: u8, bytes: &[u8]) -> Self {
        Self {
            kind,
            mark,
            bytes: bytes.to_vec().into(),
            descriptor: None,
        }
    }

    /// Adds a socket.
    pub(crate) fn with(mut self, descriptor: Passed) -> Self {
        self.descriptor = Some(descriptor);
        self
    }

    /// The socket that has come with the frame.
    #[cfg(test)]
    pub(super) fn unix_stream(self) -> UnixStream {
        match self.descriptor {
            Some(Passed::Descriptor(descriptor)) => descriptor.into(),
            other => panic!("no descriptor: {other:?}"),
        }
    }

    /// Returns the frame if it is of this kind.
    pub(crate) fn expected(self, kind: FrameKind) -> io::Result<Self> {
        if self.kind == kind {
            return Ok(self);
        }
        let got = self.kind;
        Err(io::Error::other(format!("{kind:?} expected: {got:?}")))
    }
}

/// One end of the socket pair. A call fails at its deadline, or when no byte moves for the stall
/// timeout, where there is one.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: UnixStream,
    deadline: Option<Instant>,
    stall_timeout: Option<Duration>,
}

impl Channel {
    pub(crate) fn new(socket: UnixStream, deadline: Instant) -> Self {
        Self {
            socket,
            deadline: Some(deadline),
            stall_timeout: None,
        }
    }

    pub(crate) fn set_stall_timeout(&mut self, stall_timeout: Option<Duration>) {
        self.stall_timeout = stall_timeout;
    }

    /// Sets the deadline of the following calls; with `None` they have no deadline.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Sends a frame that was made before.
    pub(crate) fn send_frame(&mut self, frame: &Frame) -> io::Result<()> {
        let descriptor = frame.descriptor.as_ref().and_then(Passed::descriptor);
        self.send(frame.kind, frame.mark, &frame.bytes, descriptor)
    }

    pub(crate) fn send(
        &mut self,
        kind: FrameKind,
        mark: u8,
        bytes: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let too_long = |_| io::Error::other("a frame is too long");
        let length = u32::try_from(bytes.len()).map_err(too_long)?;
        let mut head = [0; HEAD_BYTES];
        head[0] = kind as u8;
        head[1] = mark;
        head[4..].copy_from_slice(&length.to_le_bytes());
        let sent = match descriptor {
            Some(descriptor) => self.send_with(&head, descriptor)?,
            None => 0,
        };
        self.write_all(&head[sent..])?;
        self.write_all(bytes)
    }

    fn send_with(&mut self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
        let descriptors = [descriptor];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
                return Err(io::Error::other("no room for a descriptor"));
            }
            self.bound(UnixStream::set_write_timeout)?;
            let parts = [IoSlice::new(bytes)];
            match sendmsg(&self.socket, &parts, &mut control, SendFlags::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.map_err(|error| self.late(error.into())),
            }
        }
    }

    pub(crate) fn receive(&mut self) -> io::Result<Frame> {
        let mut head = [0; HEAD_BYTES];
        let (came, descriptor) = self.receive_with(&mut head)?;
        self.read_exact(&mut head[came..])?;
        let [kind, mark, _, _, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        let known = KINDS.into_iter().find(|known| *known as u8 == kind);
        let kind = known.ok_or_else(|| io::Error::other("a frame of an unknown kind"))?;
        if length > FRAME_BYTES_MAX {
            return Err(io::Error::other("a frame is too long"));
        }
        let mut bytes = Zeroizing::new(vec![0; length]);
        self.read_exact(&mut bytes)?;
        Ok(Frame {
            kind,
            mark,
            bytes,
            descriptor: descriptor.map(Passed::Descriptor),
        })
    }

    /// Has every later call of the other end to send fail, and returns the frame that it had sent
    /// before; does not wait.
    pub(crate) fn receive_last(&mut self) -> Option<Frame> {
        self.socket.shutdown(Shutdown::Read).ok()?;
        // A socket that is shut down ends behind the bytes that it has.
        (self.deadline, self.stall_timeout) = (None, None);
        self.receive().ok()
    }

    /// Reads once, with a descriptor if one came; the end of the stream is an error.
    fn receive_with(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            self.bound(UnixStream::set_read_timeout)?;
            let mut parts = [IoSliceMut::new(bytes)];
            let flags = RecvFlags::empty();
            let received = match recvmsg(&self.socket, &mut parts, &mut control, flags) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other.map_err(|error| self.late(error.into()))?,
            };
            let descriptor = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                _ => None,
            });
            if let Some(descriptor) = &descriptor {
                rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
            }
            if received.bytes == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            return Ok((received.bytes, descriptor));
        }
    }

    /// Receives a frame, which must be of this kind.
    #[cfg(test)]
    pub(crate) fn expect(&mut self, kind: FrameKind) -> io::Result<Frame> {
        self.receive()?.expected(kind)
    }

    /// Gives the next call on the socket the remaining time.
    fn bound(
        &self,
        set: impl Fn(&UnixStream, Option<Duration>) -> io::Result<()>,
    ) -> io::Result<()> {
        let left = self
            .deadline
            .map(|at| at.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(ErrorKind::TimedOut.into());
        }
        let shorter = left.into_iter().chain(self.stall_timeout).min();
        set(&self.socket, shorter)
    }

    /// Converts the error of a call that timed out, which is "would block".
    fn late(&self, error: io::Error) -> io::Error {
        let is_over = |deadline| deadline <= Instant::now();
        match self.stall_timeout {
            _ if error.kind() != ErrorKind::WouldBlock => error,
            Some(stall_timeout) if !self.deadline.is_some_and(is_over) => {
                let message = format!("nothing has moved for {stall_timeout:?}");
                io::Error::new(ErrorKind::TimedOut, message)
            }
            _ => ErrorKind::TimedOut.into(),
        }
    }
}

impl Read for Channel {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.bound(UnixStream::set_read_timeout)?;
        let result = self.socket.read(bytes);
        result.map_err(|error| self.late(error))
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bound(UnixStream::set_write_timeout)?;
        let result = self.socket.write(bytes);
        result.map_err(|error| self.late(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn pair() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        (Channel::new(one, deadline), Channel::new(other, deadline))
    }

    #[test]
    fn every_descriptor_comes_with_its_own_frame() {
        let (mut from, mut to) = pair();
        let (passed, mut kept): (Vec<_>, Vec<_>) =
            (0..5).map(|_| UnixStream::pair().unwrap()).unzip();
        for (index, socket) in passed.into_iter().enumerate() {
            let bytes = vec![b'x'; index * 1000];
            from.send(FrameKind::Serve, 0, b"between", None).unwrap();
            let descriptor = Some(socket.as_fd());
            from.send(FrameKind::Connection, index as u8, &bytes, descriptor)
                .unwrap();
        }
        for (index, kept) in kept.iter_mut().enumerate() {
            assert!(to.expect(FrameKind::Serve).unwrap().descriptor.is_none());
            let frame = to.expect(FrameKind::Connection).unwrap();
            assert_eq!((frame.mark, frame.bytes.len()), (index as u8, index * 1000));
            let mut socket = frame.unix_stream();
            socket.write_all(&[index as u8]).unwrap();
            let mut byte = [0];
            kept.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [index as u8]);
        }
    }

    #[test]
    fn an_end_and_a_silence_are_errors() {
        let (from, mut to) = pair();
        to.set_deadline(Some(Instant::now() + Duration::from_millis(1)));
        assert_eq!(to.receive().unwrap_err().kind(), ErrorKind::TimedOut);
        to.set_deadline(None);
        to.set_stall_timeout(Some(Duration::from_millis(1)));
        let error = to.receive().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "nothing has moved for 1ms");
        drop(from);
        assert_eq!(to.receive().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_frame_is_taken_or_refused_when_the_last_one_is_received() {
        let (mut from, mut to) = pair();
        to.set_deadline(Some(Instant::now()));
        from.send(FrameKind::Serving, 7, b"", None).unwrap();
        let last = to.receive_last().unwrap();
        assert_eq!((last.kind, last.mark), (FrameKind::Serving, 7));
        let refused = from.send(FrameKind::Serving, 7, b"", None).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
        assert!(to.receive_last().is_none(), "nothing was sent");
        to.send(FrameKind::Connection, 0, b"", None).unwrap();
        from.expect(FrameKind::Connection).unwrap();
    }

    #[test]
    fn another_kind_than_the_expected_is_named() {
        let (mut from, mut to) = pair();
        from.send(FrameKind::Taken, 0, b"", None).unwrap();
        let error = to.expect(FrameKind::Ready).unwrap_err().to_string();
        assert_eq!(error, "Ready expected: Taken");
        from.write_all(&[200, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert!(to.receive().is_err());
    }
}
