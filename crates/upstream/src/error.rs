//! Reasons for which the application gave no answer.

use std::time::Duration;
use std::{fmt, io};

use super::FaultReport;
use dwell_evloop::server_fault;
use dwell_proto::http1::{BodyError, HeadError};
use rustix::io::Errno;

/// The reason for which a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpstreamError {
    /// No connection could be made.
    Connect(io::ErrorKind),
    /// The handshake of TLS failed: the reason, with the name of the server.
    Handshake(Box<str>),
    /// The process has no descriptor left for a connection.
    Descriptors,
    /// No connection was made in time.
    ConnectTimeout(Duration),
    /// The head of the answer did not come in time.
    HeaderTimeout(Duration),
    /// The answer did not end in time.
    TotalTimeout(Duration),
    /// The answer, or the taking of the request's body, came to a halt.
    Stalled(Duration),
    /// All connections are busy, and so many requests wait that no more may.
    QueueFull {
        /// The most requests that may wait.
        limit: usize,
    },
    /// No server may be asked now: the health checks of all of them fail.
    Unavailable,
    /// All connections were busy for too long.
    QueueTimeout(Duration),
    /// The connection ended before the answer did.
    Closed,
    /// The connection failed.
    Broken(io::ErrorKind),
    /// The connection under TLS failed: the reason.
    Tls(Box<str>),
    /// The head of the answer is not valid.
    BadHead(HeadError),
    /// The body of the answer is not valid.
    BadBody(BodyError),
    /// There are too many interim answers before the final one.
    TooManyInterim {
        /// The most interim answers allowed.
        limit: u16,
    },
    /// The application switched to a protocol that it was not asked for.
    SwitchedProtocols,
}

/// The reason for which a request was not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// The reason.
    pub error: UpstreamError,
    /// The server that was chosen last, and whether its failure is to be logged.
    pub report: FaultReport,
}

impl fmt::Display for Unsent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(out)
    }
}

impl std::error::Error for Unsent {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl UpstreamError {
    /// The reason for which a connection could not be begun.
    pub(super) fn connect(error: &io::Error) -> Self {
        // Of the process, and of the system.
        match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE) => Self::Descriptors,
            _ => Self::Connect(error.kind()),
        }
    }

    /// The reason for which a handshake failed.
    pub(super) fn handshake(error: &io::Error) -> Self {
        Self::Handshake(server_fault(error))
    }

    /// The reason for which a connection failed.
    pub(super) fn broken(error: &io::Error) -> Self {
        match error.get_ref() {
            Some(_) => Self::Tls(server_fault(error)),
            None => Self::Broken(error.kind()),
        }
    }

    /// Returns true if the connection was lost, for whatever reason.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self, Self::Closed | Self::Broken(_) | Self::Tls(_))
    }

    /// The status that tells a client of it.
    ///
    /// Source: RFC 9110 sections 15.6.3 to 15.6.5.
    pub fn status(&self) -> u16 {
        match self {
            Self::HeaderTimeout(_) | Self::TotalTimeout(_) | Self::Stalled(_) => 504,
            Self::QueueFull { .. }
            | Self::QueueTimeout(_)
            | Self::Unavailable
            | Self::Descriptors => 503,
            _ => 502,
        }
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(kind) => write!(out, "cannot connect: {kind}"),
            Self::Handshake(reason) => write!(out, "no TLS handshake: {reason}"),
            Self::Descriptors => out.write_str("no descriptor is left for a connection"),
            Self::ConnectTimeout(after) => write!(out, "no connection within {after:?}"),
            Self::HeaderTimeout(after) => write!(out, "no answer within {after:?}"),
            Self::TotalTimeout(after) => write!(out, "no whole answer within {after:?}"),
            Self::Stalled(after) => write!(out, "nothing came or went for {after:?}"),
            Self::QueueFull { limit } => write!(out, "requests waiting exceed {limit}"),
            Self::Unavailable => out.write_str("no server answers"),
            Self::QueueTimeout(after) => write!(out, "no connection became free within {after:?}"),
            Self::Closed => out.write_str("connection closed before the end of the answer"),
            Self::Broken(kind) => write!(out, "connection failed: {kind}"),
            Self::Tls(reason) => write!(out, "connection failed: {reason}"),
            Self::BadHead(HeadError::HeadTooLong { limit, length }) => {
                write!(out, "answer head exceeds {limit} bytes: {length}")
            }
            Self::BadHead(HeadError::TooManyFields { limit }) => {
                write!(out, "answer has more than {limit} fields")
            }
            Self::BadHead(_) => out.write_str("malformed head of the answer"),
            Self::BadBody(_) => out.write_str("malformed body of the answer"),
            Self::TooManyInterim { limit } => write!(out, "interim answers exceed {limit}"),
            Self::SwitchedProtocols => out.write_str("unexpected switch of protocols"),
        }
    }
}

impl std::error::Error for UpstreamError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::BadHead(error) => Some(error),
            Self::BadBody(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_is_the_fault_of_no_server() {
        for errno in [Errno::MFILE, Errno::NFILE] {
            let error = UpstreamError::connect(&errno.into());
            assert_eq!((error.status(), error), (503, UpstreamError::Descriptors));
        }
        let refused = UpstreamError::connect(&Errno::CONNREFUSED.into());
        assert_eq!(refused.status(), 502);
    }
}
