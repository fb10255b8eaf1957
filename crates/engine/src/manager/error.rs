//! Errors of calls, each for one cause.

use crate::WriteError;
use crate::websocket::Rejection;
use dwell_proto::sse::SseError;
use std::fmt;
use std::io;

/// Errors of a [`Manager`](super::Manager).
#[derive(Debug)]
#[non_exhaustive]
pub enum ManagerError {
    /// It was closed.
    Closed,
    /// The URL cannot be used.
    Url {
        /// The URL as given.
        url: String,
        /// The error in it.
        fault: UrlError,
    },
    /// The system does not let us listen there.
    Listen {
        /// The URL as given.
        url: String,
        /// The error of the system.
        cause: io::Error,
    },
    /// The system does not let us connect there.
    Connect {
        /// The URL as given.
        url: String,
        /// The error of the system.
        cause: io::Error,
    },
    /// The certificates that the system trusts cannot be read.
    #[cfg(feature = "tls")]
    Tls(crate::tls::TlsError),
    /// The loop itself failed; the manager is of no more use.
    Loop(io::Error),
}

impl fmt::Display for ManagerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => out.write_str("manager is closed"),
            Self::Url { url, .. } => write!(out, "unusable url '{url}'"),
            Self::Listen { url, .. } => write!(out, "failed to listen on '{url}'"),
            Self::Connect { url, .. } => write!(out, "failed to connect to '{url}'"),
            #[cfg(feature = "tls")]
            Self::Tls(_) => out.write_str("unusable certificates"),
            Self::Loop(_) => out.write_str("event loop failed"),
        }
    }
}

impl std::error::Error for ManagerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Closed => None,
            Self::Url { fault, .. } => Some(fault),
            #[cfg(feature = "tls")]
            Self::Tls(error) => Some(error),
            Self::Listen { cause, .. } | Self::Connect { cause, .. } | Self::Loop(cause) => {
                Some(cause)
            }
        }
    }
}

/// An error in a URL.
///
/// ```
/// use dwell_engine::manager::{Manager, ManagerError, UrlError};
///
/// let mut manager = Manager::new(|_, _| {})?;
/// let error = manager.listen("http://127.0.0.1:99999").expect_err("there is no such port");
/// let ManagerError::Url { fault, .. } = error else { unreachable!() };
/// assert_eq!(fault, UrlError::Port("99999".into()));
/// # Ok::<(), ManagerError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UrlError {
    /// It does not begin with `http`, `https`, `ws`, `wss`, `tcp`, `tls`, `unix` or `http+unix`,
    /// and `://`.
    Scheme,
    /// Its scheme has TLS, for which there are no certificates, or which this build does not have.
    Tls,
    /// Its scheme has no TLS, for which certificates were given; or it is `tls`, of a listener.
    Plain,
    /// Its host is neither a name nor an address.
    Host,
    /// Its scheme has no default port, and it names none.
    PortMissing,
    /// Its port is no number from 0 to 65535.
    Port(String),
    /// It names no absolute path for a unix socket.
    Path,
    /// Its host name has no address.
    Name,
}

impl fmt::Display for UrlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => {
                out.write_str("scheme is none of http, https, ws, wss, tcp, tls, unix, http+unix")
            }
            Self::Tls => out.write_str("a scheme with tls needs certificates"),
            Self::Plain => out.write_str("scheme is neither https nor wss, nor tls to connect"),
            Self::Host => out.write_str("malformed host"),
            Self::PortMissing => out.write_str("missing port"),
            Self::Port(port) => write!(out, "port is not a number from 0 to 65535: '{port}'"),
            Self::Path => out.write_str("missing absolute path of a unix socket"),
            Self::Name => out.write_str("host name has no address"),
        }
    }
}

impl std::error::Error for UrlError {}

/// Reasons why an operation on a [`Conn`](super::Conn) was refused; no part of it was done.
///
/// ```
/// use dwell_engine::manager::{ConnError, Manager};
///
/// let mut manager = Manager::new(|_, _| {})?;
/// let listener = manager.listen("http://127.0.0.1:0")?;
/// let mut conn = manager.conn(listener).expect("it listens");
/// assert_eq!(conn.send(b"hello"), Err(ConnError::Protocol));
/// # Ok::<(), dwell_engine::manager::ManagerError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnError {
    /// The connection is closed, or about to be.
    Closed,
    /// The connection does not speak the protocol of the operation.
    Protocol,
    /// No request waits for a response.
    NoRequest,
    /// The request has its answer already.
    Answered,
    /// No streaming answer is open.
    NotOpen,
    /// The queue of output is full; [`Event::Drained`](super::Event::Drained) comes when there is
    /// room.
    Full {
        /// The most bytes that may wait.
        limit: usize,
    },
    /// A piece goes beyond the announced length of the answer.
    TooLong {
        /// The rest of the announced length.
        limit: u64,
        /// The size of the piece.
        length: u64,
    },
    /// The status is not from 200 to 599, or 101.
    Status(u16),
    /// A field name is not a token (RFC 9110 section 5.6.2).
    FieldName(String),
    /// The value of this field has a carriage return, a line feed or a NUL in it.
    FieldValue(String),
    /// The event stream format cannot carry this event.
    Event(SseError),
    /// The WebSocket handshake was refused, and answered so.
    Upgrade(Rejection),
    /// The method or the target of a request has white space or a control byte in it.
    RequestLine,
}

impl fmt::Display for ConnError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => out.write_str("connection is closed"),
            Self::Protocol => out.write_str("connection speaks another protocol"),
            Self::NoRequest => out.write_str("no request waits for an answer"),
            Self::Answered => out.write_str("request has its answer already"),
            Self::NotOpen => out.write_str("no streaming answer is open"),
            Self::Full { limit } => write!(out, "queued output exceeds {limit} bytes"),
            Self::TooLong { limit, length } => {
                write!(
                    out,
                    "piece exceeds {limit} bytes left of the announced length: {length}"
                )
            }
            Self::Status(status) => write!(out, "status is not from 200 to 599: {status}"),
            Self::FieldName(name) => {
                write!(
                    out,
                    "illegal character in field name: {}",
                    name.escape_debug()
                )
            }
            Self::FieldValue(name) => {
                write!(out, "illegal character in the value of field {name}")
            }
            Self::Event(fault) => fault.fmt(out),
            Self::Upgrade(rejection) => rejection.fmt(out),
            Self::RequestLine => out.write_str("illegal character in method or target"),
        }
    }
}

impl std::error::Error for ConnError {}

impl From<WriteError> for ConnError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Full { limit, .. } => Self::Full { limit },
            WriteError::TooLong { limit, length } => Self::TooLong { limit, length },
            _ => Self::NotOpen,
        }
    }
}

/// Reasons why a wake-up was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WakeupError {
    /// The manager is closed or gone.
    Closed,
    /// More than a million wake-ups wait to be delivered; this one was not added.
    Full,
}

impl fmt::Display for WakeupError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => out.write_str("manager is closed"),
            Self::Full => write!(
                out,
                "{} wake-ups wait already",
                dwell_evloop::INBOX_CAPACITY
            ),
        }
    }
}

impl std::error::Error for WakeupError {}
