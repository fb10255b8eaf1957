//! Errors of a server that breaks the protocol.

use std::fmt;

/// A server that broke the protocol; its connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerError {
    /// The first line of a value is longer than [`Limits::line_bytes_max`](super::Limits).
    LineTooLong {
        /// The limit in bytes.
        limit: usize,
        /// Bytes seen so far.
        length: usize,
    },
    /// A message other than a single string exceeds
    /// [`Limits::aggregate_bytes_max`](super::Limits).
    AggregateTooLong {
        /// The limit in bytes.
        limit: usize,
        /// Its length as far as it is known.
        length: usize,
    },
    /// Values are nested deeper than [`Limits::depth_max`](super::Limits).
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// A string or aggregate of unknown length.
    Streamed {
        /// The byte that gives its type.
        kind: u8,
    },
    /// A push inside of another value.
    NestedPush,
    /// No value begins with this byte.
    UnknownType {
        /// The byte.
        byte: u8,
    },
    /// A value is malformed.
    Malformed {
        /// The part that is wrong.
        part: &'static str,
    },
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::LineTooLong { limit, length } => {
                write!(f, "line of a reply exceeds {limit} bytes: {length}")
            }
            Self::AggregateTooLong { limit, length } => {
                write!(f, "aggregate reply exceeds {limit} bytes: {length}")
            }
            Self::TooDeep { limit } => write!(f, "reply is nested deeper than {limit}"),
            Self::Streamed { kind } => {
                write!(f, "reply is streamed: {}?", char::from(kind))
            }
            Self::NestedPush => f.write_str("push inside of a reply"),
            Self::UnknownType { byte } => write!(f, "unknown type of reply: 0x{byte:02x}"),
            Self::Malformed { part } => write!(f, "malformed {part} of a reply"),
        }
    }
}

impl std::error::Error for PeerError {}
