//! A connection as every protocol has it: its socket, the input that is not used yet, and what is
//! known of the peer's side.
//!
//! Protocols read by [`Peer::fill`], keep the rest by [`Peer::keep`], send what was refused by
//! [`Peer::flush`], and end by [`Peer::linger`]. The socket decides what a read or a write means:
//! a short read ends in [`ReadOutcome::Drained`] only where nothing can be behind it, input
//! that came before the protocol began is the first tail, and what a turn has still to send is
//! [`Flushed::More`].

use crate::{Context, Detached, Flushed, Handshaking, ReadOutcome, Readiness, Stream, Token};
use std::io;
use std::time::Duration;

/// Time that a peer has to read what it was sent last.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// A stream, its unused input, and two marks: it may hold unread input; its peer sends no more.
///
/// Shape: owns no buffer while there is no unused input. `N` is what the protocol notes of that
/// input; it goes with it.
///
/// ```
/// use dwell_evloop::{Context, EventLoop, Peer, Readiness, Stream};
/// use std::io::Write;
///
/// /// Reads what is there; returns the lines that are whole.
/// fn lines(peer: &mut Peer, context: &mut Context) -> std::io::Result<Vec<u8>> {
///     let mut input = context.take_input();
///     let filled = peer.fill(&mut input, usize::MAX)?.bytes();
///     let used = input[..filled].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
///     let lines = input[..used].to_vec();
///     peer.keep(&input[..filled], used, ());
///     context.return_input(input);
///     Ok(lines)
/// }
///
/// let mut event_loop = EventLoop::<()>::new()?;
/// let (ours, mut theirs) = mio::net::UnixStream::pair()?;
/// let mut peer = Peer::new(Stream::from_unix(ours));
/// theirs.write_all(b"one\ntw")?;
/// peer.observe(Readiness::READABLE);
/// assert_eq!(lines(&mut peer, event_loop.context())?, b"one\n");
/// theirs.write_all(b"o\n")?;
/// peer.observe(Readiness::READABLE);
/// assert_eq!(lines(&mut peer, event_loop.context())?, b"two\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Peer<N = ()> {
    /// The socket, and the output that it has refused.
    pub stream: Stream,
    tail: Option<Box<Tail<N>>>,
    /// The socket may hold input, or the end of it, that was not read.
    unread: bool,
    /// The peer has ended its sending side.
    ended: bool,
}

/// Input that is not used yet; never empty.
#[derive(Debug)]
struct Tail<N> {
    bytes: Vec<u8>,
    note: N,
}

/// The result of [`Peer::fill`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filled {
    /// Bytes of the tail, which come first.
    pub kept: usize,
    /// Bytes that were read behind them.
    pub read: usize,
}

/// The result of [`Peer::flush`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The state of what is left.
    pub left: Flushed,
    /// Bytes that the socket has taken, those of files among them.
    pub sent: u64,
    /// Together with what it took before, they are enough for a new deadline.
    pub is_enough: bool,
}

/// The pace at which a peer has to take its output.
///
/// ```
/// use dwell_evloop::WritePace;
/// use std::time::Duration;
///
/// let pace = WritePace { rate_min: 512, timeout: Duration::from_millis(1500) };
/// assert_eq!(pace.bytes_min(), 768);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WritePace {
    /// Bytes a second on the average of `timeout`; with 0 a single byte is enough.
    pub rate_min: u32,
    /// The time that it has for so many.
    pub timeout: Duration,
}

impl WritePace {
    /// Bytes that have to be taken within the timeout.
    pub fn bytes_min(self) -> u64 {
        let bytes = u128::from(self.rate_min) * self.timeout.as_millis() / 1000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl Filled {
    /// Bytes in the buffer.
    pub fn bytes(self) -> usize {
        self.kept + self.read
    }
}

impl<N> Peer<N> {
    /// A peer that has sent nothing yet, as far as is known.
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            tail: None,
            unread: false,
            ended: false,
        }
    }

    /// Notes what the loop has delivered. To be called first for each readiness.
    pub fn observe(&mut self, readiness: Readiness) {
        self.unread |= readiness.is_readable();
        self.ended |= readiness.is_read_closed();
    }

    /// Returns true if the socket may hold input, or the end of it.
    pub fn is_unread(&self) -> bool {
        self.unread
    }

    /// The socket is to be read once more, whatever is known of it.
    pub fn set_unread(&mut self) {
        self.unread = true;
    }

    /// Returns true if the peer sends no more than what the socket holds.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns true if everything the peer will ever send was read.
    pub fn is_at_end(&self) -> bool {
        self.ended && !self.unread
    }

    /// The input that is not used yet.
    pub fn tail(&self) -> &[u8] {
        self.tail.as_ref().map_or(&[], |tail| &tail.bytes)
    }

    /// Returns true if there is input that is not used yet.
    pub fn has_tail(&self) -> bool {
        self.tail.is_some()
    }

    /// The protocol's note of the tail, if there is one.
    pub fn note(&self) -> Option<&N> {
        self.tail.as_ref().map(|tail| &tail.note)
    }

    /// Forgets the tail, and lets go of its memory.
    pub fn drop_tail(&mut self) {
        self.tail = None;
    }

    /// Takes the tail out, to be used where it is.
    pub fn take_tail(&mut self) -> Vec<u8> {
        self.tail.take().map_or_else(Vec::new, |tail| tail.bytes)
    }

    /// Goes on with the handshake, as [`Stream::handshake`] does.
    ///
    /// # Errors
    /// As [`Stream::handshake`]. [`io::ErrorKind::UnexpectedEof`] too where the peer has announced
    /// its end and all that came before it was read: no further readiness would report that end.
    pub fn handshake(&mut self) -> io::Result<Handshaking> {
        let outcome = self.stream.handshake()?;
        let is_read = self.ended && self.stream.is_flushed();
        if outcome == Handshaking::Pending && is_read {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(outcome)
    }

    /// Reads once, where there may be something to read; 0 where there was not.
    ///
    /// Shape: a peer whose end was announced is [at its end](Self::is_at_end) when all that came
    /// with the announcement was read.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.unread || into.is_empty() {
            return Ok(0);
        }
        let outcome = self.stream.read(into)?;
        Ok(self.took(outcome))
    }

    /// Takes in the outcome of a read; returns its bytes.
    fn took(&mut self, outcome: ReadOutcome) -> usize {
        let read = match outcome {
            ReadOutcome::More(read) => return read,
            ReadOutcome::Drained(read) => read,
            ReadOutcome::WouldBlock => 0,
            ReadOutcome::Closed => {
                self.ended = true;
                0
            }
        };
        self.unread = false;
        read
    }

    /// Reads as [`read`](Self::read) does, but finds the end by reading it, so that a connection
    /// that broke behind its last bytes is told from one that ended.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn read_to_end(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.read(into)?;
        // A peer that has ended gives no further edge.
        self.unread |= self.ended && read > 0;
        Ok(read)
    }

    /// Puts the tail into `input`, and one read behind it, up to `room` bytes in all.
    ///
    /// Shape: `input` grows for a tail that does not fit; the tail stays until it is
    /// [kept](Self::keep) again.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn fill(&mut self, input: &mut Vec<u8>, room: usize) -> io::Result<Filled> {
        let mut kept = 0;
        if let Some(tail) = &self.tail {
            kept = tail.bytes.len();
            if kept > input.len() {
                input.resize(kept, 0);
            }
            input[..kept].copy_from_slice(&tail.bytes);
        }
        let room = room.min(input.len());
        let read = if kept < room {
            self.read(&mut input[kept..room])?
        } else {
            0
        };
        Ok(Filled { kept, read })
    }

    /// Keeps what is left of `input`, which began with the tail kept before, behind the first
    /// `used` bytes.
    pub fn keep(&mut self, input: &[u8], used: usize, note: N) {
        if used == input.len() {
            self.tail = None;
            return;
        }
        match &mut self.tail {
            Some(tail) if used == 0 => tail.bytes.extend_from_slice(&input[tail.bytes.len()..]),
            Some(tail) => tail.bytes = input[used..].to_vec(),
            None => return self.set_tail(input[used..].to_vec(), note),
        }
        if let Some(tail) = &mut self.tail {
            tail.note = note;
        }
    }

    /// Makes these bytes the tail: those that came before the protocol began, or what is left of
    /// the tail that was taken out.
    pub fn set_tail(&mut self, bytes: Vec<u8>, note: N) {
        self.tail = (!bytes.is_empty()).then(|| Box::new(Tail { bytes, note }));
    }

    /// Writes what the socket has refused, as far as it takes it now. Bytes for the next turn are
    /// put back there.
    ///
    /// Shape: to be called when the socket is writable again and has output to take.
    ///
    /// # Errors
    /// As [`Stream::flush`].
    pub fn flush(
        &mut self,
        context: &mut Context,
        token: Token,
        pace: WritePace,
    ) -> io::Result<Progress> {
        let (left, sent) = self.stream.flush_counted()?;
        if left == Flushed::More {
            context.again(token, Readiness::WRITABLE);
        }
        Ok(Progress {
            left,
            sent,
            is_enough: sent > 0 && self.stream.has_taken(pace.bytes_min()),
        })
    }

    /// Bytes that the socket has yet to take, of memory and of files.
    pub fn unsent(&self) -> u64 {
        self.stream.queued_bytes() as u64 + self.stream.queued_file_bytes()
    }

    /// Ends our side, when all output is out, and gives the peer the time to read it. Returns
    /// false where nothing has to be waited for, and the connection can be closed.
    pub fn linger(&mut self, context: &mut Context, token: Token) -> bool {
        self.stream.close_notify();
        if !self.unread || self.stream.shutdown_write().is_err() {
            return false;
        }
        self.tail = None;
        context.arm(token, LINGER_TIMEOUT);
        self.discard(context, token)
    }

    /// Reads what a peer still sends and nothing wants, so that closing does not reset the output
    /// away. Returns false when it sends no more.
    pub fn discard(&mut self, context: &mut Context, token: Token) -> bool {
        if self.unread {
            let mut input = context.take_input();
            let outcome = self.stream.discard(&mut input);
            context.return_input(input);
            match outcome {
                Ok(outcome) => self.took(outcome),
                Err(_) => return false,
            };
        }
        if self.is_at_end() {
            return false;
        }
        if self.unread {
            context.again(token, Readiness::default());
        }
        true
    }
}

impl<N: Default> From<Detached> for Peer<N> {
    /// Its input is the first tail. Data that TLS has read and nothing has taken is still to be
    /// read, and a record that has begun is to be checked, as it has a time for its rest.
    fn from(detached: Detached) -> Self {
        let mut peer = Self::new(detached.stream);
        peer.unread = peer.stream.holds_input() || peer.stream.has_begun_record();
        peer.set_tail(detached.input, N::default());
        peer
    }
}

impl<N> From<Peer<N>> for Detached {
    fn from(mut peer: Peer<N>) -> Self {
        Self {
            input: peer.take_tail(),
            stream: peer.stream,
        }
    }
}

#[cfg(test)]
mod tests;
