//! Results of operations.

use std::fmt;

use dwell_proto::memcache::{Flags, MetaStatus};

use crate::StoreOutcome;

/// The end of one operation. Every operation that was taken ends exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// The tag that the caller gave with the operation.
    pub tag: u64,
    /// The index of the server it was sent to, or would have been.
    pub server: usize,
    /// Connections made to that server so far. Cas uniques of different epochs cannot be compared:
    /// a server that restarts counts from 1 again.
    pub epoch: u64,
    /// The outcome.
    pub outcome: Outcome<'a>,
}

/// The version of an item: its cas unique, and the connection on which the server told it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Version {
    /// The epoch of the completion.
    pub epoch: u64,
    /// The cas unique of its hit.
    pub cas_unique: u64,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// `get` found the key.
    Hit {
        /// The value, borrowed from the input buffer of the loop: copy what outlives the callback.
        value: &'a [u8],
        /// The client flags stored with it.
        flags: u32,
        /// Its cas unique, which every change of the item changes; 0 if the server keeps none.
        cas_unique: u64,
    },
    /// `version` found the key.
    Version {
        /// Its cas unique.
        cas_unique: u64,
    },
    /// Any other operation was answered, and not with a miss.
    Answer(Answer<'a>),
    /// The server does not have the key.
    Miss,
    /// The server gave no result.
    Failed(Failure),
}

/// The answer to an operation that is neither `get` nor `version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer<'a> {
    /// The outcome of a store.
    Stored(StoreOutcome),
    /// The item is deleted.
    Deleted,
    /// The item has its new exptime.
    Touched,
    /// The item's new number.
    Number(u64),
    /// The answer to a meta command, which carried the command's opaque.
    Meta {
        /// Its code.
        status: MetaStatus,
        /// Its flags, borrowed from the input buffer of the loop.
        flags: Flags<'a>,
        /// Its data, borrowed likewise.
        value: Option<&'a [u8]>,
    },
}

/// Reasons why a server gave no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// Nothing was sent: the server is not connected, or failed too often and has not answered a
    /// probe yet.
    Unavailable,
    /// The connection could not be made.
    Connect,
    /// The handshake of TLS failed.
    Handshake,
    /// The answer did not come in time.
    Timeout,
    /// The connection ended before the answer.
    Closed,
    /// The reply is malformed, or is not the one to the request.
    Protocol,
    /// The server holds as many connections as it may.
    TooManyConnections,
    /// The server answered with an error line.
    ErrorLine,
    /// The server does not support the meta commands; later operations use others.
    Unsupported,
    /// Nothing was sent: the version that the operation compares is of another connection, so it
    /// may be of another server, or of the time before a restart.
    Reconnected,
}

impl Failure {
    /// The failure in one word, as for a label of a metric.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Connect => "connect",
            Self::Handshake => "handshake",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::TooManyConnections => "too_many_connections",
            Self::ErrorLine => "error_line",
            Self::Unsupported => "unsupported",
            Self::Reconnected => "reconnected",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "server is not available",
            Self::Connect => "connection refused or not made in time",
            Self::Handshake => "no TLS handshake",
            Self::Timeout => "no answer in time",
            Self::Closed => "connection closed before the answer",
            Self::Protocol => "malformed or unexpected reply",
            Self::TooManyConnections => "server has too many open connections",
            Self::ErrorLine => "server answered with an error",
            Self::Unsupported => "server does not support the meta commands",
            Self::Reconnected => "version of the item is of another connection",
        })
    }
}

impl std::error::Error for Failure {}
