//! Delays before what has failed is tried again.

use crate::Random;
use std::time::Duration;

/// Delays between attempts: they double with each failure in a row up to a bound, and each is a
/// random part of its longest, so that the clients of a server that comes back do not all connect
/// at once.
///
/// ```
/// use dwell_timers::Backoff;
/// use std::time::Duration;
///
/// let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2), 7);
/// assert!(backoff.delay(1) <= Duration::from_millis(50));
/// assert!(backoff.delay(3) >= Duration::from_millis(100));
/// assert!(backoff.delay(100) <= Duration::from_secs(2));
/// ```
#[derive(Debug)]
pub struct Backoff {
    delay_min: Duration,
    delay_max: Duration,
    random: Random,
}

impl Backoff {
    /// Delays of at most `delay_min` at first and of at most `delay_max` in the end, with a
    /// sequence of random parts that `seed` decides.
    pub const fn new(delay_min: Duration, delay_max: Duration, seed: u64) -> Self {
        Self {
            delay_min,
            delay_max,
            random: Random::new(seed),
        }
    }

    /// The delay after so many failures in a row: between a half and the whole of the longest.
    pub fn delay(&mut self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let longest = self.delay_min.saturating_mul(1 << doublings);
        self.random.spread(longest.min(self.delay_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
