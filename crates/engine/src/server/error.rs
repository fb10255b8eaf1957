//! Errors of starting a server.

use std::fmt;
use std::io;

/// Reasons why a server did not start; no request was served.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// No address was given.
    NoAddress,
    /// An address cannot be listened on.
    Listen {
        /// The address or the path.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// An option is too small.
    TooSmall {
        /// Its name.
        option: &'static str,
        /// The least it may be.
        limit: usize,
        /// The value that was given.
        value: usize,
    },
    /// The system has no descriptor, memory or thread for a loop.
    Loop(io::Error),
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("no address to listen on"),
            Self::Listen { address, source } => write!(f, "cannot listen on {address}: {source}"),
            Self::TooSmall {
                option,
                limit,
                value,
            } => write!(f, "{option} is less than {limit}: {value}"),
            Self::Loop(source) => write!(f, "cannot run an event loop: {source}"),
        }
    }
}

impl std::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { source, .. } | Self::Loop(source) => Some(source),
            Self::NoAddress | Self::TooSmall { .. } => None,
        }
    }
}
