//! Spread of times, so that clients that were held together do not return together.

use super::room_log::RoomLog;
use super::waiters::BUSY;
use crate::config::Config;
use crate::metrics::PollOutcome;
use crate::responder::Responder;
use crate::retry_after::RetryAfter;
use dwell_engine::Outcome;
use dwell_evloop::{Context, Random};
use dwell_timers::{Tick, ticks_ceil};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Random times of one loop.
#[derive(Debug)]
pub(super) struct Spread {
    random: Random,
    retry_after: RetryAfter,
    /// Refusals at a limit.
    rooms: Rooms,
}

/// The limits of the process, as the log names them where one is reached.
#[derive(Clone, Debug)]
pub(super) struct Rooms {
    pub(super) log: Arc<RoomLog>,
    pub(super) config: Arc<Config>,
    pub(super) loops: usize,
}

impl Spread {
    pub(super) fn new(seed: u64, rooms: Rooms) -> Self {
        Self {
            random: Random::new(seed),
            retry_after: RetryAfter::new(seed.rotate_left(16)),
            rooms,
        }
    }

    /// Goes by the limits of another configuration, which the log has.
    pub(super) fn reconfigure(&mut self, config: &Arc<Config>) {
        self.rooms.config = Arc::clone(config);
    }

    /// Counts a refusal, and logs the limit that is its reason if that is due.
    pub(super) fn log_refused(&self, context: &Context, reason: &str) {
        let Rooms { log, config, loops } = &self.rooms;
        log.refused(context.now(), reason, &config.limits, *loops);
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
        self.log_refused(context, reason);
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
        let rooms = Rooms {
            log: Arc::default(),
            config: Arc::default(),
            loops: 1,
        };
        let mut spread = Spread::new(1, rooms);
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
