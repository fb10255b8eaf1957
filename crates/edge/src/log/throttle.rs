//! Limits the rate of events that may be frequent.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time after an event in which no further one is logged.
const PAUSE: Duration = Duration::from_secs(10);

/// Counts events of one kind: the first is logged, then at most one in ten seconds.
///
/// Shape: for rare events and rejections, as it takes a lock.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<ThrottleState>);

#[derive(Debug, Default)]
struct ThrottleState {
    told_at: Option<Instant>,
    untold: u64,
}

impl LogThrottle {
    /// Notes one event. If it is to be logged, returns the number of events since the last one
    /// logged.
    pub(crate) fn note(&self, now: Instant) -> Option<u64> {
        self.note_many(now, 1)
    }

    /// Notes several events at once.
    pub(crate) fn note_many(&self, now: Instant, count: u64) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.untold += count;
        let told_at = state.told_at;
        if state.untold == 0 || told_at.is_some_and(|at| now.saturating_duration_since(at) < PAUSE)
        {
            return None;
        }
        state.told_at = Some(now);
        Some(std::mem::take(&mut state.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_and_then_how_many_came_since() {
        let (seldom, start) = (LogThrottle::default(), Instant::now());
        assert_eq!(seldom.note(start), Some(1));
        for _ in 0..500 {
            assert_eq!(seldom.note(start + PAUSE / 2), None);
        }
        assert_eq!(seldom.note(start + PAUSE), Some(501));
        assert_eq!(seldom.note(start + PAUSE), None);
        assert_eq!(seldom.note_many(start + PAUSE * 3, 0), Some(1));
        assert_eq!(seldom.note_many(start + PAUSE * 6, 0), None);
    }
}
