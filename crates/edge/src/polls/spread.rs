//! Spread of times, so that clients that were held together do not return together.

use dwell_evloop::Random;
use dwell_timers::{Tick, ticks_ceil};
use std::ops::Range;
use std::time::Duration;

/// Random times of one loop.
#[derive(Debug)]
pub(super) struct Spread {
    random: Random,
}

impl Spread {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
        }
    }

    /// `wait` and up to a sixteenth more.
    pub(super) fn beyond(&mut self, wait: Duration) -> Duration {
        let spread = wait.as_millis() as u64 / 16;
        wait + Duration::from_millis(self.random.below(spread + 1))
    }

    /// A time around `time`, at random from `least` fourths of it to `most` fourths.
    pub(super) fn around(&mut self, time: Duration, least: u32, most: u32) -> Duration {
        let range = time / 4 * (most - least);
        let added = self.random.below(range.as_millis() as u64 + 1);
        time / 4 * least + Duration::from_millis(added)
    }

    /// The end of a stream that begins now: by its age, and after `most`.
    pub(super) fn end_of_life(&mut self, now: Tick, lifetime: Duration, most: Duration) -> Tick {
        let lifetime = self.around(lifetime, 3, 4).min(most);
        now.plus(ticks_ceil(lifetime))
    }

    /// A number of the range.
    pub(super) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.random.below(range.end - range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stay_within_their_bounds_and_differ() {
        let mut spread = Spread::new(1);
        let time = Duration::from_secs(16);
        let (mut later, mut around) = (Vec::new(), Vec::new());
        for _ in 0..1000 {
            later.push(spread.beyond(time));
            around.push(spread.around(time, 3, 5));
            assert!((5..9).contains(&spread.within(5..9)));
        }
        for (times, least, most) in [(later, 16, 17), (around, 12, 20)] {
            let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
            let bounds = Duration::from_secs(least)..=Duration::from_secs(most);
            assert!(bounds.contains(first) && bounds.contains(last), "{first:?}");
            assert!(*last > *first + Duration::from_secs(most - least) * 9 / 10);
        }
        assert_eq!(spread.beyond(Duration::ZERO), Duration::ZERO);
    }
}
