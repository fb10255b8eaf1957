//! Failures of the application's servers, as the log has them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The log lines of all loops about the servers of one plan that fail: for each server one in a
/// second, and one when it answers again, whichever loop it answers.
///
/// Shape: a failure takes a lock, an answer loads one word.
#[derive(Debug, Default)]
pub struct FaultLog {
    counts: Mutex<Vec<FaultCount>>,
    /// A bit for each server whose last line is of a failure.
    failing: AtomicU64,
}

/// The failures of one server.
#[derive(Debug)]
struct FaultCount {
    /// Its place in the plan; `None` where no server was asked.
    place: Option<usize>,
    logged_at: Option<Instant>,
    /// Failures since the last line.
    count: u64,
}

/// A failure, as it is to be logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// The server; `None` where no server was asked.
    pub server: Option<SocketAddr>,
    /// Failures of this server since the last line; `None` where no line is due.
    pub count: Option<u64>,
}

impl FaultLog {
    /// Counts a failure of the server at this place of the plan, or of none that could be asked.
    /// Returns its failures since the last line if a line is due.
    pub(crate) fn failed(&self, now: Instant, place: Option<usize>) -> Option<u64> {
        // Each change is complete once it is made, so a panicking thread leaves it whole.
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let found = counts.iter().position(|faults| faults.place == place);
        let found = found.unwrap_or_else(|| {
            counts.push(FaultCount {
                place,
                logged_at: None,
                count: 0,
            });
            counts.len() - 1
        });
        let faults = &mut counts[found];
        faults.count += 1;
        let is_due = |at| now.saturating_duration_since(at) >= PAUSE;
        faults.logged_at.is_none_or(is_due).then(|| {
            faults.logged_at = Some(now);
            self.failing
                .fetch_or(place.map_or(0, bit), Ordering::Relaxed);
            std::mem::take(&mut faults.count)
        })
    }

    /// Returns true if the last line about the server at this place is of a failure.
    pub(crate) fn is_failing(&self, place: usize) -> bool {
        self.failing.load(Ordering::Relaxed) & bit(place) != 0
    }

    /// The last line about the server at this place was of a failure, by an earlier plan.
    pub(crate) fn set_failing(&self, place: usize) {
        self.failing.fetch_or(bit(place), Ordering::Relaxed);
    }

    /// Notes an answer of the server at this place; returns true if it is to be logged.
    pub(crate) fn answered(&self, place: usize) -> bool {
        let bit = bit(place);
        self.is_failing(place) && self.failing.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }
}

fn bit(place: usize) -> u64 {
    1 << place
}

/// Time after a line about a server in which there is no other about its failures.
const PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::super::UPSTREAMS_MAX;
    use super::*;

    #[test]
    fn each_server_has_a_line_a_second_with_the_failures_since() {
        let (log, start) = (FaultLog::default(), Instant::now());
        let failed = |after, place| log.failed(start + Duration::from_millis(after), place);
        assert_eq!(failed(0, Some(1)), Some(1));
        assert_eq!(failed(0, Some(2)), Some(1));
        assert_eq!(failed(0, None), Some(1));
        for after in 1..1000 {
            assert_eq!(failed(after, Some(1)), None);
        }
        assert_eq!(failed(1000, Some(1)), Some(1000));
        assert_eq!(failed(1500, Some(2)), Some(1));
    }

    #[test]
    fn an_answer_is_logged_once_after_a_failure_that_was() {
        let (log, start) = (FaultLog::default(), Instant::now());
        let (one, other) = (0, UPSTREAMS_MAX - 1);
        assert!(!log.answered(one));
        log.failed(start, Some(one));
        log.failed(start, None);
        assert!(!log.answered(other));
        assert!(log.answered(one));
        assert!(!log.answered(one));
        // This failure has no line, so its end has none.
        assert_eq!(log.failed(start, Some(one)), None);
        assert!(!log.answered(one));
    }
}
