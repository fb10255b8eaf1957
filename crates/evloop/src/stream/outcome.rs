//! The results of reads, of flushes and of handshakes.

use std::error::Error;
use std::io;

/// The result of one read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOutcome {
    /// This many bytes, and the socket may hold more.
    More(usize),
    /// This many bytes, which was all; the next readiness means more.
    Drained(usize),
    /// Nothing to read now.
    WouldBlock,
    /// The peer ended its side in order.
    Closed,
}

/// The state of a stream's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed {
    /// Nothing is left.
    All,
    /// The socket refuses the rest for now; [`flush`](crate::Stream::flush) again when it is
    /// writable.
    Blocked,
    /// The socket would take more, but one call's share of a file is used up. No readiness follows:
    /// put the stream back with [`Context::again`](crate::Context::again) and
    /// [`Readiness::WRITABLE`](crate::Readiness::WRITABLE), and flush again in the next turn.
    More,
}

/// The result of a handshake of TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The version is 1.3, and not 1.2.
    pub is_tls13: bool,
    /// An earlier session goes on, by its ticket.
    pub is_resumed: bool,
    /// The connection speaks HTTP/2 (`h2`, by ALPN).
    pub is_http2: bool,
}

/// The facts of a handshake that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlsFacts<'s> {
    /// The number of the cipher suite: from 0x1301 to 0x1303 for TLS 1.3, another one for TLS 1.2.
    pub suite_number: u16,
    /// An earlier session goes on, by its ticket.
    pub is_resumed: bool,
    /// The peers have agreed on a protocol (ALPN): on `http/1.1`, unless it is HTTP/2.
    pub has_protocol: bool,
    /// The protocol is HTTP/2 (`h2`).
    pub is_http2: bool,
    /// The name that the client has asked for (SNI), if it is kept.
    pub server_name: Option<&'s str>,
}

/// The reason why a handshake of TLS has ended without a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HandshakeFailure {
    /// The client does not speak TLS.
    NotTls,
    /// Client and server have no version, suite, group or application protocol in common.
    Incompatible,
    /// The client has refused, by an alert.
    Alert,
    /// The client shows no certificate, or one that is refused.
    Certificate,
    /// The client does not follow the protocol.
    Protocol,
    /// The client has closed the connection.
    Closed,
    /// The connection has failed: by a reset, for one.
    Reset,
    /// The client has taken too long.
    Late,
    /// The oldest handshake has given way to another one, as too many were in progress.
    Displaced,
    /// The fault is the server's.
    Internal,
}

/// The reason for which a connection to a server has failed, with its causes, in words.
///
/// Shape: for errors of [`Stream::handshake`](crate::Stream::handshake) and of streams under TLS.
///
/// ```
/// use dwell_evloop::server_fault;
/// use std::io::{Error, ErrorKind};
///
/// let error = Error::from(ErrorKind::UnexpectedEof);
/// assert_eq!(&*server_fault(&error), "connection closed by the server");
/// let error = Error::other(Error::other("record cannot be decrypted"));
/// assert_eq!(&*server_fault(&error), "record cannot be decrypted");
/// ```
pub fn server_fault(error: &io::Error) -> Box<str> {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return "connection closed by the server".into();
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text.into()
}
