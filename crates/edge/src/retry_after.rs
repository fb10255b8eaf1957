//! `Retry-After` of refused clients.

use dwell_evloop::Random;
use std::time::{Duration, Instant};

/// Chooses a random number of seconds after which a refused client may return: from a longer range,
/// the more clients of a loop were refused of late.
///
/// Shape: seconds are those of the instants given. A second is full at the number of clients that a
/// loop can take back beside its other work.
#[derive(Debug)]
pub(crate) struct RetryAfter {
    random: Random,
    /// Begin of the window that `refused` counts.
    began: Option<Instant>,
    refused: u64,
    /// Clients refused in the window before, whose count is complete.
    before: u64,
}

impl RetryAfter {
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            began: None,
            refused: 0,
            before: 0,
        }
    }

    /// Notes one more client, and returns the value of its `Retry-After`.
    ///
    /// Units: seconds.
    pub(crate) fn next(&mut self, now: Instant) -> String {
        let spread = self.spread(now);
        (1 + self.random.below(spread)).to_string()
    }

    /// Notes one more client, and returns the number of seconds over which such clients are spread.
    fn spread(&mut self, now: Instant) -> u64 {
        let age = self.began.map(|began| now.saturating_duration_since(began));
        match age {
            Some(age) if age < WINDOW => {}
            age => {
                let is_next = age.is_some_and(|age| age < 2 * WINDOW);
                self.before = if is_next { self.refused } else { 0 };
                self.refused = 0;
                self.began = Some(now);
            }
        }
        self.refused += 1;
        let refused = self.refused.max(self.before);
        (SPREAD_MIN + refused / RETURNS_PER_SECOND).min(SPREAD_MAX)
    }
}

const WINDOW: Duration = Duration::from_secs(5);
/// Clients that a loop takes back in a second.
const RETURNS_PER_SECOND: u64 = 200;
const SPREAD_MIN: u64 = 5;
const SPREAD_MAX: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_come_back_soon_and_many_are_spread() {
        let now = Instant::now();
        let mut retry_after = RetryAfter::new(7);
        assert_eq!(retry_after.spread(now), 5);
        for _ in 0..2_000 {
            retry_after.spread(now);
        }
        assert_eq!(retry_after.spread(now), 15);
        for _ in 0..100_000 {
            retry_after.spread(now);
        }
        assert_eq!(retry_after.spread(now), 60);
    }

    #[test]
    fn what_was_before_counts_in_the_next_window_and_not_in_later_ones() {
        let now = Instant::now();
        let mut retry_after = RetryAfter::new(7);
        for _ in 0..2_000 {
            retry_after.spread(now);
        }
        let next = now + WINDOW;
        assert_eq!(retry_after.spread(next), 15);
        assert_eq!(retry_after.spread(next + 2 * WINDOW), 5);
    }

    #[test]
    fn many_who_are_refused_are_told_later_times() {
        let now = Instant::now();
        let mut retry_after = RetryAfter::new(7);
        let mut seconds = |count: usize| -> Vec<u64> {
            let all = (0..count).map(|_| retry_after.next(now));
            all.map(|text| text.parse().unwrap()).collect()
        };
        assert!(seconds(100).iter().all(|one| (1..=5).contains(one)));
        seconds(5_000);
        let late = seconds(200);
        assert!(late.iter().any(|one| *one > 10), "{late:?}");
    }
}
