//! When clients that are refused are told to come back.

use std::time::{Duration, Instant};

/// Counts the clients of a loop that were refused of late, so that they are told to come back over
/// the longer a time the more they are.
///
/// Shape: the seconds are those of the instants given; a second is full of as many as a loop takes
/// in without trouble beside its other work.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    began: Option<Instant>,
    refused: u64,
    /// Those of the window before, in which the count was complete.
    before: u64,
}

impl Pace {
    /// Notes one more, and returns over how many seconds such clients are to be spread.
    pub(crate) fn spread(&mut self, now: Instant) -> u64 {
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
        let mut pace = Pace::default();
        assert_eq!(pace.spread(now), 5);
        for _ in 0..2_000 {
            pace.spread(now);
        }
        assert_eq!(pace.spread(now), 15);
        for _ in 0..100_000 {
            pace.spread(now);
        }
        assert_eq!(pace.spread(now), 60);
    }

    #[test]
    fn what_was_before_counts_in_the_next_window_and_not_in_later_ones() {
        let now = Instant::now();
        let mut pace = Pace::default();
        for _ in 0..2_000 {
            pace.spread(now);
        }
        let next = now + WINDOW;
        assert_eq!(pace.spread(next), 15);
        assert_eq!(pace.spread(next + 2 * WINDOW), 5);
    }
}
