//! The times at which the dashboard's history gets a reading.
//!
//! A timer of the first loop takes one every ten seconds. A process that counts nothing has no
//! such timer, so that it is not woken: the history rests, and the next turn of any loop ends that.

use crate::ops::admin::Admin;
use crate::ops::dashboard::HISTORY_INTERVAL;
use dwell_evloop::{Context, Fleet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Message;
use super::tokens::HISTORY;

/// The rest of the history, on or off; shared by the loops of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct HistoryRest(Arc<AtomicBool>);

impl HistoryRest {
    fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Ends the rest; `true` for the one loop that has ended it.
    fn end(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::AcqRel)
    }
}

/// The clock of the history in one loop.
#[derive(Debug)]
pub(crate) struct HistoryClock {
    rest: HistoryRest,
    next: Next,
}

/// Time of the next reading, on the loop with the dashboard.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    /// At the timer.
    Armed,
    /// At the end of this turn.
    Due,
    /// At the end of the next turn.
    AfterRest,
}

impl HistoryClock {
    pub(crate) fn new(rest: HistoryRest) -> Self {
        Self {
            rest,
            next: Next::AfterRest,
        }
    }

    /// Ends the rest, as a loop without the dashboard does; `true` if this loop has ended it.
    pub(super) fn end_rest(&self) -> bool {
        self.rest.end()
    }

    /// Handles the timer.
    pub(super) fn expired(&mut self) {
        self.next = Next::Due;
    }

    /// Takes a reading if one is due. Runs at the end of each turn; `admin` is there on the first
    /// loop alone.
    pub(super) fn follow(
        &mut self,
        context: &mut Context,
        fleet: &Fleet<Message>,
        admin: Option<&mut Admin>,
    ) {
        let has_ended = self.end_rest();
        let Some(admin) = admin else {
            if has_ended {
                fleet.wake(0);
            }
            return;
        };
        if self.next == Next::Armed {
            return;
        }
        let is_changed = admin.keep_reading(context);
        if is_changed || self.next == Next::AfterRest || self.begin_rest(context, admin) {
            context.arm(HISTORY, HISTORY_INTERVAL);
            self.next = Next::Armed;
        } else {
            self.next = Next::AfterRest;
        }
    }

    /// Begins the rest; `true` if a loop has counted during the reading before it.
    fn begin_rest(&self, context: &Context, admin: &mut Admin) -> bool {
        self.rest.begin();
        admin.keep_reading(context) && self.end_rest()
    }
}
