//! The names of servers that get other addresses: the edge looks them up again some time later.

use std::time::Duration;

/// The state of the names.
#[derive(Default)]
pub(super) struct Moves {
    /// The moment at which the edge looks them up again.
    look_up_at: Option<Duration>,
    /// Until then a server cannot be had where the edge takes it to be.
    loses: bool,
}

impl Moves {
    /// The moment at which the edge looks them up again.
    pub(super) fn moment(&self) -> Option<Duration> {
        self.look_up_at
    }

    /// Returns true while lookups of the edge may fail for this.
    pub(super) fn is_hindered(&self) -> bool {
        self.loses
    }

    /// Returns true if the edge is to look them up by then, or at all.
    pub(super) fn is_to_look_up(&self, by: Option<Duration>) -> bool {
        let at = self.look_up_at;
        at.is_some_and(|at| by.is_none_or(|by| by >= at))
    }

    /// A server has another address, which the edge looks up at this moment. It may not be had
    /// until then where it `loses` what it had before.
    pub(super) fn begin(&mut self, look_up_at: Duration, loses: bool) {
        self.look_up_at = Some(look_up_at);
        self.loses |= loses;
    }

    /// The edge has looked them up; returns true if lookups may have failed.
    pub(super) fn end(&mut self) -> bool {
        std::mem::take(self).loses
    }
}
