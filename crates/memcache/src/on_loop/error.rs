//! Errors of the caller: invalid operations, and too many of them.

use std::fmt;

use dwell_proto::memcache::KeyError;

/// Reasons why an operation was not taken, or a client not made. Nothing has been changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The key cannot be sent.
    Key(KeyError),
    /// The limit of operations without a result is reached.
    TooManyOperations {
        /// [`ClientOptions::operations_max`](super::ClientOptions::operations_max).
        limit: usize,
    },
    /// The limit of bytes of requests without a result is reached.
    TooManyRequestBytes {
        /// [`ClientOptions::request_bytes_max`](super::ClientOptions::request_bytes_max).
        limit: usize,
        /// The sum that this operation would have made.
        length: usize,
    },
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
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(_) => f.write_str("key cannot be sent"),
            Self::TooManyOperations { limit } => {
                write!(f, "operations without an answer exceed {limit}")
            }
            Self::TooManyRequestBytes { limit, length } => {
                write!(
                    f,
                    "requests without an answer exceed {limit} bytes: {length}"
                )
            }
            Self::NoServers => f.write_str("no memcached server is given"),
            Self::ZeroWeight { server } => write!(f, "weight of server {server} is 0"),
            Self::ZeroOption { name } => write!(f, "{name} is 0"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Key(error) => Some(error),
            _ => None,
        }
    }
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}
