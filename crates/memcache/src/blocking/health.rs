//! The health of a server, which decides if requests are sent to it.

use std::time::Instant;

use super::options::ClientOptions;
use dwell_timers::Backoff;
use dwell_timers::Breaker;

/// Leaves a server alone that failed too often in a row, and tries it again from time to time.
#[derive(Debug)]
pub(crate) struct Health {
    breaker: Breaker,
    backoff: Backoff,
    /// The instant from which an operation is let through while the breaker is open.
    retry_at: Option<Instant>,
}

impl Health {
    pub(crate) fn new(options: &ClientOptions, seed: u64) -> Self {
        Self {
            breaker: Breaker::new(options.failures_max),
            backoff: Backoff::new(options.retry_delay_min, options.retry_delay_max, seed),
            retry_at: None,
        }
    }

    /// Returns true if an operation may be sent now.
    ///
    /// Shape: of a server that is left alone, true for one operation in each while; the others go
    /// on failing at once until that one is answered.
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        if !self.breaker.is_open() {
            return true;
        }
        if self.retry_at.is_some_and(|retry_at| now < retry_at) {
            return false;
        }
        self.retry_at = Some(now + self.backoff.delay(self.breaker.failures()));
        true
    }

    pub(crate) fn failed(&mut self, now: Instant) {
        self.breaker.failed();
        self.retry_at = Some(now + self.backoff.delay(self.breaker.failures()));
    }

    pub(crate) const fn answered(&mut self) {
        self.breaker.probe_answered();
        self.breaker.operation_answered();
        self.retry_at = None;
    }

    pub(crate) const fn failures(&self) -> u32 {
        self.breaker.failures()
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.breaker.is_open()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_trial_at_a_time_until_one_is_answered() {
        let options = ClientOptions::default();
        let mut health = Health::new(&options, 7);
        let now = Instant::now();
        for _ in 0..options.failures_max {
            assert!(health.admits(now));
            health.failed(now);
        }
        assert!(!health.admits(now));
        let later = now + options.retry_delay_max;
        assert!(health.admits(later), "the trial");
        assert!(!health.admits(later), "only one");
        health.answered();
        assert!(health.admits(later) && health.admits(later));
        assert_eq!(health.failures(), 0);
    }
}
