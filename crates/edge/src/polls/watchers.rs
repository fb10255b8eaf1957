//! Watchers of a key: held polls, streams and WebSockets, counted.

use serde::Serialize;
use std::ops::AddAssign;

/// Watchers of one key, by transport.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Watchers {
    /// Held polls.
    pub(crate) polls: u64,
    /// Streams of events.
    pub(crate) streams: u64,
    /// WebSockets.
    pub(crate) websockets: u64,
}

impl Watchers {
    /// The sum over all transports.
    pub(crate) fn total(self) -> u64 {
        self.polls + self.streams + self.websockets
    }
}

impl AddAssign for Watchers {
    fn add_assign(&mut self, other: Self) {
        self.polls += other.polls;
        self.streams += other.streams;
        self.websockets += other.websockets;
    }
}
