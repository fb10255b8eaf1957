//! The pace at which keys that are waited for are read again.

use dwell_evloop::Backoff;
use std::time::{Duration, Instant};

/// Bounds the reads of keys that are waited for, and holds them back while they are of no use: the
/// server refuses all of them, or announces changes of keys that have not changed.
#[derive(Debug)]
pub(crate) struct Pace {
    backoff: Backoff,
    /// No read goes out before.
    until: Option<Instant>,
    /// Pauses in a row after which the server refused again.
    refusals: u32,
    /// Reads without a reply.
    under_way: usize,
    idle_pushes: IdlePushes,
}

/// Announcements of one second, by what was read after them.
#[derive(Debug, Default)]
struct IdlePushes {
    began: Option<Instant>,
    unchanged: u32,
    changed: u32,
    are_many: bool,
}

impl Pace {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX, seed),
            until: None,
            refusals: 0,
            under_way: 0,
            idle_pushes: IdlePushes::default(),
        }
    }

    /// The number of reads that may go out now, of so many keys that are waited for.
    pub(crate) fn room(&mut self, now: Instant, waited: usize) -> usize {
        self.idle_pushes.follow(now);
        let most = match self.pause(now) {
            Some(_) => 0,
            None if self.refusals > 0 => READS_AFTER_REFUSAL,
            None if self.idle_pushes.are_many => SLOW_READS + waited / SLOW_ROUND,
            None => READS_AT_ONCE,
        };
        most.saturating_sub(self.under_way)
    }

    /// The time until the next read may go out, if that is not now.
    pub(crate) fn pause(&self, now: Instant) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// So many reads have gone out.
    pub(crate) fn sent(&mut self, count: usize, now: Instant) {
        self.under_way += count;
        if self.idle_pushes.are_many && count > 0 {
            self.until = Some(now + SLOW_PAUSE);
        }
    }

    /// A read has ended, whatever it has brought.
    pub(crate) fn ended(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// The server refuses every read for now.
    pub(crate) fn refused(&mut self, now: Instant) {
        // Those that were under way with it say nothing more.
        if self.pause(now).is_none() {
            self.until = Some(now + self.backoff.delay(self.refusals));
            self.refusals = self.refusals.saturating_add(1);
        }
    }

    /// The server has executed a read.
    pub(crate) fn answered(&mut self) {
        self.refusals = 0;
    }

    /// A key was read whose change was announced; its value has changed or not.
    pub(crate) fn told(&mut self, has_changed: bool, now: Instant) {
        self.idle_pushes.told(has_changed, now);
    }

    /// Returns true while most announcements are of keys that have not changed.
    pub(crate) fn has_idle_pushes(&self) -> bool {
        self.idle_pushes.are_many
    }
}

impl IdlePushes {
    fn told(&mut self, has_changed: bool, now: Instant) {
        self.follow(now);
        let count = if has_changed {
            &mut self.changed
        } else {
            &mut self.unchanged
        };
        *count = count.saturating_add(1);
    }

    /// Judges by a second that is over. They become many where that is no chance; then reads are
    /// few, and so are they.
    fn follow(&mut self, now: Instant) {
        let began = *self.began.get_or_insert(now);
        if now.saturating_duration_since(began) < WINDOW {
            return;
        }
        let least = if self.are_many {
            STILL_MANY
        } else {
            UNCHANGED_MIN
        };
        self.are_many = self.unchanged >= least && self.unchanged / 4 >= self.changed;
        (self.began, self.unchanged, self.changed) = (Some(now), 0, 0);
    }
}

/// The time after which a key is read again whose changes no announcement tells, where there are so
/// many: no prefix covers them, or they are on no server, or on two.
pub(crate) fn held_back(keys: usize) -> Duration {
    HELD_BACK_MIN.max(sweep_pause(keys))
}

/// The time after a sweep of so many keys before which the next one does not begin, where nothing
/// announces their changes.
pub(crate) fn sweep_pause(keys: usize) -> Duration {
    HELD_BACK_EACH.saturating_mul(u32::try_from(keys).unwrap_or(u32::MAX))
}

/// The shortest of those times.
const HELD_BACK_MIN: Duration = Duration::from_millis(250);
/// The share of each key in them: 20,000 keys are read in a second.
const HELD_BACK_EACH: Duration = Duration::from_micros(50);
/// Reads in progress at most: the others follow their replies.
const READS_AT_ONCE: usize = 2048;
/// Reads by which a server that has refused is tried again.
const READS_AFTER_REFUSAL: usize = 16;
/// The pause after the first refusal; each that follows doubles it.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Announcements of a second.
const WINDOW: Duration = Duration::from_secs(1);
/// Reads of a second after announcements that found nothing new, from which on they are many. A
/// table that is too small makes as many as the connection carries; publishers that set the values
/// that are there make fewer, and their other writes are not to be slowed down.
const UNCHANGED_MIN: u32 = 2000;
/// The same while keys are read slowly: fewer than one for each pause.
const STILL_MANY: u32 = 8;
/// While they are many, so many keys are read at a time, and with them one in so many of all.
const SLOW_READS: usize = 64;
const SLOW_ROUND: usize = 100;
const SLOW_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_refuses_is_tried_by_few_reads_after_longer_and_longer_pauses() {
        let mut pace = Pace::new(7);
        let mut now = Instant::now();
        assert_eq!(pace.room(now, 10_000), READS_AT_ONCE);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let room = pace.room(now, 10_000);
            pace.sent(room, now);
            while pace.under_way > 0 {
                pace.refused(now);
                pace.ended();
            }
            assert_eq!(pace.room(now, 10_000), 0);
            let pause = pace.pause(now).unwrap();
            pauses.push(pause);
            now += pause;
            assert_eq!(pace.room(now, 10_000), READS_AFTER_REFUSAL);
        }
        assert!(pauses.iter().all(|pause| *pause <= PAUSE_MAX), "{pauses:?}");
        assert!(pauses[9] > pauses[0], "{pauses:?}");
        pace.answered();
        assert_eq!(pace.room(now, 10_000), READS_AT_ONCE);
    }

    #[test]
    fn announcements_of_what_has_not_changed_slow_the_reads_down_while_they_last() {
        let mut pace = Pace::new(7);
        let mut now = Instant::now();
        let second = |pace: &mut Pace, now: &mut Instant, unchanged: u32, changed: u32| {
            (0..unchanged).for_each(|_| pace.told(false, *now));
            (0..changed).for_each(|_| pace.told(true, *now));
            *now += WINDOW;
            pace.room(*now, 0);
            pace.has_idle_pushes()
        };
        assert!(!second(&mut pace, &mut now, UNCHANGED_MIN - 1, 0), "few");
        assert!(!second(&mut pace, &mut now, 5000, 5000), "of use");
        assert!(second(&mut pace, &mut now, 5000, 500));
        assert_eq!(pace.room(now, 1_000), SLOW_READS + 10);
        let room = pace.room(now, 1_000);
        pace.sent(room, now);
        (0..SLOW_READS + 10).for_each(|_| pace.ended());
        assert_eq!(pace.room(now, 1_000), 0);
        now += SLOW_PAUSE;
        assert_eq!(pace.room(now, 1_000), SLOW_READS + 10);
        assert!(second(&mut pace, &mut now, 10, 0), "as many as may be");
        assert!(!second(&mut pace, &mut now, 0, 0));
        assert_eq!(pace.room(now, 1_000), READS_AT_ONCE);
    }

    #[test]
    fn many_keys_that_are_held_back_are_read_at_a_bounded_rate() {
        let milliseconds = [0, 1, 5_000, 10_000, 100_000].map(|keys| held_back(keys).as_millis());
        assert_eq!(milliseconds, [250, 250, 250, 500, 5_000]);
        assert!(held_back(usize::MAX) < Duration::MAX);
    }
}
