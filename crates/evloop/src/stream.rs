//! A connected socket: reads into the caller's buffer, writes through, keeps what is refused.

mod beside;
mod blocking;
mod descriptor;
mod fault;
mod file;
mod handshakes;
mod outcome;
mod queue;
mod secure;
#[cfg(target_os = "linux")]
mod sigpipe;
mod socket;
#[cfg(test)]
mod tests;
#[cfg(not(feature = "tls"))]
#[path = "stream/no_tls.rs"]
mod tls;
#[cfg(feature = "tls")]
mod tls;

pub use blocking::BlockingStream;
pub use descriptor::Detached;
pub use fault::TlsFault;
pub use file::{FileSlice, FileTruncated};
pub use handshakes::{HandshakeCounts, Handshakes};
pub use outcome::{Agreed, Flushed, HandshakeFailure, ReadOutcome, TlsFacts, server_fault};
pub use secure::Handshaking;
pub use tls::{Acceptor, ClientNames, Connector, PeerCertificates};
#[cfg(feature = "tls")]
pub use tls::{
    Certificate, CertificateError, ClientTls, ClientVerification, KeptOfClient, NameError, Roots,
    TicketKey,
};

use crate::output::LoopOutput;
use beside::Beside;
use bytes::Bytes;
use dwell_timers::Tick;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use queue::Queue;
use socket::Socket;
use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

/// A non-blocking TCP or unix stream with a write-through output queue.
///
/// Shape: owns no buffer while the socket takes its output. Only refused output is queued; a shared
/// body and a file are queued by reference. The writer bounds the queue: it checks
/// [`queued_bytes`](Self::queued_bytes) before it produces more.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    beside: Beside,
}

impl Stream {
    /// Starts connecting to `address`. Writable readiness means that it ended; then
    /// [`connect_error`](Self::connect_error) returns the outcome.
    ///
    /// # Errors
    /// When no socket can be made or the system refuses at once.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        #[cfg(feature = "sim")]
        if crate::sim::is_on() {
            let socket = crate::sim::SimSocket::connect(address, false);
            return Ok(Self::from_sim(socket));
        }
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        Ok(Self::from_tcp(socket))
    }

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
        if matches!(self.socket, Socket::Sim(_)) {
            return true;
        }
        self.is_carried() || self.as_fd().as_raw_fd() < bound
    }

    /// Connects to the unix socket at `path`; as [`connect`](Self::connect) otherwise.
    ///
    /// # Errors
    /// When no process listens there, or the listener's backlog is full (`WouldBlock`).
    pub fn connect_unix(path: impl AsRef<Path>) -> io::Result<Self> {
        UnixStream::connect(path).map(Self::from_unix)
    }

    /// Wraps a socket that was accepted or connected.
    pub fn from_tcp(socket: TcpStream) -> Self {
        Self {
            socket: Socket::Tcp(socket),
            beside: Beside::default(),
        }
    }

    /// Wraps a unix stream.
    pub fn from_unix(socket: UnixStream) -> Self {
        Self {
            socket: Socket::Unix(socket),
            beside: Beside::default(),
        }
    }

    #[cfg(feature = "sim")]
    pub(crate) fn from_sim(socket: crate::sim::SimSocket) -> Self {
        Self {
            socket: Socket::Sim(socket),
            beside: Beside::default(),
        }
    }

    /// Takes the simulated socket out of the stream, as another process gets it by its descriptor;
    /// `None` for one of the system.
    #[cfg(feature = "sim")]
    pub fn take_simulated(&mut self) -> Option<Self> {
        match &mut self.socket {
            Socket::Sim(socket) => Some(Self::from_sim(socket.take())),
            Socket::Tcp(_) | Socket::Unix(_) | Socket::Carried(_) => None,
        }
    }

    /// Returns the error of a failed connect; `None` once it is established.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn connect_error(&self) -> io::Result<Option<io::Error>> {
        let pending = self.socket.take_error()?;
        if pending.is_some() {
            return Ok(pending);
        }
        match self.peer_address() {
            Ok(_) => Ok(None),
            Err(error) => Ok(Some(error)),
        }
    }

    /// The peer's address; `None` for a unix stream. It is the one that was
    /// [set](Self::set_peer_address), if one was.
    ///
    /// # Errors
    /// When the stream is not connected.
    pub fn peer_address(&self) -> io::Result<Option<SocketAddr>> {
        match self.beside.origin() {
            Some(origin) => Ok(Some(origin)),
            None => self.socket.peer_address(),
        }
    }

    /// Has the peer known by another address than that of the socket, which a balancer in between
    /// has told.
    ///
    /// ```
    /// use dwell_evloop::Stream;
    ///
    /// let (ours, _theirs) = mio::net::UnixStream::pair()?;
    /// let mut stream = Stream::from_unix(ours);
    /// assert!(stream.can_move());
    /// stream.set_peer_address(([192, 0, 2, 1], 56324).into());
    /// assert_eq!(stream.peer_address()?, Some(([192, 0, 2, 1], 56324).into()));
    /// assert!(!stream.can_move(), "another process would not know of it");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_peer_address(&mut self, address: SocketAddr) {
        self.beside.set_origin(address);
    }

    /// Returns true if all there is to the stream is its socket, so that another process can go on
    /// with it: it is not under TLS, nor [carried](Self::is_carried), and no address of its peer
    /// was [set](Self::set_peer_address).
    pub fn can_move(&self) -> bool {
        !self.is_secure() && !self.is_carried() && self.beside.origin().is_none()
    }

    /// Copies what has come to the front of `buffer` and leaves it in the socket, beneath TLS.
    /// Returns how many bytes that are; `None` where nothing has come, and 0 at the end.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// ```
    /// use dwell_evloop::{ReadOutcome, Stream};
    /// use std::io::Write;
    ///
    /// let (ours, mut theirs) = mio::net::UnixStream::pair()?;
    /// let mut stream = Stream::from_unix(ours);
    /// let mut buffer = [0; 16];
    /// assert_eq!(stream.peek(&mut buffer)?, None);
    /// theirs.write_all(b"headbody")?;
    /// assert_eq!(stream.peek(&mut buffer)?, Some(8));
    /// stream.skip(4)?;
    /// assert_eq!(stream.read(&mut buffer)?, ReadOutcome::Drained(4));
    /// assert_eq!(&buffer[..4], b"body");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.socket.peek(buffer) {
            Ok(peeked) => Ok(Some(peeked)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes so many bytes out of the socket, beneath TLS, which [`peek`](Self::peek) has shown.
    ///
    /// # Errors
    /// As [`read`](Self::read); `UnexpectedEof` where there are not so many.
    pub fn skip(&mut self, bytes: usize) -> io::Result<()> {
        let mut buffer = [0; 256];
        let mut left = bytes;
        while left > 0 {
            let length = left.min(buffer.len());
            match self.socket.read_some(&mut buffer[..length])? {
                ReadOutcome::More(read) | ReadOutcome::Drained(read) => left -= read,
                ReadOutcome::WouldBlock | ReadOutcome::Closed => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        Ok(())
    }

    /// The address of our end; `None` for a unix stream.
    ///
    /// # Errors
    /// What the system says of a socket that has failed.
    pub fn local_address(&self) -> io::Result<Option<SocketAddr>> {
        self.socket.local_address()
    }

    /// Reads once into `buffer`.
    ///
    /// # Errors
    /// When the connection failed (reset, for one); it is then of no more use.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        if self.is_secure() {
            return self.read_sealed(buffer);
        }
        self.socket.read_some(buffer)
    }

    /// Writes `bytes` through to the socket and queues a copy of what it refuses.
    ///
    /// # Errors
    /// When the connection failed; the queue is then of no more use.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(feature = "sim")]
        if crate::sim::Planted::AnswerTwice.strikes(16) {
            self.write_before(bytes, false)?;
        }
        self.write_before(bytes, false)
    }

    /// Writes `head` and then `body` in one system call; what the socket refuses of `body` is
    /// queued by reference, so that a slow reader holds no copy of a shared answer. (Up to 128
    /// bytes are copied, which takes less room.)
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_shared(&mut self, head: &[u8], body: Bytes) -> io::Result<()> {
        let written = match head {
            _ if self.is_secure() => self.seal_through([head, &body])?,
            [] => self.write_through(&[&body], false)?,
            _ => self.write_through(&[head, &body], false)?,
        };
        let whole = (body.as_ptr().addr(), body.len());
        if written < head.len() {
            let queue = self.refused_queue();
            queue.push_copy(&head[written..]);
            queue.push_shared(body, whole);
        } else if written < head.len() + body.len() {
            self.refused_queue()
                .push_shared(body.slice(written - head.len()..), whole);
        }
        Ok(())
    }

    /// Writes `head` and then a part of a file, which the kernel copies into the socket.
    ///
    /// Shape: sends up to 1 MiB of the file now and queues the rest as the slice it is, whose
    /// descriptor is held until it is sent. [`flushed`](Self::flushed) returns how far it came:
    /// unlike the other writes this one may end as [`Flushed::More`]. Head and first bytes of the
    /// file share a segment (`MSG_MORE`). The loop waits while the disk is read for parts of the
    /// file that are not in memory.
    ///
    /// # Errors
    /// As [`write`](Self::write); and `UnexpectedEof` with [`FileTruncated`] inside when the file
    /// has become shorter than the slice: the peer cannot be given what it was promised, so the
    /// connection has to end.
    ///
    /// ```
    /// use dwell_evloop::{FileSlice, Flushed, Stream};
    ///
    /// let (ours, _theirs) = mio::net::UnixStream::pair()?;
    /// let mut stream = Stream::from_unix(ours);
    /// let file = std::fs::File::open("Cargo.toml")?;
    /// let slice = FileSlice { file: file.into(), offset: 0, length: 9 };
    /// stream.write_file(b"[before]", slice)?;
    /// assert_eq!(stream.flushed(), Flushed::All);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_file(&mut self, head: &[u8], slice: FileSlice) -> io::Result<()> {
        if slice.length == 0 {
            return self.write(head);
        }
        self.write_before(head, true)?;
        let is_through = self.is_flushed();
        self.beside.queue_or_else(Queue::default).push_file(slice);
        if is_through {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what is queued, as far as the socket takes it, but at most 1 MiB of files, so that a
    /// huge file and a fast reader leave the loop to others.
    ///
    /// Shape: what is queued in memory alone never ends as [`Flushed::More`].
    ///
    /// # Errors
    /// As [`write_file`](Self::write_file).
    pub fn flush(&mut self) -> io::Result<Flushed> {
        self.flush_counted().map(|(flushed, _)| flushed)
    }

    /// Flushes as [`flush`](Self::flush) does; returns how many bytes the socket has taken, too.
    pub(crate) fn flush_counted(&mut self) -> io::Result<(Flushed, u64)> {
        let mut taken = 0;
        #[cfg(feature = "sim")]
        if crate::sim::Planted::LostRefusal.is_in() {
            return Ok((self.flushed(), taken));
        }
        if let Some((queue, tls)) = self.beside.queue_and_tls() {
            let before = queue.taken();
            queue.flush(&self.socket, tls)?;
            taken = queue.taken() - before;
            if queue.is_empty() {
                self.beside.drop_queue();
            }
        }
        Ok((self.flushed(), taken))
    }

    /// Returns the state of the output, as [`flush`](Self::flush) would without writing.
    pub fn flushed(&self) -> Flushed {
        match self.beside.queue() {
            None => Flushed::All,
            Some(queue) if queue.is_refused() => Flushed::Blocked,
            Some(_) => Flushed::More,
        }
    }

    /// Returns true if no output waits for the socket, neither bytes nor files.
    pub fn is_flushed(&self) -> bool {
        self.beside.queue().is_none()
    }

    /// Leaves `bytes` to [`Sends`](crate::Sends), under TLS 1.3 as records, which are sealed now:
    /// what is sealed after them is to be sent after them, too. Returns false if they are to be
    /// [written](Self::write): something waits for the socket, TLS 1.2 is in between, or TLS that
    /// seals nothing now.
    ///
    /// ```
    /// use dwell_evloop::{Sends, Stream, Token};
    ///
    /// let (ours, _theirs) = mio::net::UnixStream::pair()?;
    /// let mut stream = Stream::from_unix(ours);
    /// let mut sends = Sends::default();
    /// assert!(stream.leave_to(&mut sends, Token::new(1, 0, 0), b"news"));
    /// assert!(!sends.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn leave_to(
        &mut self,
        sends: &mut crate::Sends,
        token: crate::Token,
        bytes: &[u8],
    ) -> bool {
        if !self.is_flushed() {
            return false;
        }
        match self.beside.tls() {
            None => sends.push(token, bytes),
            Some((tls, _)) => return sends.push_sealed(token, |out| tls.seal_to(bytes, out)),
        }
        true
    }

    /// Bytes in memory that wait for the socket to take them; those of files are not counted.
    pub fn queued_bytes(&self) -> usize {
        self.beside.queue().map_or(0, Queue::bytes)
    }

    /// Bytes of files that wait for the socket to take them; they take no memory.
    pub fn queued_file_bytes(&self) -> u64 {
        self.beside.queue().map_or(0, Queue::file_bytes)
    }

    /// Returns true if the socket has taken at least so many of the waiting bytes since this was
    /// last true, or since they began to wait. True if none wait.
    ///
    /// Shape: for a deadline on a lowest rate, which is set again only when this is true.
    pub fn has_taken(&mut self, bytes_min: u64) -> bool {
        self.beside
            .queue_mut()
            .is_none_or(|queue| queue.has_taken(bytes_min))
    }

    /// Notes in a ledger what waits for the socket now, until nothing does; nothing where nothing
    /// waits.
    ///
    /// Shape: to be called whenever something may have been written or taken. The ledger is that of
    /// the first call since something waits; it names the stream by the token of the last call.
    pub fn account(&mut self, output: &LoopOutput, token: crate::Token, now: Tick) {
        if let Some(queue) = self.beside.queue_mut() {
            queue.account(output, token, now);
        }
    }

    /// Ends the sending side, so that the peer reads the end of the stream.
    ///
    /// # Errors
    /// When the connection has failed already.
    pub fn shutdown_write(&mut self) -> io::Result<()> {
        self.close_notify();
        self.socket.shutdown_write()
    }

    /// From now on, dropping it resets the connection: what is still on its way is thrown away, and
    /// the peer reads an error where it would read the end of the stream. (A unix stream has no
    /// reset, its peer reads the end.)
    pub fn reset_on_drop(&self) {
        // Refused only for a socket that has failed, whose peer has been told already.
        let _ = self.socket.reset_on_drop();
    }

    /// Turns it into a socket of the standard library whose calls wait, for a thread of its own.
    ///
    /// Shape: what is queued is written first, which waits for the peer too. It must be registered
    /// with no loop.
    ///
    /// # Errors
    /// When the connection has failed, or a queued file has become shorter; `Unsupported` for a
    /// stream that is under TLS or [carried](Self::is_carried).
    pub fn into_blocking(mut self) -> io::Result<BlockingStream> {
        if self.is_secure() || self.is_carried() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.socket.set_blocking()?;
        while self.flush()? != Flushed::All {}
        Ok(self.socket.into())
    }

    /// Queues what one of [`Sends`](crate::Sends) has left of the bytes for this stream, and waits
    /// for the socket to take them. Under TLS they are records already.
    pub fn queue_rest(&mut self, rest: &[u8]) {
        let is_sealed = self.is_secure();
        let queue = self.refused_queue();
        if is_sealed {
            queue.push_sealed(rest.into());
        } else {
            queue.push_copy(rest);
        }
    }

    /// Writes what was [left](Self::leave_to) to `Sends`, beneath TLS where it is sealed; returns
    /// how much the socket took.
    pub(crate) fn write_left(&self, part: &[u8], is_sealed: bool) -> io::Result<usize> {
        if is_sealed != self.is_secure() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if !self.is_flushed() {
            return Ok(0);
        }
        self.socket.write_parts(&[part], false)
    }

    /// The descriptor, for bytes that are sealed if the stream is under TLS; `None` for others, and
    /// of a simulated socket.
    pub(crate) fn descriptor(&self, is_sealed: bool) -> Option<BorrowedFd<'_>> {
        match &self.socket {
            #[cfg(feature = "sim")]
            Socket::Sim(_) => None,
            _ if self.is_carried() || is_sealed != self.is_secure() => None,
            socket => Some(socket.as_fd()),
        }
    }

    /// Writes `bytes`; with `more`, something follows at once.
    fn write_before(&mut self, bytes: &[u8], more: bool) -> io::Result<()> {
        let written = if self.is_secure() {
            self.seal_through([bytes, &[]])?
        } else {
            self.write_through(&[bytes], more)?
        };
        if written < bytes.len() {
            self.refused_queue().push_copy(&bytes[written..]);
        }
        Ok(())
    }

    /// Writes what need not wait behind the queue, without TLS; returns how much the socket took.
    fn write_through(&self, parts: &[&[u8]], more: bool) -> io::Result<usize> {
        if self.is_secure() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if !self.is_flushed() || parts.iter().all(|part| part.is_empty()) {
            return Ok(0);
        }
        self.socket.write_parts(parts, more)
    }

    /// The queue for what the socket has just refused, or what waits behind that.
    fn refused_queue(&mut self) -> &mut Queue {
        self.beside.queue_or_else(|| {
            let mut queue = Queue::default();
            queue.set_refused();
            queue
        })
    }

    /// Keeps something for as long as the stream lives, wherever that goes: it is dropped with the
    /// socket, or when another takes its place. For counts of open sockets.
    ///
    /// ```
    /// use dwell_evloop::Stream;
    /// use std::os::unix::net::UnixStream;
    /// use std::sync::Arc;
    ///
    /// let (client, _peer) = UnixStream::pair()?;
    /// let mut stream = Stream::from_descriptor(client.into())?;
    /// let open = Arc::new(());
    /// stream.keep(Box::new(Arc::clone(&open)));
    /// assert_eq!(Arc::strong_count(&open), 2);
    /// let kept = stream.kept().and_then(|kept| kept.downcast_mut::<Arc<()>>());
    /// assert!(kept.is_some_and(|kept| Arc::ptr_eq(kept, &open)));
    /// drop(stream);
    /// assert_eq!(Arc::strong_count(&open), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn keep(&mut self, kept: Box<dyn Any + Send>) {
        self.beside.keep(kept);
    }

    /// The value that was given to [`keep`](Self::keep), to be changed.
    pub fn kept(&mut self) -> Option<&mut (dyn Any + Send)> {
        self.beside.kept()
    }
}

/// The socket, to be given to another process; what is queued here does not go with it.
impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Source for Stream {
    fn register(&mut self, registry: &Registry, token: Token, want: Interest) -> io::Result<()> {
        self.socket.register(registry, token, want)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, want: Interest) -> io::Result<()> {
        self.socket.reregister(registry, token, want)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.socket.deregister(registry)
    }
}
