//! One raw stream: where it stands, and what may be done with it.

use super::StreamLimits;
use bytes::Bytes;
use dwell_evloop::{Peer, PeerCertificates, TlsFault, Token};
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// The state of a stream. It also defines what the deadline of its token is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The connect is in progress; the deadline gives it up.
    Connecting,
    /// The handshake of TLS is in progress; the deadline gives it up.
    Handshaking,
    /// Both sides may send. The deadline is of the queued output, or of idleness.
    Open,
    /// The queued output goes out, then our side is closed. At the deadline the rest is dropped.
    Closing,
    /// Our side is closed; input is discarded, so that the peer reads what was sent instead of a
    /// reset. The deadline closes it.
    Lingering,
    /// It is over, and is taken out of the table when its visit ends.
    Ended(StreamEnd),
}

/// The cause of a stream's end.
///
/// ```
/// use dwell_engine::StreamEnd;
///
/// let end = StreamEnd::InputFull { limit: 32_768 };
/// assert!(!end.is_orderly() && StreamEnd::Closed.is_orderly());
/// assert_eq!(end.to_string(), "unused input exceeds 32768 bytes");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StreamEnd {
    /// Closed in order: all queued output is out.
    Closed,
    /// Ended by [`StreamRef::abort`]; the queued output is lost.
    Aborted,
    /// The connect failed.
    ConnectFailed(io::ErrorKind),
    /// The handshake of TLS failed, for a reason that
    /// [`StreamApp::handshake_failed`](super::StreamApp::handshake_failed) was given.
    HandshakeFailed,
    /// The connect, or the handshake of TLS, took longer than [`StreamLimits::connect_timeout`].
    ConnectTimeout,
    /// The connection failed: a reset, for one.
    Failed(io::ErrorKind),
    /// TLS failed behind its handshake: the peer has sent an alert, as a server does that wants a
    /// client's certificate, or what cannot be decrypted.
    TlsFailed(TlsFault),
    /// The peer took nothing for longer than [`StreamLimits::write_timeout`].
    WriteTimeout,
    /// Nothing came or went for [`StreamLimits::idle_timeout`].
    IdleTimeout,
    /// The app left more input unused than [`StreamLimits::input_bytes_max`].
    InputFull {
        /// The most bytes allowed.
        limit: usize,
    },
}

impl StreamEnd {
    /// The end by an error of reading or writing.
    pub(super) fn of(error: &io::Error) -> Self {
        TlsFault::of(error).map_or(Self::Failed(error.kind()), Self::TlsFailed)
    }

    /// Returns true if one of the two sides wanted this end.
    pub fn is_orderly(self) -> bool {
        matches!(self, Self::Closed | Self::Aborted | Self::IdleTimeout)
    }
}

impl fmt::Display for StreamEnd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => out.write_str("closed"),
            Self::Aborted => out.write_str("aborted"),
            Self::ConnectFailed(kind) => write!(out, "connect failed: {kind}"),
            Self::HandshakeFailed => out.write_str("handshake failed"),
            Self::ConnectTimeout => out.write_str("connect timed out"),
            Self::Failed(kind) => write!(out, "connection failed: {kind}"),
            Self::TlsFailed(fault) => write!(out, "tls failed: {fault}"),
            Self::WriteTimeout => out.write_str("peer takes no output"),
            Self::IdleTimeout => out.write_str("idle for too long"),
            Self::InputFull { limit } => write!(out, "unused input exceeds {limit} bytes"),
        }
    }
}

/// An entry of the table; what an idle stream costs.
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that are independent of one another"
)]
#[derive(Debug)]
pub(super) struct Connection {
    /// The socket, and the input that the app has not used.
    pub(super) peer: Peer,
    pub(super) tag: u64,
    /// Bytes the app has written since it was last called for taken output.
    pub(super) offered: usize,
    pub(super) state: State,
    /// The tail was not offered to the app since it was given or reading began again.
    pub(super) tail_is_new: bool,
    pub(super) paused: bool,
    /// The app was called because the peer sends no more.
    pub(super) end_told: bool,
    /// Neither side can send any more; the socket's error was not read yet.
    pub(super) hung_up: bool,
    /// Output is queued, and the app is to be called when it is out.
    pub(super) blocked: bool,
    /// The deadline is of queued output, not of idleness.
    pub(super) times_output: bool,
}

impl Connection {
    pub(super) fn new(peer: Peer, tag: u64, state: State) -> Self {
        Self {
            tail_is_new: peer.has_tail(),
            peer,
            tag,
            offered: 0,
            state,
            paused: false,
            end_told: false,
            hung_up: false,
            blocked: false,
            times_output: false,
        }
    }

    /// Returns true if the app can be given input, or the end of it.
    pub(super) fn is_readable(&self) -> bool {
        let end_is_news = self.peer.has_ended() && !self.end_told;
        let has_news = self.peer.is_unread() || self.tail_is_new || end_is_news;
        self.state == State::Open && !self.paused && has_news
    }

    /// Returns true if something has to be done before it can rest.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.state, State::Closing | State::Ended(_)) || self.may_have_failed()
    }

    /// Returns true if it may have failed unnoticed, as nothing is read from it.
    pub(super) fn may_have_failed(&self) -> bool {
        self.state == State::Open && self.paused && self.hung_up
    }

    /// Returns true if output waits for the socket: bytes, or a file that was queued before it was
    /// adopted.
    pub(super) fn has_output(&self) -> bool {
        !self.peer.stream.is_flushed()
    }

    /// Returns true if the socket took output and the app was not called for it yet.
    pub(super) fn has_written(&self) -> bool {
        self.offered > self.peer.stream.queued_bytes()
    }
}

/// One stream, for as long as a callback lasts.
#[derive(Debug)]
pub struct StreamRef<'a> {
    pub(super) token: Token,
    pub(super) connection: &'a mut Connection,
    pub(super) limits: &'a StreamLimits,
}

impl StreamRef<'_> {
    /// Its name, valid until [`StreamApp::closed`](super::StreamApp::closed).
    pub fn token(&self) -> Token {
        self.token
    }

    /// Returns the tag that the app has set, 0 at first; handed back with its end.
    pub fn tag(&self) -> u64 {
        self.connection.tag
    }

    /// Gives it a number of the app's own.
    pub fn set_tag(&mut self, tag: u64) {
        self.connection.tag = tag;
    }

    /// Writes a copy of `bytes`: through to the socket, and what that refuses to the queue.
    ///
    /// Shape: false when nothing was taken, because the queue [is full](Self::is_full) or the
    /// stream is closing. One write may go beyond the bound, by its own size.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        self.accepts_output() && {
            let written = self.connection.peer.stream.write(bytes);
            self.wrote(bytes.len(), &written);
            true
        }
    }

    /// As [`write`](Self::write), but queued by reference.
    pub fn write_shared(&mut self, bytes: Bytes) -> bool {
        self.accepts_output() && {
            let offered = bytes.len();
            let written = self.connection.peer.stream.write_shared(&[], bytes);
            self.wrote(offered, &written);
            true
        }
    }

    /// Bytes that wait for the socket to take them.
    pub fn queued_bytes(&self) -> usize {
        self.connection.peer.stream.queued_bytes()
    }

    /// Returns true if a write would be refused until the peer has taken some output.
    pub fn is_full(&self) -> bool {
        self.queued_bytes() >= self.limits.output_bytes_max
    }

    /// Returns true if it is closing or closed.
    pub fn is_closing(&self) -> bool {
        !matches!(
            self.connection.state,
            State::Open | State::Connecting | State::Handshaking
        )
    }

    /// Returns true if the connect is still in progress.
    pub fn is_connecting(&self) -> bool {
        matches!(
            self.connection.state,
            State::Connecting | State::Handshaking
        )
    }

    /// Returns true if the stream is under TLS and the peer has not said that it sends no more: an
    /// end of it may be another's.
    pub fn is_cut_off(&self) -> bool {
        self.connection.peer.stream.is_cut_off()
    }

    /// Returns true if reading is paused.
    pub fn is_paused(&self) -> bool {
        self.connection.paused
    }

    /// Closes it in order: what is queued goes out first, then the peer reads the end.
    pub fn close(&mut self) {
        let connection = &mut *self.connection;
        match connection.state {
            State::Open => connection.state = State::Closing,
            State::Connecting | State::Handshaking => {
                connection.state = State::Ended(StreamEnd::Aborted);
            }
            State::Closing | State::Lingering | State::Ended(_) => {}
        }
    }

    /// Ends it without sending what is queued: the peer reads a reset, not the end.
    pub fn abort(&mut self) {
        if !matches!(self.connection.state, State::Ended(_)) {
            self.connection.state = State::Ended(StreamEnd::Aborted);
            self.connection.peer.stream.reset_on_drop();
        }
    }

    /// Stops reading, so that the kernel's window holds the peer back. The end of the peer's side
    /// is not reported meanwhile; a failure of the connection is.
    pub fn pause(&mut self) {
        self.connection.paused = true;
    }

    /// Reads again; input that was left unused is handed out again too.
    pub fn resume(&mut self) {
        let connection = &mut *self.connection;
        connection.tail_is_new |= connection.paused && connection.peer.has_tail();
        connection.paused = false;
    }

    /// Returns the peer's address, asked of the system at each call; `None` when it is gone or
    /// unix.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.connection.peer.stream.peer_address().ok().flatten()
    }

    /// Returns the certificates that a client under TLS has shown, of which the first was verified.
    pub fn peer_certificates(&self) -> Option<&PeerCertificates> {
        self.connection.peer.stream.peer_certificates()
    }

    /// The address of our end; `None` for a unix stream.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.connection.peer.stream.local_address().ok().flatten()
    }

    fn accepts_output(&self) -> bool {
        self.connection.state == State::Open && !self.is_full()
    }

    fn wrote(&mut self, offered: usize, written: &io::Result<()>) {
        let connection = &mut *self.connection;
        connection.offered += offered;
        match written {
            Ok(()) => connection.blocked |= connection.has_output(),
            Err(error) => connection.state = State::Ended(StreamEnd::of(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_stream_is_small() {
        assert!(size_of::<Connection>() <= 96, "{}", size_of::<Connection>());
    }
}
