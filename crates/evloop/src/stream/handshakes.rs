//! Counts of handshakes, and the last failure.

use super::{HandshakeFailure, Handshaking, server_fault};
use std::io;

/// Handshakes with servers by how they have ended.
///
/// ```
/// use dwell_evloop::{HandshakeCounts, HandshakeFailure};
///
/// let mut counts = HandshakeCounts::default();
/// counts.add(None);
/// counts.add(Some(HandshakeFailure::Late));
/// counts.add(Some(HandshakeFailure::Late));
/// let late = (HandshakeFailure::Late, 2);
/// assert_eq!((counts.done(), counts.failed().collect()), (1, vec![late]));
/// let mut sum = counts.clone();
/// sum.append(counts);
/// assert_eq!((sum.done(), sum.failed().next()), (2, Some((HandshakeFailure::Late, 4))));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandshakeCounts {
    done: u64,
    /// An entry for each failure that there was.
    failed: Vec<(HandshakeFailure, u64)>,
}

impl HandshakeCounts {
    /// Counts one that has failed for this reason, or is done.
    pub fn add(&mut self, failure: Option<HandshakeFailure>) {
        match failure {
            None => self.done += 1,
            Some(failure) => self.add_failed(failure, 1),
        }
    }

    /// The handshakes that are done.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// The reasons of those that have failed, each once, with their numbers.
    pub fn failed(&self) -> impl Iterator<Item = (HandshakeFailure, u64)> {
        self.failed.iter().copied()
    }

    /// Adds other counts.
    pub fn append(&mut self, other: Self) {
        self.done += other.done;
        for (failure, count) in other.failed {
            self.add_failed(failure, count);
        }
    }

    fn add_failed(&mut self, failure: HandshakeFailure, count: u64) {
        match self.failed.iter_mut().find(|(of, _)| *of == failure) {
            Some((_, counted)) => *counted += count,
            None => self.failed.push((failure, count)),
        }
    }
}

/// The ends of the handshakes with one server, across its connections.
///
/// ```
/// use dwell_evloop::{HandshakeFailure, Handshakes, Handshaking};
///
/// let mut handshakes = Handshakes::default();
/// assert_eq!(handshakes.enter(Ok(Handshaking::Pending)), Ok(false));
/// let late = handshakes.broken_off(Some(HandshakeFailure::Late));
/// assert_eq!((late, handshakes.error()), (true, Some("no end of the handshake in time")));
/// assert_eq!(handshakes.enter(Ok(Handshaking::Done)), Ok(true));
/// assert_eq!(handshakes.error(), None);
/// assert_eq!(handshakes.take_counts().failed().next(), Some((HandshakeFailure::Late, 1)));
/// ```
#[derive(Debug, Default)]
pub struct Handshakes {
    /// The reason for which the last one failed, if it did.
    error: Option<Box<str>>,
    /// The ends since the counts were taken last.
    counts: HandshakeCounts,
}

impl Handshakes {
    /// The reason for which the last one failed, if it did.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Takes the counts since the last call.
    pub fn take_counts(&mut self) -> HandshakeCounts {
        std::mem::take(&mut self.counts)
    }

    /// Enters a step; returns true if the connection can be used.
    ///
    /// # Errors
    /// The reason if the handshake has failed.
    pub fn enter(&mut self, step: io::Result<Handshaking>) -> Result<bool, HandshakeFailure> {
        match step {
            Ok(Handshaking::Pending) => return Ok(false),
            Ok(Handshaking::Agreed(_)) => self.counts.add(None),
            Ok(_) => {}
            Err(error) => {
                let failure = HandshakeFailure::of(&error);
                self.counts.add(Some(failure));
                self.error = Some(server_fault(&error));
                return Err(failure);
            }
        }
        self.error = None;
        Ok(true)
    }

    /// Enters one that has ended in another way; returns true if one was in progress.
    pub fn broken_off(&mut self, failure: Option<HandshakeFailure>) -> bool {
        if failure.is_some() {
            self.counts.add(failure);
            self.error = Some(match failure {
                Some(HandshakeFailure::Late) => "no end of the handshake in time".into(),
                _ => "connection reset by the server".into(),
            });
        }
        failure.is_some()
    }
}
