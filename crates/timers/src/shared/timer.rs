//! One timer of an owner: what `timeout`, `sleep` and `Deadline` are made of.

use super::pool::{self, SlotRef};
use super::slot::{Disarmed, Slot, When};
use super::sweeper::{self, PUBLISHED, Process};
use crate::{TICK, TICKS_AHEAD_MAX, ticks_ceil};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A timer that is armed by its first poll and disarmed when dropped.
#[derive(Debug)]
pub(crate) struct Timer {
    slot: Option<SlotRef>,
    /// The time to wait when the slot has fired, or at first.
    rest: Duration,
}

impl Timer {
    #[inline]
    pub(crate) const fn new(duration: Duration) -> Self {
        Self {
            slot: None,
            rest: duration,
        }
    }

    /// Ready once the duration has passed since the first poll, and from then on.
    #[inline]
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        match self.slot {
            Some(slot) if slot.has_fired() => self.go_on(cx.waker()),
            Some(slot) if slot.is_armed_with(cx.waker()) && !PUBLISHED.is_stopped() => {
                Poll::Pending
            }
            Some(slot) => self.poll_again(slot, cx.waker()),
            None if self.rest.is_zero() => Poll::Ready(()),
            None => {
                self.begin(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Moves the deadline of a timer that is armed with this very waker.
    ///
    /// Shape: `false` if it is not, or has fired, or `ticks` is 0 or saturates; then nothing has
    /// changed that [`Timer::restart`] does not set right.
    #[inline]
    pub(crate) fn rearm(&mut self, ticks: u32, waker: &Waker) -> bool {
        let (Some(slot), Some(base)) = (self.slot, PUBLISHED.tick()) else {
            return false;
        };
        let is_plain = ticks.wrapping_sub(1) < TICKS_AHEAD_MAX - 1;
        if !is_plain || !slot.is_armed_with(waker) {
            return false;
        }
        self.rest = Duration::ZERO;
        Slot::rearm(&slot, When::after(base, ticks), &Process)
    }

    /// Arms again, in any state.
    #[cold]
    pub(crate) fn restart(&mut self, duration: Duration, waker: &Waker) {
        let waker = (!duration.is_zero()).then(|| waker.clone());
        self.cancel();
        self.rest = duration;
        if let Some(waker) = waker {
            self.begin(waker);
        }
    }

    /// Disarms; the timer will not wake its task, unless it is doing so already.
    #[inline]
    pub(crate) fn cancel(&mut self) {
        if let Some(slot) = self.slot.take() {
            drop(leave(slot));
        }
    }

    /// Sets what is waited for by a timer that was not polled yet.
    pub(crate) fn set_duration(&mut self, duration: Duration) {
        self.rest = duration;
    }

    pub(crate) const fn is_armed(&self) -> bool {
        self.slot.is_some()
    }

    /// Arms for the rest, or for as much of it as a tick can hold.
    #[inline]
    fn begin(&mut self, waker: Waker) {
        let ticks = ticks_ceil(self.rest);
        self.rest = if ticks < TICKS_AHEAD_MAX {
            Duration::ZERO
        } else {
            self.rest.saturating_sub(TICK * TICKS_AHEAD_MAX)
        };
        self.arm(waker, When::after(sweeper::base(), ticks));
    }

    #[inline]
    fn arm(&mut self, waker: Waker, when: When) {
        let slot = pool::take();
        self.slot = Some(slot);
        Slot::arm(&slot, waker, when, &Process);
    }

    /// The slot has fired: the end, or of a very long wait a part.
    #[cold]
    fn go_on(&mut self, waker: &Waker) -> Poll<()> {
        self.cancel();
        if self.rest.is_zero() {
            return Poll::Ready(());
        }
        self.begin(waker.clone());
        Poll::Pending
    }

    /// The waker is another one, or the sweeper is gone (in the child of a `fork`, at the latest).
    #[cold]
    fn poll_again(&mut self, slot: SlotRef, waker: &Waker) -> Poll<()> {
        if PUBLISHED.is_stopped() {
            sweeper::start();
        }
        if slot.is_armed_with(waker) {
            return Poll::Pending;
        }
        let waker = waker.clone();
        let when = slot.when();
        let disarmed = Slot::disarm(&slot, &Process);
        if let Disarmed::Kept(before) = disarmed {
            Slot::arm(&slot, waker, when, &Process);
            drop(before);
            return Poll::Pending;
        }
        self.slot = None;
        if let Disarmed::Handed(before) = disarmed {
            self.arm(waker, when);
            drop(before);
            return Poll::Pending;
        }
        pool::give(slot);
        if self.rest.is_zero() {
            return Poll::Ready(());
        }
        self.begin(waker);
        Poll::Pending
    }
}

impl Drop for Timer {
    #[inline]
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Disarms a slot and gives it back; the waker, if it was not woken.
///
/// The caller drops the waker last: that may run any code, also such as arms timers or panics.
#[inline]
fn leave(slot: SlotRef) -> Option<Waker> {
    match Slot::disarm(&slot, &Process) {
        Disarmed::Kept(waker) => {
            pool::give(slot);
            Some(waker)
        }
        Disarmed::Handed(waker) => Some(waker),
        Disarmed::Fired => {
            pool::give(slot);
            None
        }
    }
}
