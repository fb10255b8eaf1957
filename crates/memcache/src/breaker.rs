//! The breaker of a server, and the delays before a lost connection is made again.

use std::time::Duration;

/// Counts failures in a row: opens at the limit, closes when a probe is answered.
///
/// Only the answer to an operation ends the row. A server that answers probes and then fails its
/// first operation opens the breaker again at once, and the delays go on growing.
#[derive(Debug)]
pub(crate) struct Breaker {
    failures: u32,
    failures_max: u32,
    is_open: bool,
}

impl Breaker {
    pub(crate) const fn new(failures_max: u32) -> Self {
        Self {
            failures: 0,
            failures_max,
            is_open: false,
        }
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.is_open
    }

    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) const fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.is_open = self.failures >= self.failures_max;
    }

    pub(crate) const fn probe_answered(&mut self) {
        self.is_open = false;
    }

    pub(crate) const fn operation_answered(&mut self) {
        self.failures = 0;
    }
}

/// Delays before a connection is made again: they double up to a bound. Each is a random part of
/// the longest, so that the clients of a server that comes back do not all connect at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    delay_min: Duration,
    delay_max: Duration,
    random: u64,
}

impl Backoff {
    pub(crate) const fn new(delay_min: Duration, delay_max: Duration, seed: u64) -> Self {
        Self {
            delay_min,
            delay_max,
            random: seed | 1,
        }
    }

    /// The delay after so many failures in a row: between a half and the whole of the longest.
    pub(crate) fn delay(&mut self, failures: u32) -> Duration {
        // xorshift64: the spread has to differ between processes, not to be unpredictable.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let doublings = failures.saturating_sub(1).min(31);
        let longest = self
            .delay_min
            .saturating_mul(1 << doublings)
            .min(self.delay_max);
        let share = (self.random >> 32) as u32;
        longest / 2 + longest.mul_f64(f64::from(share) / f64::from(u32::MAX) / 2.0)
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

    #[test]
    fn delays_double_within_their_bounds() {
        let (min, max) = (Duration::from_millis(50), Duration::from_secs(2));
        for seed in 0..100 {
            let mut backoff = Backoff::new(min, max, seed * 0x9E37_79B9);
            for (failures, longest_ms) in [
                (0, 50),
                (1, 50),
                (2, 100),
                (3, 200),
                (6, 1600),
                (7, 2000),
                (u32::MAX, 2000),
            ] {
                let longest = Duration::from_millis(longest_ms);
                let delay = backoff.delay(failures);
                assert!(
                    delay >= longest / 2 && delay <= longest,
                    "{delay:?} of {longest:?}"
                );
            }
        }
    }

    #[test]
    fn delays_are_spread() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1), 1);
        let delays: Vec<_> = (0..100).map(|_| backoff.delay(1)).collect();
        let (shortest, longest) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
        assert!(longest.saturating_sub(*shortest) > Duration::from_millis(300));
    }
}
