//! Counts of handshakes.

use super::HandshakeFailure;

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
