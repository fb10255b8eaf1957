//! The pace of a client that reads or writes little at a time.

use std::time::Duration;

/// The times for which a client is slow, and its next small step.
#[derive(Default)]
pub(super) struct Pace {
    slow_read_until: Duration,
    slow_write_until: Duration,
    next_at: Duration,
}

/// The time between two small reads or writes of a slow client.
const STEP: Duration = Duration::from_millis(20);

impl Pace {
    /// Has it read little until then.
    pub(super) fn slow_read(&mut self, until: Duration) {
        self.slow_read_until = until;
    }

    /// Has it write little until then.
    pub(super) fn slow_write(&mut self, until: Duration) {
        self.slow_write_until = until;
    }

    /// Returns true if it reads little.
    pub(super) fn is_slow_reader(&self, now: Duration) -> bool {
        now < self.slow_read_until
    }

    /// Returns true if it writes little.
    pub(super) fn is_slow_writer(&self, now: Duration) -> bool {
        now < self.slow_write_until
    }

    /// The moment from which it is slow in nothing.
    pub(super) fn slow_until(&self) -> Duration {
        self.slow_read_until.max(self.slow_write_until)
    }

    /// The moment of its next small step, while it is slow.
    pub(super) fn next_at(&self, now: Duration) -> Option<Duration> {
        (now < self.slow_until()).then_some(self.next_at)
    }

    /// Returns true if its next small step is still to come.
    pub(super) fn is_paced(&self, now: Duration) -> bool {
        now < self.next_at
    }

    /// Has a step done, if one was due.
    pub(super) fn go_on(&mut self, now: Duration) {
        if !self.is_paced(now) && now < self.slow_until() {
            self.next_at = now + STEP;
        }
    }
}
