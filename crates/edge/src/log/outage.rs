//! Events for a service that fails and recovers, limited in rate.

use super::LogThrottle;
use std::time::Instant;

/// The state of a service that many requests use, as it was logged last.
///
/// Shape: the first failure is logged, and the success after it. Then nothing is logged for a
/// while: if only some requests fail, failures and successes alternate as fast as clients send
/// requests.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    failures: LogThrottle,
    is_told: bool,
}

impl Outage {
    /// Notes a failure. If it is to be logged, returns the number of failures since the last one
    /// logged.
    pub(crate) fn failed(&mut self, now: Instant) -> Option<u64> {
        if self.is_told {
            return None;
        }
        let count = self.failures.note(now);
        self.is_told = count.is_some();
        count
    }

    /// Notes a success; returns true if it is to be logged.
    pub(crate) fn worked(&mut self) -> bool {
        std::mem::take(&mut self.is_told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_outage_has_one_line_at_its_beginning_and_one_at_its_end() {
        let (mut outage, now) = (Outage::default(), Instant::now());
        assert!(!outage.worked());
        assert_eq!(outage.failed(now), Some(1));
        for second in 0..1000 {
            assert_eq!(outage.failed(now + Duration::from_secs(second)), None);
        }
        assert!(outage.worked());
        assert!(!outage.worked());
    }

    #[test]
    fn failures_among_successes_are_told_once_in_a_while() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        let (mut lines, mut told) = (0, 0);
        for place in 0..60_000 {
            let failed = outage.failed(start + Duration::from_millis(place));
            told += failed.unwrap_or(0);
            lines += usize::from(failed.is_some()) + usize::from(outage.worked());
        }
        assert!((2..=20).contains(&lines), "{lines}");
        assert!(told > 40_000, "{told}");
    }

    #[test]
    fn an_outage_that_begins_soon_after_another_is_told_when_it_lasts() {
        let (mut outage, start) = (Outage::default(), Instant::now());
        assert_eq!(outage.failed(start), Some(1));
        assert!(outage.worked());
        let mut lines = 0;
        for second in 1..100 {
            let failed = outage.failed(start + Duration::from_secs(second));
            lines += usize::from(failed.is_some());
        }
        assert_eq!(lines, 1);
        assert!(outage.worked());
    }
}
