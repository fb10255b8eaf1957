//! Faults of a connection, before server and operation are added.

use std::error::Error;
use std::io;
use std::sync::Arc;

use dwell_proto::memcache::{ErrorKind, PeerError, Reply};

use super::budget::Elapsed;

/// A fault of a connection.
#[cfg_attr(
    not(feature = "tls"),
    expect(dead_code, reason = "some faults are those of TLS")
)]
#[derive(Debug)]
pub(crate) enum Fault {
    /// The time was over.
    Timeout,
    /// The host's name has no address, or the lookup failed.
    Resolve(String),
    /// The connection could not be made.
    Connect(io::Error),
    /// The certificate of the server is refused.
    Certificate { host: Arc<str>, reason: String },
    /// The handshake of TLS failed, or a record did.
    Tls(Box<dyn Error + Send + Sync>),
    /// The peer ended the connection.
    Closed,
    /// Bytes that are no reply.
    Malformed(PeerError),
    /// A reply that does not fit the request.
    Unexpected(String),
    /// An error line.
    ErrorLine {
        kind: ErrorKind,
        text: String,
        /// True if the connection is still in step.
        in_step: bool,
    },
    /// The server has as many connections as it may.
    TooManyConnections,
    /// The server is left alone.
    Unavailable,
    /// The system refused.
    Io(io::Error),
}

impl Fault {
    pub(crate) fn system(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }

    /// Returns the fault for a reply that no operation expects in this place.
    ///
    /// `in_step` says whether, after an error line, the next reply will be to the next request.
    pub(crate) fn of_reply(reply: &Reply<'_>, in_step: bool) -> Self {
        if reply.is_connection_refused() {
            return Self::TooManyConnections;
        }
        match reply {
            Reply::Error { kind, text } => Self::ErrorLine {
                kind: *kind,
                text: text.escape_ascii().to_string(),
                in_step,
            },
            other => {
                let mut shown = format!("{other:?}");
                if let Some((end, _)) = shown.char_indices().nth(SHOWN_CHARACTERS_MAX) {
                    shown.truncate(end);
                }
                Self::Unexpected(shown)
            }
        }
    }

    /// Returns true if the connection may be used again.
    pub(crate) const fn is_in_step(&self) -> bool {
        matches!(self, Self::ErrorLine { in_step: true, .. })
    }

    /// Returns true if the server is at fault, and not the request.
    pub(crate) const fn is_server_down(&self) -> bool {
        !matches!(
            self,
            Self::ErrorLine { .. } | Self::Unavailable | Self::Io(_)
        )
    }
}

impl From<Elapsed> for Fault {
    fn from(_: Elapsed) -> Self {
        Self::Timeout
    }
}

impl From<PeerError> for Fault {
    fn from(error: PeerError) -> Self {
        Self::Malformed(error)
    }
}

/// Characters shown of an unexpected reply.
const SHOWN_CHARACTERS_MAX: usize = 80;
