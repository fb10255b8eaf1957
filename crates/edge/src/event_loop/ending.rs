//! The end of a loop: its time limit, and how the ends of held polls are spread over it.

use std::time::{Duration, Instant};

/// Interval of the steps in which held polls end.
pub(super) const DRAIN_INTERVAL: Duration = Duration::from_millis(100);
/// Held polls that end at once when a drain begins; the rest is spread.
const DRAIN_SHARE_MIN: usize = 256;
/// Longest time for waits on keys of a store that another process has.
const BLIND_WAIT_MAX: Duration = Duration::from_secs(1);

/// State of the end of a loop.
#[derive(Debug)]
pub(crate) struct Ending {
    timeout: Duration,
    drain: Option<Drain>,
    /// The successor takes no connections any more.
    is_alone: bool,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    ends: Instant,
    /// Held polls that end with each step.
    share: usize,
}

/// One step of the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DrainStep {
    /// Held polls that end now.
    pub(super) share: usize,
    /// Time until the next step; `None` if no time is left.
    pub(super) next: Option<Duration>,
}

impl Ending {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            drain: None,
            is_alone: false,
        }
    }

    /// Changes the time limit of an end that has not begun.
    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    pub(super) fn has_begun(&self) -> bool {
        self.drain.is_some()
    }

    /// Begins to drain: held polls end in the first half of the time, other requests in the second.
    pub(super) fn drain(&mut self, now: Instant, waiting: usize) {
        self.begin(now, self.timeout / 2, waiting);
    }

    /// Begins to hand over; `is_blind` if the watched keys are in the store of the other process.
    pub(super) fn hand_over(&mut self, now: Instant, waiting: usize, is_blind: bool) {
        let half = self.timeout / 2;
        let waits = if is_blind {
            half.min(BLIND_WAIT_MAX)
        } else {
            half
        };
        self.begin(now, waits, waiting);
    }

    /// Notes that the successor takes no connections any more; returns true the first time.
    pub(super) fn give_up_successor(&mut self) -> bool {
        !std::mem::replace(&mut self.is_alone, true)
    }

    /// Spreads the ends of `waiting` polls over the time `waits` from `now` on.
    fn begin(&mut self, now: Instant, waits: Duration, waiting: usize) {
        let steps = (waits.as_millis() / DRAIN_INTERVAL.as_millis()) as usize;
        self.drain = Some(Drain {
            ends: now + self.timeout,
            share: waiting.div_ceil(steps.max(1)).max(DRAIN_SHARE_MIN),
        });
    }

    /// The step at `now`, if the end has begun.
    pub(super) fn step(&self, now: Instant) -> Option<DrainStep> {
        let drain = self.drain?;
        let left = drain.ends.saturating_duration_since(now);
        Some(DrainStep {
            share: drain.share,
            next: (!left.is_zero()).then(|| left.min(DRAIN_INTERVAL)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_end_within_half_of_the_time_and_the_rest_at_its_end() {
        let (mut ending, now) = (Ending::new(20 * SECOND), Instant::now());
        assert_eq!(ending.step(now), None);
        ending.drain(now, 100_000);
        // 100 steps of 100 ms are 10 s.
        let (share, next) = (1000, Some(DRAIN_INTERVAL));
        assert_eq!(ending.step(now), Some(DrainStep { share, next }));
        let almost = now + Duration::from_millis(19_970);
        let next = Some(Duration::from_millis(30));
        assert_eq!(ending.step(almost), Some(DrainStep { share, next }));
        let next = None;
        assert_eq!(
            ending.step(now + 20 * SECOND),
            Some(DrainStep { share, next })
        );
    }

    #[test]
    fn few_waits_end_at_once_and_blind_ones_within_a_second() {
        let (mut ending, now) = (Ending::new(20 * SECOND), Instant::now());
        let share = |ending: &Ending| ending.step(now).map(|step| step.share);
        ending.drain(now, 3);
        assert_eq!(share(&ending), Some(DRAIN_SHARE_MIN));
        ending.hand_over(now, 100_000, true);
        assert_eq!(share(&ending), Some(10_000), "10 steps");
        ending.hand_over(now, 100_000, false);
        assert_eq!(share(&ending), Some(1000), "100 steps");
    }

    #[test]
    fn an_end_that_has_begun_keeps_its_time() {
        let (mut ending, now) = (Ending::new(SECOND), Instant::now());
        ending.drain(now, 0);
        ending.set_timeout(Duration::ZERO);
        assert!(ending.has_begun());
        assert!(ending.step(now).unwrap().next.is_some());
        assert!(ending.step(now + SECOND).unwrap().next.is_none());
    }

    #[test]
    fn no_time_at_all_is_one_step() {
        let (mut ending, now) = (Ending::new(Duration::ZERO), Instant::now());
        ending.drain(now, 1000);
        let (share, next) = (1000, None);
        assert_eq!(ending.step(now), Some(DrainStep { share, next }));
    }
}
