//! Simulated sockets: those of loops, and those that tests hold.

use super::current::{Registering, with};
use super::end::{End, Owner, Phase, ended};
use super::network::Network;
use mio::event::Source;
use mio::{Interest, Registry, Token};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// A socket of a stream or a listener, as a loop has it; it is closed when it is dropped.
///
/// It is a number, as the system's descriptors are, so that it is no larger than one.
#[derive(Debug)]
pub(crate) struct SimSocket(u32);

/// The end of a connection that a test or a peer holds; never waits, like a socket of a loop.
///
/// It is closed when it is dropped: with a reset if bytes have come that were not read.
#[derive(Debug)]
pub struct SimStream {
    socket: SimSocket,
    is_borrowed: bool,
}

/// A listener that a test holds; what it has not accepted is reset when it is dropped.
#[derive(Debug)]
pub struct SimListener {
    socket: SimSocket,
    at: SocketAddr,
}

impl SimSocket {
    pub(crate) fn connect(to: SocketAddr, writes_early: bool) -> Self {
        Self(with(|network| network.connect(to, writes_early)).unwrap_or_default())
    }

    /// Listens for a loop, perhaps beside others.
    pub(crate) fn listen(
        at: SocketAddr,
        backlog: i32,
        shares: bool,
    ) -> io::Result<(Self, SocketAddr)> {
        let backlog = usize::try_from(backlog).unwrap_or(0);
        let listen = |network: &mut Network| network.listen(at, Some(backlog), Owner::Test, shares);
        let (handle, at) = with(listen).ok_or_else(ended)??;
        Ok((Self(handle), at))
    }

    fn listen_for(at: SocketAddr, owner: Owner) -> io::Result<(Self, SocketAddr)> {
        let listen = |network: &mut Network| network.listen(at, None, owner, false);
        let (handle, at) = with(listen).ok_or_else(ended)??;
        Ok((Self(handle), at))
    }

    /// Another descriptor of a listener.
    pub(crate) fn twin(&self) -> io::Result<Self> {
        let twin = with(|network| network.twin(self.0)).flatten();
        twin.map(Self).ok_or_else(ended)
    }

    /// Takes the socket; this one is none from now on.
    pub(crate) fn take(&mut self) -> Self {
        // No handle is 0.
        Self(std::mem::take(&mut self.0))
    }

    pub(crate) fn accept(&self) -> io::Result<(Self, SocketAddr)> {
        let (handle, from) = with(|network| network.accept(self.0)).ok_or_else(ended)??;
        Ok((Self(handle), from))
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        with(|network| network.read(self.0, buffer)).ok_or_else(ended)?
    }

    pub(crate) fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.with_end(|end| end.peek(buffer)).ok_or_else(ended)?
    }

    pub(crate) fn write(&self, parts: &[&[u8]]) -> io::Result<usize> {
        with(|network| network.write(self.0, parts)).ok_or_else(ended)?
    }

    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        with(|network| network.finish(self.0)).ok_or_else(ended)?
    }

    pub(crate) fn reset_on_drop(&self) {
        self.with_end(|end| end.resets = true);
    }

    pub(crate) fn take_error(&self) -> Option<io::Error> {
        self.with_end(|end| match end.phase {
            Phase::Failed(kind) => Some(kind.into()),
            Phase::Connecting | Phase::Open => None,
        })?
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.with_end(|end| end.local).ok_or_else(ended)
    }

    pub(crate) fn peer_address(&self) -> io::Result<SocketAddr> {
        let remote = self.with_end(|end| (end.phase == Phase::Open).then_some(end.remote));
        remote
            .flatten()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn with_end<T>(&self, act: impl FnOnce(&mut End) -> T) -> Option<T> {
        with(|network| network.end(self.0).map(act)).flatten()
    }
}

impl Source for SimSocket {
    fn register(&mut self, _: &Registry, token: Token, _: Interest) -> io::Result<()> {
        let event_loop = Registering::event_loop();
        let event_loop = event_loop.ok_or(io::ErrorKind::Unsupported)?;
        with(|network| network.register(self.0, event_loop, token.into())).ok_or_else(ended)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, want: Interest) -> io::Result<()> {
        self.register(registry, token, want)
    }

    fn deregister(&mut self, _: &Registry) -> io::Result<()> {
        with(|network| network.deregister(self.0)).ok_or_else(ended)
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        with(|network| network.close(self.0));
    }
}

impl SimStream {
    pub(super) fn new(socket: SimSocket) -> Self {
        Self {
            socket,
            is_borrowed: false,
        }
    }

    /// The end with this handle, which is not closed when the stream is dropped.
    pub(super) fn borrowed(handle: u32) -> Self {
        Self {
            socket: SimSocket(handle),
            is_borrowed: true,
        }
    }

    /// Another connection of the same peer, by its [`id`](Self::id).
    #[must_use]
    pub fn beside(&self, id: u32) -> Self {
        Self::borrowed(id)
    }

    /// Has the peer called again for this connection when so much time has passed.
    pub fn serve_after(&self, time: Duration) {
        with(|network| network.serve_after(self.socket.0, time));
    }

    /// The number of the connection, by which a peer knows it again.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.socket.0
    }

    /// True once everything has been read and nothing follows: the other end has closed, or reset.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let has_ended = |end: &mut End| {
            !end.incoming.has_unread()
                && (end.incoming.has_ended || matches!(end.phase, Phase::Failed(_)))
        };
        self.socket.with_end(has_ended).unwrap_or(true)
    }

    /// Simulated time since the network was made.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        with(|network| network.elapsed()).unwrap_or_default()
    }

    /// True if a read would give bytes, the end or an error.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let is_readable = |end: &mut End| {
            end.incoming.has_unread()
                || end.incoming.has_ended
                || matches!(end.phase, Phase::Failed(_))
        };
        self.socket.with_end(is_readable).unwrap_or(true)
    }

    /// Sets how many bytes may be on their way here, or come and not be read.
    pub fn set_window(&self, bytes: usize) {
        self.socket.with_end(|end| end.incoming.window = bytes);
    }

    /// Ends the sending side.
    ///
    /// # Errors
    /// When the connection is not there.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.socket.shutdown_write()
    }

    /// Closes the connection with a reset.
    pub fn reset(&self) {
        self.socket.reset_on_drop();
        self.close();
    }

    /// Closes the connection, as dropping it does.
    pub fn close(&self) {
        with(|network| network.close(self.socket.0));
    }

    /// Has everything that is sent to this end from now on disappear, and nothing come from it: its
    /// machine is gone, which the other end is not told.
    pub fn silence(&self) {
        let other = self.socket.with_end(|end| {
            end.is_silenced = true;
            end.other
        });
        with(|network| {
            if let Some(other) = other.and_then(|other| network.end(other)) {
                other.is_silenced = true;
            }
        });
    }

    /// Has the trace take in lengths alone of what is sent on this connection from now on, both
    /// ways: the bytes are sealed by keys that no seed decides.
    pub fn seal(&self) {
        let other = self.socket.with_end(|end| {
            end.is_sealed = true;
            end.other
        });
        with(|network| {
            if let Some(other) = other.and_then(|other| network.end(other)) {
                other.is_sealed = true;
            }
        });
    }

    /// Has the trace take in a sample of bytes that a test has opened on a [sealed](Self::seal)
    /// connection.
    pub fn note_opened(&self, bytes: &[u8]) {
        with(|network| network.trace.note_bytes(bytes));
    }

    /// Reads all that has come; returns false at the end of the connection.
    pub fn read_all(&mut self, into: &mut Vec<u8>) -> bool {
        loop {
            let unread = self.socket.with_end(|end| end.incoming.unread_bytes());
            let mut buffer = vec![0; unread.unwrap_or(0).max(1)];
            match self.read(&mut buffer) {
                Ok(0) => return false,
                Ok(read) => into.extend_from_slice(&buffer[..read]),
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Reads at most `most` bytes of what has come; returns false at the end of the connection.
    pub fn read_little(&mut self, into: &mut Vec<u8>, most: usize) -> bool {
        let mut buffer = vec![0; most];
        match self.read(&mut buffer) {
            Ok(0) => false,
            Ok(read) => {
                into.extend_from_slice(&buffer[..read]);
                true
            }
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

impl Read for SimStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.read(buffer)
    }
}

impl Write for SimStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(&[bytes])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        if self.is_borrowed {
            // No handle is 0, so this closes nothing.
            self.socket.0 = 0;
        }
    }
}

impl SimListener {
    pub(super) fn new(at: SocketAddr) -> io::Result<Self> {
        Self::of(at, Owner::Test)
    }

    pub(super) fn of(at: SocketAddr, owner: Owner) -> io::Result<Self> {
        let (socket, at) = SimSocket::listen_for(at, owner)?;
        Ok(Self { socket, at })
    }

    /// The address it listens on, its port resolved.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// The next connection, if one has come.
    #[must_use]
    pub fn accept(&self) -> Option<SimStream> {
        self.socket.accept().ok().map(|(it, _)| SimStream::new(it))
    }
}
