//! Delays before a watched server is connected to again.

use dwell_evloop::Backoff;
use std::time::Duration;

/// Counts failures in a row, and chooses the delay after each.
#[derive(Debug)]
pub(super) struct Pace {
    failures: u32,
    reconnect: Backoff,
    refused: Backoff,
}

impl Pace {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            failures: 0,
            reconnect: Backoff::new(RECONNECT_MIN, RECONNECT_MAX, seed),
            refused: Backoff::new(REFUSED_RETRY, REFUSED_RETRY, seed),
        }
    }

    /// The server has answered.
    pub(super) const fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// The delay after one more failure.
    pub(super) fn failed(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.reconnect.delay(self.failures)
    }

    /// The delay before a server that refuses to be watched is asked again.
    pub(super) fn refused(&mut self) -> Duration {
        self.failures = 0;
        self.refused.delay(1)
    }
}

const RECONNECT_MIN: Duration = Duration::from_millis(200);
const RECONNECT_MAX: Duration = Duration::from_millis(25_600);
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
