//! When a connection is made again.

use dwell_evloop::Random;
use std::time::Duration;

/// Counts failures in a row, and says how long to wait after each.
#[derive(Debug)]
pub(super) struct Pace {
    failures: u32,
    random: Random,
}

impl Pace {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            failures: 0,
            random: Random::new(seed),
        }
    }

    /// The server has answered.
    pub(super) const fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// The time to wait after one more failure: longer each time, up to a bound, and at random, so
    /// that those who have lost a server do not come back together.
    pub(super) fn failed(&mut self) -> Duration {
        let doublings = self.failures.min(DOUBLINGS_MAX);
        self.failures = self.failures.saturating_add(1);
        self.spread(RECONNECT_MIN * (1 << doublings))
    }

    /// The time to wait before a server that refuses to be watched is asked again.
    pub(super) fn refused(&mut self) -> Duration {
        self.failures = 0;
        self.spread(REFUSED_RETRY)
    }

    /// Between a half of `longest` and the whole.
    fn spread(&mut self, longest: Duration) -> Duration {
        let half = longest / 2;
        half + Duration::from_millis(self.random.below(half.as_millis() as u64 + 1))
    }
}

/// The longest wait after the first failure.
const RECONNECT_MIN: Duration = Duration::from_millis(200);
/// So often it doubles: to 25.6 seconds.
const DOUBLINGS_MAX: u32 = 7;
/// Servers that refuse go on refusing until somebody starts them with other options.
const REFUSED_RETRY: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_are_spread() {
        for seed in 0..100 {
            let mut pace = Pace::new(seed * 0x9E37_79B9);
            for longest_ms in [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 25_600] {
                let longest = Duration::from_millis(longest_ms);
                let wait = pace.failed();
                assert!(wait >= longest / 2 && wait <= longest, "{wait:?}");
            }
            pace.succeeded();
            assert!(pace.failed() <= RECONNECT_MIN);
            let refused = pace.refused();
            assert!(refused >= REFUSED_RETRY / 2 && refused <= REFUSED_RETRY);
        }
        let mut pace = Pace::new(1);
        let waits: Vec<_> = (0..100).map(|_| pace.refused()).collect();
        assert!(waits.iter().max() > waits.iter().min());
    }
}
