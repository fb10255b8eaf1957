//! The latest time at which a server ends.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Deadline of a server that ends: a state and not a message, so that no inbox can be too full.
#[derive(Debug, Default)]
pub(super) struct Ending(Mutex<Option<Instant>>);

/// Stands for a deadline that no clock can count to. Units: seconds, some 136 years.
const FAR: Duration = Duration::from_secs(1 << 32);

impl Ending {
    /// Ends the server within `timeout` of `now`; of several deadlines the first counts.
    pub(super) fn set(&self, now: Instant, timeout: Duration) {
        let new = now.checked_add(timeout.min(FAR)).unwrap_or(now);
        let mut deadline = self.lock();
        *deadline = Some(deadline.map_or(new, |set| set.min(new)));
    }

    /// The latest time at which it ends, if it does.
    pub(super) fn deadline(&self) -> Option<Instant> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        // Replaced in one step, so what a panicking thread leaves is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_deadlines_counts() {
        let (ending, now) = (Ending::default(), Instant::now());
        assert_eq!(ending.deadline(), None);
        ending.set(now, Duration::MAX);
        assert_eq!(ending.deadline(), Some(now + FAR));
        ending.set(now, Duration::from_secs(5));
        ending.set(now, Duration::from_secs(60));
        assert_eq!(ending.deadline(), Some(now + Duration::from_secs(5)));
    }
}
