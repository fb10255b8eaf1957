//! Errors of operations.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use dwell_proto::memcache::{ErrorKind, KeyError, PeerError};

use super::fault::Fault;
use crate::AddressError;

/// Reasons why an operation has no result, or a client was not made.
///
/// A key that the server does not have is not an error, and no error is ever shown as such a miss.
/// [`Error::fault`] returns the side at fault, [`Error::place`] the server and operation, and
/// [`Error::is_ambiguous`] whether the server may have carried out the request nevertheless.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The key cannot be sent.
    Key(KeyError),
    /// The value is larger than the client may send.
    ValueTooLarge {
        /// [`ClientOptions::value_bytes_max`](super::ClientOptions::value_bytes_max).
        limit: usize,
        /// The length of the value.
        length: usize,
    },
    /// A value could not be encoded for the server, or one of the server's not be decoded.
    Codec(Box<dyn std::error::Error + Send + Sync>),
    /// A server's address could not be read.
    Address(AddressError),
    /// A client needs a server.
    NoServers,
    /// A server of weight 0 would never be used.
    ZeroWeight {
        /// Its index.
        server: usize,
    },
    /// An option that must not be 0 is.
    ZeroOption {
        /// Its name.
        name: &'static str,
    },
    /// The certificate of no server can be for this name.
    ServerName {
        /// The name, or the host of the server.
        name: String,
    },
    /// A raw command or its end token is empty.
    EmptyCommand,
    /// The time was over.
    Timeout {
        /// The place.
        place: Box<Place>,
        /// True if any byte of the request was sent: then the operation may have happened.
        written: bool,
    },
    /// The host's name could not be looked up.
    Resolve {
        /// The place.
        place: Box<Place>,
        /// The reason given by the system.
        reason: String,
    },
    /// The connection could not be made.
    Connect {
        /// The place.
        place: Box<Place>,
        /// The error of the system.
        error: io::Error,
    },
    /// The certificate of the server is refused. Nothing was sent.
    Certificate {
        /// The place.
        place: Box<Place>,
        /// The name that the certificate has to be for.
        host: Arc<str>,
        /// The reason in words.
        reason: String,
    },
    /// The handshake of TLS failed, or a record of the server cannot be decrypted.
    Tls {
        /// The place.
        place: Box<Place>,
        /// True if any byte of the request was sent: then the operation may have happened.
        written: bool,
        /// The fault.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server ended the connection before its answer.
    Closed {
        /// The place.
        place: Box<Place>,
        /// True if any byte of the request was sent: then the operation may have happened.
        written: bool,
    },
    /// The server sent bytes that are no reply.
    Malformed {
        /// The place.
        place: Box<Place>,
        /// The error in them.
        error: PeerError,
    },
    /// The server sent a reply that does not fit the request.
    Unexpected {
        /// The place.
        place: Box<Place>,
        /// The reply, cut short.
        reply: String,
    },
    /// The server answered with an error line.
    ErrorLine {
        /// The place.
        place: Box<Place>,
        /// The side at fault, as the server reports it.
        kind: ErrorKind,
        /// The text of the server.
        text: String,
    },
    /// The server has as many connections as it may.
    TooManyConnections {
        /// The place.
        place: Box<Place>,
    },
    /// The server is ejected: it failed too often in a row, and nothing was sent.
    Unavailable {
        /// The place.
        place: Box<Place>,
    },
    /// The system refused.
    System {
        /// The place.
        place: Box<Place>,
        /// The error of the system.
        error: io::Error,
    },
}

/// The side at fault for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Culprit {
    /// The server, or what lies between.
    Peer,
    /// The calling program.
    Caller,
    /// This machine.
    System,
}

/// The place of an error: server, operation and time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The server's address, as it was given.
    pub server: Arc<str>,
    /// The operation: `get`, `set` and so on.
    pub operation: &'static str,
    /// The time that it had taken.
    pub elapsed: Duration,
    /// The time that it was allowed; `None` for no limit.
    pub limit: Option<Duration>,
}

impl Error {
    /// Returns the side at fault.
    pub const fn fault(&self) -> Culprit {
        match self {
            Self::Key(_)
            | Self::ValueTooLarge { .. }
            | Self::Codec(_)
            | Self::Address(_)
            | Self::NoServers
            | Self::ZeroWeight { .. }
            | Self::ZeroOption { .. }
            | Self::ServerName { .. }
            | Self::EmptyCommand
            | Self::ErrorLine {
                kind: ErrorKind::ClientError | ErrorKind::Error,
                ..
            } => Culprit::Caller,
            Self::System { .. } | Self::Resolve { .. } => Culprit::System,
            _ => Culprit::Peer,
        }
    }

    /// Returns the place; `None` if no server had a part in it.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::Timeout { place, .. }
            | Self::Resolve { place, .. }
            | Self::Connect { place, .. }
            | Self::Certificate { place, .. }
            | Self::Tls { place, .. }
            | Self::Closed { place, .. }
            | Self::Malformed { place, .. }
            | Self::Unexpected { place, .. }
            | Self::ErrorLine { place, .. }
            | Self::TooManyConnections { place }
            | Self::Unavailable { place }
            | Self::System { place, .. } => Some(place),
            _ => None,
        }
    }

    /// Returns true if the server may have carried out the request nevertheless.
    pub const fn is_ambiguous(&self) -> bool {
        match self {
            Self::Timeout { written, .. }
            | Self::Closed { written, .. }
            | Self::Tls { written, .. } => *written,
            Self::Malformed { .. } | Self::Unexpected { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn new(fault: Fault, place: Place, written: bool) -> Self {
        let place = Box::new(place);
        match fault {
            Fault::Timeout => Self::Timeout { place, written },
            Fault::Resolve(reason) => Self::Resolve { place, reason },
            Fault::Connect(error) => Self::Connect { place, error },
            Fault::Certificate { host, reason } => Self::Certificate {
                place,
                host,
                reason,
            },
            Fault::Tls(error) => Self::Tls {
                place,
                written,
                error,
            },
            Fault::Closed => Self::Closed { place, written },
            Fault::Malformed(error) => Self::Malformed { place, error },
            Fault::Unexpected(reply) => Self::Unexpected { place, reply },
            Fault::ErrorLine { kind, text, .. } => Self::ErrorLine { place, kind, text },
            Fault::TooManyConnections => Self::TooManyConnections { place },
            Fault::Unavailable => Self::Unavailable { place },
            Fault::Io(error) => Self::System { place, error },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place() {
            write!(f, "{place}: ")?;
        }
        match self {
            Self::Key(_) => f.write_str("key cannot be sent"),
            Self::ValueTooLarge { limit, length } => {
                write!(f, "value exceeds {limit} bytes: {length}")
            }
            Self::Codec(_) => f.write_str("value cannot be encoded or decoded"),
            Self::Address(error) => error.fmt(f),
            Self::NoServers => f.write_str("no memcached server is given"),
            Self::ZeroWeight { server } => write!(f, "weight of server {server} is 0"),
            Self::ZeroOption { name } => write!(f, "{name} is 0"),
            Self::ServerName { name } => {
                write!(
                    f,
                    "server name is neither a host name nor an address: {name}"
                )
            }
            Self::EmptyCommand => f.write_str("command or end token is empty"),
            Self::Timeout { written: true, .. } => f.write_str("no answer in time"),
            Self::Timeout { written: false, .. } => f.write_str("could not be asked in time"),
            Self::Resolve { reason, .. } => write!(f, "name cannot be looked up: {reason}"),
            Self::Connect { .. } => f.write_str("connection cannot be made"),
            Self::Certificate { host, reason, .. } => {
                write!(f, "certificate of {host} is refused: {reason}")
            }
            Self::Tls { .. } => f.write_str("TLS failed"),
            Self::Closed { .. } => f.write_str("connection closed before the answer"),
            Self::Malformed { .. } => f.write_str("malformed reply"),
            Self::Unexpected { reply, .. } => write!(f, "reply to something else: {reply}"),
            Self::ErrorLine { kind, text, .. } => {
                let kind = match kind {
                    ErrorKind::Error => "ERROR",
                    ErrorKind::ClientError => "CLIENT_ERROR",
                    ErrorKind::ServerError => "SERVER_ERROR",
                };
                write!(f, "server answered {kind} {text}")
            }
            Self::TooManyConnections { .. } => f.write_str("server has too many open connections"),
            Self::Unavailable { .. } => f.write_str("server failed too often and is left alone"),
            Self::System { .. } => f.write_str("system call failed"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            server,
            operation,
            elapsed,
            limit,
        } = self;
        write!(f, "{operation} on {server}, {} ms", elapsed.as_millis())?;
        match limit {
            Some(limit) => write!(f, " of {} ms", limit.as_millis()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Key(error) => Some(error),
            Self::Codec(error) | Self::Tls { error, .. } => Some(&**error),
            Self::Connect { error, .. } | Self::System { error, .. } => Some(error),
            Self::Malformed { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

impl From<AddressError> for Error {
    fn from(error: AddressError) -> Self {
        Self::Address(error)
    }
}
