//! Failures in a row, after which a server is left alone.

/// Counts failures in a row: opens at the limit, closes when a probe is answered.
///
/// Only the answer to an operation ends the row. A server that answers probes and then fails its
/// first operation opens the breaker again at once, and the delays go on growing. It has no clock:
/// what is let through while it is open is its owner's to decide. (The health of a server of the
/// application judges by a window of outcomes and one trial at a time: it is no such counter.)
///
/// ```
/// use dwell_timers::Breaker;
///
/// let mut breaker = Breaker::new(2);
/// breaker.failed();
/// breaker.failed();
/// assert!(breaker.is_open());
/// breaker.probe_answered();
/// assert!(!breaker.is_open());
/// ```
#[derive(Debug)]
pub struct Breaker {
    failures: u32,
    failures_max: u32,
    is_open: bool,
}

impl Breaker {
    /// A closed breaker that opens after so many failures in a row.
    pub const fn new(failures_max: u32) -> Self {
        Self {
            failures: 0,
            failures_max,
            is_open: false,
        }
    }

    /// Returns true if operations are not to be tried.
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Failures since the last answer to an operation.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// An operation or an attempt to connect has failed.
    pub const fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.is_open = self.failures >= self.failures_max;
    }

    /// The server has answered a probe.
    pub const fn probe_answered(&mut self) {
        self.is_open = false;
    }

    /// The server has answered an operation, which ends the row.
    pub const fn operation_answered(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_at_the_limit_and_closes_on_a_probe() {
        let mut breaker = Breaker::new(3);
        breaker.failed();
        breaker.failed();
        assert!(!breaker.is_open());
        breaker.failed();
        assert!(breaker.is_open());
        breaker.probe_answered();
        assert!(!breaker.is_open());
        breaker.failed();
        assert!(
            breaker.is_open(),
            "an answered probe alone does not end the row"
        );
        breaker.probe_answered();
        breaker.operation_answered();
        breaker.failed();
        assert!(!breaker.is_open());
        assert_eq!(breaker.failures(), 1);
    }
}
