//! The latest time at which a server ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The end of a server, which its loops look for when a turn ends.
///
/// Shape: a state and not a message, so that no inbox can be too full for it.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// There is a deadline; all that a turn of a server looks at which does not end.
    is_near: AtomicBool,
    deadline: Mutex<Option<Instant>>,
}

/// Stands for a deadline that no clock can count to. Units: seconds, some 136 years.
const FAR: Duration = Duration::from_secs(1 << 32);

impl Ending {
    /// Ends the server within `timeout` of `now`; of several deadlines the first counts.
    pub(super) fn set(&self, now: Instant, timeout: Duration) {
        let new = now.checked_add(timeout.min(FAR)).unwrap_or(now);
        let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        *deadline = Some(deadline.map_or(new, |set| set.min(new)));
        self.is_near.store(true, Ordering::SeqCst);
    }

    /// True from when a deadline is set.
    pub(super) fn is_near(&self) -> bool {
        self.is_near.load(Ordering::SeqCst)
    }

    /// The latest time at which it ends, if it does.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if !self.is_near() {
            return None;
        }
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
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
