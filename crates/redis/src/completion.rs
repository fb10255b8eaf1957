//! Results of operations.

use std::fmt;

/// The end of an operation, or the value of a key that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// The tag that the caller gave with the operation, or with the wait.
    pub tag: u64,
    /// The outcome.
    pub outcome: Outcome<'a>,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The key has this value, borrowed from the input of the loop: copy what outlives a callback.
    Value(&'a [u8]),
    /// The key has no value that can be read: none at all, or one that is no string.
    Missing,
    /// The write is done.
    Done,
    /// The condition of the write is not met, or there was nothing to delete.
    Unmet,
    /// The server gave no result.
    Failed(Failure),
}

impl Outcome<'_> {
    pub(crate) fn failure(&self) -> Option<Failure> {
        match self {
            Self::Failed(failure) => Some(*failure),
            _ => None,
        }
    }
}

/// Reasons why a server gave no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// Nothing was sent: the server is not connected, or failed too often in a row.
    Unavailable,
    /// The connection could not be made.
    Connect,
    /// The handshake of TLS failed.
    Handshake,
    /// The server refuses the user, the password or the database.
    Refused,
    /// The reply did not come in time.
    Timeout,
    /// The connection ended before the reply.
    Closed,
    /// The reply is malformed, or not one to the command.
    Protocol,
    /// The server replied with another error than the following.
    ErrorReply,
    /// The server can do it only later: it loads its data, runs a script, or lacks its replicas.
    NotReady,
    /// No server of the cluster has the key.
    Unserved,
    /// The server has no memory left for a write.
    Full,
    /// The server is a replica, or has become one.
    ReadOnly,
    /// The server's ACL does not allow the command or the key.
    Denied,
    /// The value is larger than the limit.
    TooLarge,
}

impl Failure {
    /// The failure that an error reply is.
    pub(crate) fn of_error(text: &[u8]) -> Self {
        if text.starts_with(b"CLUSTERDOWN Hash slot not served") {
            return Self::Unserved;
        }
        match text.split(|byte| *byte == b' ').next().unwrap_or_default() {
            b"LOADING" | b"BUSY" | b"MASTERDOWN" | b"CLUSTERDOWN" | b"TRYAGAIN" | b"NOREPLICAS"
            | b"MISCONF" => Self::NotReady,
            b"OOM" => Self::Full,
            b"READONLY" => Self::ReadOnly,
            b"NOPERM" => Self::Denied,
            _ => Self::ErrorReply,
        }
    }

    /// Returns true if the server refuses every read now, and will not do so later.
    pub(crate) fn is_of_all_reads(self) -> bool {
        self == Self::NotReady
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "server is not available",
            Self::Connect => "connection refused or not made in time",
            Self::Handshake => "no TLS handshake",
            Self::Refused => "server refuses the connection",
            Self::Timeout => "no reply in time",
            Self::Closed => "connection closed before the reply",
            Self::Protocol => "malformed or unexpected reply",
            Self::ErrorReply => "server replied with an error",
            Self::NotReady => "server is not ready",
            Self::Unserved => "no server of the cluster has the key",
            Self::Full => "server has no memory left",
            Self::ReadOnly => "server is a replica",
            Self::Denied => "server does not allow it",
            Self::TooLarge => "value exceeds the limit",
        })
    }
}

impl std::error::Error for Failure {}

/// Reasons why an operation was not taken; it has no completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The limit of operations without a reply is reached.
    TooManyOperations {
        /// [`ClientOptions::operations_max`](crate::ClientOptions::operations_max).
        limit: usize,
    },
    /// The limit of bytes of requests that were not sent is reached.
    TooManyRequestBytes {
        /// [`ClientOptions::request_bytes_max`](crate::ClientOptions::request_bytes_max).
        limit: usize,
        /// The sum that this operation would have made.
        length: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyOperations { limit } => {
                write!(f, "operations without a reply exceed {limit}")
            }
            Self::TooManyRequestBytes { limit, length } => {
                write!(
                    f,
                    "requests that were not sent exceed {limit} bytes: {length}"
                )
            }
        }
    }
}

impl std::error::Error for Error {}
