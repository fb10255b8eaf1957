//! The connection of a client: bytes both ways, quick or slow.

use crate::connection::Connection;
use dwell_evloop::sim::SimStream;
use std::time::Duration;

/// A connection, or the time until the next one.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) stream: Option<Connection>,
    pub(crate) output: Vec<u8>,
    pub(crate) input: Vec<u8>,
    slow_read_until: Duration,
    slow_write_until: Duration,
    /// The moment at which it goes on: the next connection, read or write.
    pub(crate) next_at: Duration,
    /// It has read so slowly that the server may let it go.
    pub(crate) may_be_cut: bool,
    /// The moment from which nothing hinders what it is sent.
    pub(crate) clear_since: Duration,
}

/// The time between two small reads or writes of a slow client, and the bytes of one.
const PACE: Duration = Duration::from_millis(20);
const LITTLE: usize = 64;
const SMALL_WINDOW: usize = 512;
const WINDOW: usize = 64 * 1024;

impl Line {
    /// Begins a connection.
    pub(crate) fn open(&mut self, stream: Connection, now: Duration) {
        *self = Self {
            stream: Some(stream),
            clear_since: now,
            ..Self::default()
        };
    }

    /// Ends the connection, and waits until `back_at`; returns false if there is none.
    pub(crate) fn leave(&mut self, leave: impl FnOnce(&SimStream), back_at: Duration) -> bool {
        let Some(stream) = self.stream.take() else {
            return false;
        };
        stream.leave(leave);
        self.input.clear();
        self.output.clear();
        self.next_at = back_at;
        true
    }

    /// Ends its sending side, if all is sent.
    pub(crate) fn finish(&mut self) -> bool {
        let finish = |stream: &mut Connection| stream.shutdown_write().is_ok();
        self.output.is_empty() && self.stream.as_mut().is_some_and(finish)
    }

    /// Reads little until then.
    pub(crate) fn slow_read(&mut self, until: Duration) -> bool {
        let Some(stream) = &self.stream else {
            return false;
        };
        stream.set_window(SMALL_WINDOW);
        self.slow_read_until = until;
        self.may_be_cut = true;
        true
    }

    /// Writes little until then.
    pub(crate) fn slow_write(&mut self, until: Duration) -> bool {
        self.slow_write_until = until;
        self.stream.is_some()
    }

    /// Writes and reads what it may now; returns false at the end of the connection.
    pub(crate) fn exchange(&mut self, now: Duration, hindered_until: Duration) -> bool {
        let is_slow = now < self.slow_read_until.max(self.slow_write_until);
        let is_paced = is_slow && now < self.next_at;
        self.write(now, is_paced);
        let is_open = self.read(now, is_paced);
        if is_slow && !is_paced {
            self.next_at = now + PACE;
        }
        let under = self.stream.as_ref().map(Connection::clear_since);
        let hindrances = [
            hindered_until,
            under.unwrap_or_default(),
            self.slow_read_until,
            self.slow_write_until,
        ];
        self.clear_since = hindrances.into_iter().fold(self.clear_since, Duration::max);
        is_open
    }

    fn write(&mut self, now: Duration, is_paced: bool) {
        let is_slow = now < self.slow_write_until;
        let Some(stream) = self.stream.as_mut().filter(|_| !self.output.is_empty()) else {
            return;
        };
        if is_slow && is_paced {
            return;
        }
        let most = if is_slow { LITTLE } else { usize::MAX };
        let length = self.output.len().min(most);
        let written = stream.write(&self.output[..length]).unwrap_or(0);
        self.output.drain(..written);
        self.clear_since = now;
    }

    /// Reads what has come; returns false at the end of the connection.
    fn read(&mut self, now: Duration, is_paced: bool) -> bool {
        let Some(stream) = self.stream.as_mut().filter(|it| it.is_readable()) else {
            return true;
        };
        if now >= self.slow_read_until {
            stream.set_window(WINDOW);
            return stream.read_all(&mut self.input);
        }
        if is_paced {
            return true;
        }
        stream.read_little(&mut self.input, LITTLE)
    }
}
