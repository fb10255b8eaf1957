//! Spread of times, so that clients that were held together do not return together.

use super::waiters::{BUSY, TOO_MANY_WAIT};
use crate::log::LogThrottle;
use crate::metrics::PollOutcome;
use crate::responder::Responder;
use crate::retry_after::RetryAfter;
use dwell_engine::Outcome;
use dwell_evloop::{Context, Random};
use dwell_timers::{Tick, ticks_ceil};
use std::ops::Range;
use std::time::Duration;

/// Random times of one loop.
#[derive(Debug)]
pub(super) struct Spread {
    random: Random,
    retry_after: RetryAfter,
    /// Refusals at `limits.waiters_max`.
    full: LogThrottle,
    waiters_max: usize,
}

impl Spread {
    pub(super) fn new(seed: u64, waiters_max: usize) -> Self {
        Self {
            random: Random::new(seed),
            retry_after: RetryAfter::new(seed.rotate_left(16)),
            full: LogThrottle::default(),
            waiters_max,
        }
    }

    /// Goes by another limit of waits, which the log has.
    pub(super) fn set_waiters_max(&mut self, waiters_max: usize) {
        self.waiters_max = waiters_max;
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

    /// Answers that a limit is reached, with a time to come back at.
    pub(super) fn refuse(
        &mut self,
        context: &mut Context,
        to: &mut Responder<'_, '_>,
        reason: &str,
    ) {
        let seconds = self.retry_after.next(context.now());
        to.text_with(context, 503, reason, &[("Retry-After", seconds.as_bytes())]);
        if reason == TOO_MANY_WAIT
            && let Some(refused) = self.full.note(context.now())
        {
            let limit = self.waiters_max;
            tracing::warn!(
                refused,
                limit,
                "limits.waiters_max is reached: polls get 503"
            );
        }
    }

    /// As [`refuse`](Self::refuse), for a poll or stream that ends by it.
    pub(super) fn refused(
        &mut self,
        context: &mut Context,
        to: &mut Responder<'_, '_>,
        reason: &str,
    ) -> Outcome {
        to.ends(PollOutcome::Refused);
        self.refuse(context, to, reason);
        Outcome::Answered
    }

    /// Answers that no further request can be taken on.
    pub(super) fn refuse_busy(
        &mut self,
        context: &mut Context,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        self.refused(context, to, BUSY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stay_within_their_bounds_and_differ() {
        let mut spread = Spread::new(1, 1);
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
