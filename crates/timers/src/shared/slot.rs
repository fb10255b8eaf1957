//! The protocol between the owner of an armed slot and the sweeper.
//!
//! Neither side pays for an atomic read-modify-write in the common case. The owner says what it
//! wants in `armed` and then reads what the sweeper wants; the sweeper says what it wants in
//! `claim` or `visit` and then reads `armed` again. Between the two steps each side has a
//! barrier, so at least one of them sees the other: [`Links::light`] for the owner, one heavy
//! barrier for a whole sweep on the other side (`barrier.rs`).
//!
//! Invariants of every slot:
//!
//! - A slot that is armed for `d` is in an inbox, or on a list of the sweep in progress, or in the
//!   wheel for a tick that is not after `d`.
//! - `visit` is a tick at which the sweeper will read the slot at the latest, or `NEVER` if it
//!   knows of no reason to. While the slot is in an inbox it is a tick of the past.
//! - The two words of the waker are written by the owner alone, and only while `armed` is `NEVER`
//!   and after a disarm that left the slot with the owner. They are read by the sweeper only after
//!   it has claimed the slot and then found it armed.
//!
//! This file is compiled a second time by `tests/loom.rs`, with loom's atomics.

use super::atomics::{AtomicPtr, AtomicU32, Ordering};
use std::ops::Deref;
use std::task::{RawWakerVTable, Waker};

/// One timer: 32 bytes, reused for as long as the process lives, never unmapped.
#[repr(C, align(32))]
#[derive(Debug)]
pub(crate) struct Slot {
    /// The tick to fire at; `NEVER` while disarmed. Written by the owner.
    armed: AtomicU32,
    /// The published tick that `armed` was counted from. Written by the owner.
    base: AtomicU32,
    /// See above. Written by the sweeper, and by the owner when it enlists the slot.
    visit: AtomicU32,
    /// `IDLE`, `INTENT`, `FIRED` or `RETIRED`.
    claim: AtomicU32,
    /// The first word of the waker; the next free slot while the slot is in a free list.
    waker_data: AtomicPtr<()>,
    waker_vtable: AtomicPtr<RawWakerVTable>,
}

/// A pointer to a slot, with the number that the wheel has for it.
pub(crate) trait Handle: Clone + Deref<Target = Slot> {
    fn id(&self) -> u32;
}

/// The environment of an owner: the operations that a slot needs from it.
pub(crate) trait Links<H> {
    /// The owner's half of the pair of barriers.
    fn light(&self);

    /// Puts the slot into an inbox, to be visited by the next sweep.
    ///
    /// It must call `mark` before the sweeper can find the slot there. In the other order the
    /// sweeper takes the slot out, files it, and then the late mark hides what it filed.
    fn enlist(&self, slot: &H, mark: impl FnOnce());
}

/// The deadline of a slot, and the tick from which it was counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct When {
    pub(crate) base: u32,
    pub(crate) deadline: u32,
}

/// Ownership of slot and waker after a disarm.
#[derive(Debug)]
pub(crate) enum Disarmed {
    /// The owner has the slot and the waker.
    Kept(Waker),
    /// The sweeper was looking: the owner has the waker, the sweeper recycles the slot.
    Handed(Waker),
    /// The timer fired before: the owner has the slot, the waker was woken.
    Fired,
}

/// The state in which the sweeper found a slot.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Look {
    /// It is not armed, or has fired and is not yet acknowledged.
    Disarmed,
    /// To be visited again at this tick.
    Later(u32),
    /// Seems to be due: now claimed, to be settled after the barrier.
    Claimed,
    /// Was claimed before in this sweep.
    Busy,
}

/// The outcome of a claim.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The waker is to be woken; the slot is the owner's.
    Fired(Waker),
    /// The owner left meanwhile; the slot is the sweeper's to recycle.
    Retired,
    /// Moved or disarmed meanwhile: still claimed, to be withdrawn.
    NotDue,
}

impl When {
    /// The deadline `ticks` after the end of the tick `base`, which has begun already.
    #[inline]
    pub(crate) const fn after(base: u32, ticks: u32) -> Self {
        let deadline = base.wrapping_add(1).wrapping_add(ticks);
        Self {
            base,
            deadline: if deadline == NEVER { 0 } else { deadline },
        }
    }
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self {
            armed: AtomicU32::new(NEVER),
            base: AtomicU32::new(0),
            visit: AtomicU32::new(NEVER),
            claim: AtomicU32::new(IDLE),
            waker_data: AtomicPtr::new(std::ptr::null_mut()),
            waker_vtable: AtomicPtr::new(std::ptr::null_mut()),
        }
    }
}

/// The owner's side.
impl Slot {
    /// Arms a slot that is disarmed and the caller's.
    #[inline]
    pub(crate) fn arm<H: Handle>(slot: &H, waker: Waker, when: When, links: &impl Links<H>) {
        slot.keep_waker(waker);
        slot.state_deadline(when);
        links.light();
        Self::enlist_if_late(slot, when, links);
    }

    /// Moves the deadline of an armed slot, keeping its waker.
    ///
    /// Shape: `false` if the sweeper has claimed the slot, and may fire it for the deadline it had
    /// before; the caller then has to disarm it and arm another.
    #[inline]
    pub(crate) fn rearm<H: Handle>(slot: &H, when: When, links: &impl Links<H>) -> bool {
        slot.state_deadline(when);
        links.light();
        if slot.claim.load(Ordering::Acquire) != IDLE {
            return false;
        }
        Self::enlist_if_late(slot, when, links);
        true
    }

    /// Disarms a slot that the caller has armed, whether or not it has fired since.
    #[inline]
    pub(crate) fn disarm<H: Handle>(slot: &H, links: &impl Links<H>) -> Disarmed {
        slot.armed.store(NEVER, Ordering::Release);
        links.light();
        if slot.claim.load(Ordering::Acquire) == IDLE {
            let (data, vtable) = slot.waker_words();
            Disarmed::Kept(waker_of(data, vtable))
        } else {
            slot.disarm_claimed()
        }
    }

    #[cold]
    fn disarm_claimed(&self) -> Disarmed {
        // Before the slot is left: the sweeper may recycle it at once, and the next owner then
        // writes a waker of his own.
        let (data, vtable) = self.waker_words();
        let left =
            self.claim
                .compare_exchange(INTENT, RETIRED, Ordering::AcqRel, Ordering::Acquire);
        match left {
            Ok(_) => Disarmed::Handed(waker_of(data, vtable)),
            Err(FIRED) => {
                self.claim.store(IDLE, Ordering::Release);
                Disarmed::Fired
            }
            // The sweeper has withdrawn its claim meanwhile.
            Err(_) => Disarmed::Kept(waker_of(data, vtable)),
        }
    }

    /// Returns true if the sweeper has taken the waker and woken it, or is about to.
    #[inline]
    pub(crate) fn has_fired(&self) -> bool {
        self.claim.load(Ordering::Acquire) == FIRED
    }

    /// Returns true if `waker` is the one that the slot was armed with, word for word.
    #[inline]
    pub(crate) fn is_armed_with(&self, waker: &Waker) -> bool {
        let (data, vtable) = self.waker_words();
        std::ptr::eq(data.cast_const(), waker.data())
            && std::ptr::eq(vtable.cast_const(), waker.vtable())
    }

    /// Returns the deadline of an armed slot of the caller.
    pub(crate) fn when(&self) -> When {
        When {
            base: self.base.load(Ordering::Relaxed),
            deadline: self.armed.load(Ordering::Relaxed),
        }
    }

    #[inline]
    fn state_deadline(&self, when: When) {
        self.base.store(when.base, Ordering::Relaxed);
        self.armed.store(when.deadline, Ordering::Release);
    }

    #[inline]
    fn enlist_if_late<H: Handle>(slot: &H, when: When, links: &impl Links<H>) {
        if is_after(slot.visit.load(Ordering::Relaxed), when.deadline) {
            // The base is a tick of the past, and so says that a look is coming.
            links.enlist(slot, || slot.visit.store(when.base, Ordering::Relaxed));
        }
    }

    #[inline]
    fn keep_waker(&self, waker: Waker) {
        let waker = std::mem::ManuallyDrop::new(waker);
        let vtable = std::ptr::from_ref(waker.vtable()).cast_mut();
        self.waker_data
            .store(waker.data().cast_mut(), Ordering::Relaxed);
        self.waker_vtable.store(vtable, Ordering::Relaxed);
    }

    /// The waker, taken apart.
    #[inline]
    fn waker_words(&self) -> (*mut (), *mut RawWakerVTable) {
        let data = self.waker_data.load(Ordering::Relaxed);
        (data, self.waker_vtable.load(Ordering::Relaxed))
    }
}

/// The sweeper's side, before the barrier.
impl Slot {
    pub(crate) fn look(&self, now: u32) -> Look {
        match self.claim.load(Ordering::Acquire) {
            IDLE => {}
            INTENT => return Look::Busy,
            _ => return Look::Disarmed,
        }
        let deadline = self.armed.load(Ordering::Acquire);
        if deadline == NEVER {
            Look::Disarmed
        } else if is_after(deadline, now) {
            Look::Later(deadline)
        } else {
            self.claim.store(INTENT, Ordering::Relaxed);
            Look::Claimed
        }
    }

    /// Announces the tick at which the slot will be visited, or `NEVER`.
    ///
    /// The caller has to check [`Slot::deadline_before`] after the next heavy barrier, unless the
    /// tick is the very next one: the owner may have counted on the earlier visit.
    pub(crate) fn announce_visit(&self, visit: u32) {
        self.visit.store(visit, Ordering::Relaxed);
    }

    /// Returns true if the owner wants the slot to stay armed.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Acquire) != NEVER
    }

    pub(crate) fn base(&self) -> u32 {
        self.base.load(Ordering::Relaxed)
    }
}

/// The sweeper's side, after the barrier.
impl Slot {
    /// Returns the deadline of a slot that was armed before `visit` without an inbox entry for the
    /// sweeper.
    pub(crate) fn deadline_before(&self, visit: u32) -> Option<u32> {
        if self.claim.load(Ordering::Acquire) != IDLE {
            return None;
        }
        let deadline = self.armed.load(Ordering::Acquire);
        let untold = self.visit.load(Ordering::Relaxed) == visit;
        (deadline != NEVER && untold && is_after(visit, deadline)).then_some(deadline)
    }

    /// Fires a claimed slot, if it still is due.
    pub(crate) fn settle(&self, is_due: impl FnOnce(When) -> bool) -> Settled {
        let deadline = self.armed.load(Ordering::Acquire);
        let base = self.base.load(Ordering::Relaxed);
        if deadline == NEVER || !is_due(When { base, deadline }) {
            return Settled::NotDue;
        }
        let (data, vtable) = self.waker_words();
        // Before the slot is handed over: afterwards `visit` may be about the owner's next timer.
        self.visit.store(NEVER, Ordering::Relaxed);
        if self.leave_claim(FIRED) {
            Settled::Fired(waker_of(data, vtable))
        } else {
            Settled::Retired
        }
    }

    /// Drops a claim; `false` if the owner has left, and the slot is the sweeper's to recycle.
    pub(crate) fn withdraw(&self) -> bool {
        self.leave_claim(IDLE)
    }

    fn leave_claim(&self, to: u32) -> bool {
        let left = self
            .claim
            .compare_exchange(INTENT, to, Ordering::AcqRel, Ordering::Acquire);
        if left.is_err() {
            self.claim.store(IDLE, Ordering::Release);
        }
        left.is_ok()
    }
}

/// The links of free lists, kept in the place of the waker. Only the holder of the free slot uses
/// them.
impl Slot {
    #[inline]
    pub(crate) fn next_free(&self) -> *mut () {
        self.waker_data.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn link_free(&self, next: *mut ()) {
        self.waker_data.store(next, Ordering::Relaxed);
    }

    /// The next list, in the first slot of a list.
    pub(crate) fn next_list(&self) -> *mut () {
        self.waker_vtable.load(Ordering::Relaxed).cast()
    }

    pub(crate) fn link_list(&self, next: *mut ()) {
        self.waker_vtable.store(next.cast(), Ordering::Relaxed);
    }
}

#[inline]
#[expect(unsafe_code, reason = "a waker is kept as its two words")]
fn waker_of(data: *mut (), vtable: *mut RawWakerVTable) -> Waker {
    // SAFETY: the two words are those of one waker that `keep_waker` took apart and did not drop,
    // and only one side puts it together again. The owner does after a disarm that found `IDLE`,
    // or whose exchange from `INTENT` succeeded; the sweeper after its own exchange from `INTENT`
    // succeeded. Of two exchanges from `INTENT` one fails, and when the owner found `IDLE` the
    // sweeper's look at `armed` after the heavy barrier finds `NEVER`, or the next deadline with
    // the next waker (`tests/loom.rs` tries every order). The vtable is `&'static`.
    unsafe { Waker::new(data.cast_const(), &*vtable) }
}

/// Returns true if `tick` lies after `other`, the shorter way round; `NEVER` lies after all of
/// them.
#[inline]
pub(crate) const fn is_after(tick: u32, other: u32) -> bool {
    tick == NEVER || tick.wrapping_sub(other).wrapping_sub(1) < 1 << 31
}

/// The value for no tick: no timer is armed for it, and no visit announced.
pub(crate) const NEVER: u32 = u32::MAX;

/// The slot is the owner's; the sweeper has no business with it.
const IDLE: u32 = 0;
/// The sweeper thinks the slot is due.
const INTENT: u32 = 1;
/// The sweeper took the waker; the slot is the owner's once it has acknowledged that.
const FIRED: u32 = 2;
/// The owner left while the sweeper was deciding; the slot is the sweeper's.
const RETIRED: u32 = 3;
