//! The handshakes with a server, across its connections.

use std::io;

use dwell_evloop::{HandshakeCounts, HandshakeFailure, Handshaking, server_fault};

use super::Failure;

/// The ends of the handshakes with one server.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// The reason for which the last one failed, if it did.
    error: Option<Box<str>>,
    /// The ends since the counts were taken last.
    counts: HandshakeCounts,
}

impl Handshakes {
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    pub(crate) fn take_counts(&mut self) -> HandshakeCounts {
        std::mem::take(&mut self.counts)
    }

    /// Enters a step; returns true if the connection can be used.
    ///
    /// # Errors
    /// [`Failure::Handshake`] if it has failed.
    pub(crate) fn enter(&mut self, step: io::Result<Handshaking>) -> Result<bool, Failure> {
        match step {
            Ok(Handshaking::Pending) => return Ok(false),
            Ok(Handshaking::Agreed(_)) => self.counts.add(None),
            Ok(_) => {}
            Err(error) => {
                self.counts.add(Some(HandshakeFailure::of(&error)));
                self.error = Some(server_fault(&error));
                return Err(Failure::Handshake);
            }
        }
        self.error = None;
        Ok(true)
    }

    /// Enters one that has ended in another way, if one was under way.
    pub(crate) fn broken_off(&mut self, failure: Option<HandshakeFailure>) {
        if failure.is_some() {
            self.counts.add(failure);
        }
    }
}
