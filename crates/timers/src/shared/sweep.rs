//! One sweep over the slots: visit those whose time has come, then fire them.
//!
//! Also compiled by `tests/loom.rs`.

use super::slot::{Handle, Look, NEVER, Settled, Slot, When};
use crate::{Tick, Wheel};
use std::task::Waker;

/// Finds the slot that has a number in the wheel.
pub(crate) trait Directory {
    type Handle: Handle;

    /// Makes a slot known that came out of an inbox.
    fn learn(&mut self, slot: &Self::Handle);
    fn slot(&self, id: u32) -> Self::Handle;
}

/// The visits of slots that are due, and the work left of the sweep in progress.
#[derive(Debug)]
pub(crate) struct Sweep<D> {
    wheel: Wheel,
    directory: D,
    /// Slots whose visit was announced in this sweep.
    announced: Vec<u32>,
    /// Slots that this sweep has claimed.
    claimed: Vec<u32>,
    /// The slot at which [`Sweep::reap`] goes on.
    reaped_to: u32,
}

impl<D: Directory> Sweep<D> {
    pub(crate) const fn new(now: Tick, directory: D) -> Self {
        Self {
            wheel: Wheel::new(now),
            directory,
            announced: Vec::new(),
            claimed: Vec::new(),
            reaped_to: 0,
        }
    }

    /// Returns true if no slot is waiting for its tick.
    pub(crate) const fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// A tick not after the next visit of a slot.
    pub(crate) const fn next_look(&self) -> Option<Tick> {
        self.wheel.next_event()
    }

    /// Visits the slots whose tick has come and those from the inboxes.
    pub(crate) fn collect(&mut self, now: Tick, enlisted: &mut Vec<D::Handle>) {
        while let Some(id) = self.wheel.pop_due(now) {
            let slot = self.directory.slot(id);
            self.look(now, &slot);
        }
        for slot in enlisted.drain(..) {
            self.directory.learn(&slot);
            self.look(now, &slot);
        }
    }

    /// Forgets slots that were disarmed, without waiting for their tick.
    ///
    /// Shape: at most `steps` slots; ends at the first that is armed, and begins there next time.
    /// So the wheel is found empty soon after the last timer was cancelled, and a busy wheel costs
    /// one check.
    pub(crate) fn reap(&mut self, steps: u32) {
        for _ in 0..steps {
            if self.wheel.is_empty() {
                return;
            }
            if self.reaped_to >= self.wheel.ids() {
                self.reaped_to = 0;
            }
            if self.wheel.deadline(self.reaped_to).is_some() {
                let slot = self.directory.slot(self.reaped_to);
                if slot.is_armed() {
                    return;
                }
                self.forget(&slot);
            }
            self.reaped_to += 1;
        }
    }

    /// Returns true if there is anything to settle, for which the heavy barrier is due.
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.announced.is_empty() || !self.claimed.is_empty()
    }

    /// Returns true if any slot was claimed.
    pub(crate) fn has_claims(&self) -> bool {
        !self.claimed.is_empty()
    }

    /// Ends the sweep, after the heavy barrier.
    ///
    /// Shape: the wakers of what fired are added to `fired`, the slots whose owner left are given
    /// to `recycle`.
    pub(crate) fn settle(
        &mut self,
        now: Tick,
        is_due: impl Fn(When) -> bool,
        fired: &mut Vec<Waker>,
        mut recycle: impl FnMut(D::Handle),
    ) {
        while let Some(id) = self.announced.pop() {
            let slot = self.directory.slot(id);
            let visit = self.wheel.deadline(id).map_or(NEVER, Tick::value);
            if let Some(deadline) = slot.deadline_before(visit) {
                // An earlier visit than the owner counted on: there is nothing to ask again.
                let visit = self.file(&slot, deadline);
                slot.announce_visit(visit);
            }
        }
        while let Some(id) = self.claimed.pop() {
            let slot = self.directory.slot(id);
            match slot.settle(&is_due) {
                Settled::Fired(waker) => fired.push(waker),
                Settled::Retired => recycle(slot),
                Settled::NotDue => {
                    // The owner may have counted on any visit up to now, so the next tick it is.
                    let visit = self.file(&slot, now.value().wrapping_add(1));
                    slot.announce_visit(visit);
                    if !slot.withdraw() {
                        recycle(slot);
                    }
                }
            }
        }
        self.announced.shrink_to(LIST_KEPT);
        self.claimed.shrink_to(LIST_KEPT);
    }

    /// Shows the slot of every timer that may be armed.
    pub(crate) fn for_each(&self, mut show: impl FnMut(&Slot)) {
        for id in 0..self.wheel.ids() {
            if self.wheel.deadline(id).is_some() {
                show(&self.directory.slot(id));
            }
        }
    }

    fn look(&mut self, now: Tick, slot: &D::Handle) {
        match slot.look(now.value()) {
            Look::Disarmed => self.forget(slot),
            Look::Later(deadline) => {
                let visit = self.file(slot, deadline);
                self.announce(slot, visit);
            }
            Look::Claimed => self.claimed.push(slot.id()),
            Look::Busy => {}
        }
    }

    fn forget(&mut self, slot: &D::Handle) {
        self.wheel.cancel(slot.id());
        self.announce(slot, NEVER);
    }

    fn announce(&mut self, slot: &D::Handle, visit: u32) {
        slot.announce_visit(visit);
        self.announced.push(slot.id());
    }

    /// Files the slot; returns the tick at which it will be visited.
    fn file(&mut self, slot: &D::Handle, deadline: u32) -> u32 {
        self.wheel.arm(slot.id(), Tick::new(deadline));
        self.wheel.deadline(slot.id()).map_or(NEVER, Tick::value)
    }
}

/// Entries for which the lists keep room between sweeps.
const LIST_KEPT: usize = 4096;
