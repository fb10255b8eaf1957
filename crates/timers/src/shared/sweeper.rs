//! The one thread that publishes the tick and fires timers.
//!
//! Its state belongs to a static, not to the thread: a sweeper that died is replaced by one that
//! goes on with the same wheel. Each carries a generation, and one whose generation is over does
//! nothing more, so there are never two that sweep. With nothing armed it parks, and the next
//! timer that has to go through an inbox wakes it.

use super::barrier::Barrier;
use super::clock::{self, TICK_NS};
use super::gaps::Gaps;
use super::pool::{self, Pages, SlotRef};
use super::published::{Published, STOPPED};
use super::slot::{Links, When, is_after};
use super::sweep::Sweep;
use super::{fork, inbox};
use crate::{TICK, Tick};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

/// The inboxes and the light barrier, which the owners of slots use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process;

/// The state that a sweeper leaves to the next one.
#[derive(Debug)]
pub(crate) struct State {
    /// The number of the thread that is the sweeper.
    generation: u32,
    /// True while that thread runs or is parked, as far as is known.
    is_alive: bool,
    /// True while a test moves the clock by hand and sweeps on a thread of its own.
    pub(super) is_manual: bool,
    /// Turns in a row that found nothing armed.
    empty_turns: u32,
    /// Turns of the sweeper, ever.
    pub(super) turns: u64,
    /// Sweepers that were started, ever.
    pub(super) starts: u64,
    /// Ticks that were published too late, ever.
    pub(super) late_ticks: u64,
    sweep: Sweep<Pages>,
    gaps: Gaps,
    enlisted: Vec<SlotRef>,
}

/// The tick from which timers are counted that are armed now. It is stopped at first.
pub(crate) static PUBLISHED: Published = Published::new(AtomicU64::new(STOPPED));
static BARRIER: Barrier = Barrier::new();
static STATE: Mutex<State> = Mutex::new(State {
    generation: 0,
    is_alive: false,
    is_manual: false,
    empty_turns: 0,
    turns: 0,
    starts: 0,
    late_ticks: 0,
    sweep: Sweep::new(Tick::new(0), Pages::new()),
    gaps: Gaps::new(),
    enlisted: Vec::new(),
});
/// The condition on which a parked sweeper waits.
static UNPARKED: Condvar = Condvar::new();

impl Links<SlotRef> for Process {
    #[inline]
    fn light(&self) {
        BARRIER.light();
    }

    #[cold]
    fn enlist(&self, slot: &SlotRef, mark: impl FnOnce()) {
        let waiting = inbox::add(*slot, mark);
        // The lock of the inbox orders this behind the sweeper's last look into it: either that
        // look found the slot, or this finds the tick stopped.
        if PUBLISHED.is_stopped_by_now() {
            start();
        } else if waiting.is_multiple_of(WATCHED_EVERY) {
            watch();
        }
    }
}

/// The tick to count from. A sweeper that is parked, dead or not yet there is started.
#[inline]
pub(crate) fn base() -> u32 {
    PUBLISHED.tick().unwrap_or_else(start)
}

/// Starts or wakes the sweeper; the tick in progress.
///
/// Shape: does not fail. When no thread can be had the tick stays stopped, what is armed waits in
/// its inbox, and the next arming or poll tries again.
#[cold]
pub(crate) fn start() -> u32 {
    let mut state = lock();
    let tick = clock::tick_of(clock::now_ns());
    if PUBLISHED.is_stopped() && !state.is_manual && (state.is_alive || state.replace()) {
        state.empty_turns = 0;
        PUBLISHED.publish(tick);
        UNPARKED.notify_all();
    }
    tick
}

/// Replaces a sweeper that has not published between two checks, more than a second apart.
///
/// Shape: never waits. A waker that blocks leads here. The blocked sweeper later wakes the rest of
/// its wakers, and then finds that its generation is over.
#[cold]
fn watch() {
    /// The tick found stale last time, and in which millisecond.
    static SUSPECTED: AtomicU64 = AtomicU64::new(0);
    let now = clock::now_ns();
    let published = PUBLISHED.last_tick();
    if clock::tick_of(now).wrapping_sub(published) < STUCK_TICKS || PUBLISHED.is_stopped() {
        return;
    }
    let millisecond = (now / 1_000_000) as u32;
    let suspected = SUSPECTED.load(Ordering::Relaxed);
    if suspected as u32 != published {
        let suspicion = u64::from(millisecond) << 32 | u64::from(published);
        SUSPECTED.store(suspicion, Ordering::Relaxed);
    } else if millisecond.wrapping_sub((suspected >> 32) as u32) >= STUCK_MS
        && let Ok(mut state) = STATE.try_lock()
        && PUBLISHED.last_tick() == published
        && !state.is_manual
    {
        state.replace();
    }
}

/// The state. It waits for a sweep in progress, but not for wakers.
pub(super) fn lock() -> MutexGuard<'static, State> {
    // After a panic in a sweep the lists may be half done; the next sweep does the other half.
    STATE.lock().unwrap_or_else(|poisoned| {
        STATE.clear_poison();
        poisoned.into_inner()
    })
}

/// Wakes all; a waker that panics affects no other.
pub(super) fn wake(fired: &mut Vec<Waker>) {
    for waker in fired.drain(..) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            // Dropping what was thrown could panic again.
            std::mem::forget(payload);
        }
    }
    fired.shrink_to(WAKERS_KEPT);
}

/// The thread's program.
fn run(generation: u32) {
    let guard = Alive { generation };
    let mut fired = Vec::with_capacity(WAKERS_KEPT);
    loop {
        let passed = clock::now_ns() % TICK_NS;
        clock::pause(Duration::from_nanos(TICK_NS - passed));
        let mut state = lock();
        while state.generation == generation && (PUBLISHED.is_stopped() || state.is_manual) {
            state = UNPARKED.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.generation != generation {
            break;
        }
        state.turn(&mut fired);
        drop(state);
        wake(&mut fired);
    }
    drop(guard);
}

/// Marks on drop that the sweeper is gone, also when it panicked.
struct Alive {
    generation: u32,
}

impl Drop for Alive {
    fn drop(&mut self) {
        let mut state = lock();
        if state.generation == self.generation {
            state.is_alive = false;
            state.stop_tick();
        }
    }
}

impl State {
    /// Starts a new sweeper in the place of the old one, if there is one; `false` if that failed.
    fn replace(&mut self) -> bool {
        fork::watch();
        BARRIER.register();
        self.gaps.reserve();
        self.enlisted.reserve(WAKERS_KEPT);
        let generation = self.generation.wrapping_add(1);
        let thread = std::thread::Builder::new().name("dwell-timers".into());
        let is_started = thread.spawn(move || run(generation)).is_ok();
        if is_started {
            self.generation = generation;
            self.is_alive = true;
            self.starts += 1;
        }
        is_started
    }

    /// Forgets the sweeper's thread in the child of a `fork`, where it does not exist.
    pub(super) fn forget_thread(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.is_alive = false;
        self.stop_tick();
    }

    /// Publishes the tick, fires what is due, and parks if nothing is armed.
    fn turn(&mut self, fired: &mut Vec<Waker>) {
        self.turns += 1;
        let before = PUBLISHED.last_tick();
        let now = clock::tick_of(clock::now_ns());
        PUBLISHED.publish(now);
        self.note_gap(before);
        self.sweep(Tick::new(now), fired);
        if self.sweep.is_empty() {
            self.empty_turns += 1;
            if self.empty_turns >= PARKED_AFTER_TURNS {
                self.park();
            }
        } else {
            self.empty_turns = 0;
        }
    }

    /// Stops the tick. A timer that was counted from it when it was long over waits longer for
    /// that.
    fn stop_tick(&mut self) {
        if !PUBLISHED.is_stopped() {
            let last = PUBLISHED.last_tick();
            PUBLISHED.stop();
            self.note_gap(last);
        }
    }

    /// Notes the largest possible gap, if `before` was published for too long.
    ///
    /// The clock is read after the next tick was published, so that no timer is counted from
    /// `before` later than that.
    fn note_gap(&mut self, before: u32) {
        let now_ns = clock::now_ns();
        let ticks = clock::tick_of(now_ns).wrapping_sub(before);
        let over_ns = u64::from(ticks) * TICK_NS + now_ns % TICK_NS;
        let late_ns = over_ns.saturating_sub(TICK_NS + PHASE_NS);
        if late_ns > 0 {
            self.late_ticks += 1;
            self.gaps.note(before, late_ns.div_ceil(TICK_NS) as u32);
            if self.gaps.is_full() {
                let Self { gaps, sweep, .. } = self;
                gaps.prune(clock::tick_of(now_ns), |show| {
                    sweep.for_each(|slot| show(slot.base()));
                });
            }
        }
    }

    pub(super) fn sweep(&mut self, now: Tick, fired: &mut Vec<Waker>) {
        inbox::drain(&mut self.enlisted);
        self.sweep.collect(now, &mut self.enlisted);
        self.enlisted.shrink_to(WAKERS_KEPT);
        if now.value().is_multiple_of(REAPED_EVERY_TICKS) {
            self.sweep.reap(REAPED_MAX);
        }
        if !self.sweep.is_unsettled() {
            return;
        }
        if self.sweep.has_claims() && !self.is_manual {
            await_phase(now.value());
        }
        BARRIER.heavy();
        let gaps = &self.gaps;
        let is_due = |when: When| {
            let deadline = when.deadline.wrapping_add(gaps.extra_ticks(when.base));
            !is_after(deadline, now.value())
        };
        self.sweep.settle(now, is_due, fired, pool::give_to_all);
    }

    /// A tick not after the next visit of a slot.
    pub(super) const fn next_look(&self) -> Option<Tick> {
        self.sweep.next_look()
    }

    /// Returns true if a timer may be armed.
    pub(super) fn is_needed(&self) -> bool {
        !self.sweep.is_empty() || !inbox::are_empty()
    }

    /// Stops the tick, unless a timer came in meanwhile.
    fn park(&mut self) {
        self.stop_tick();
        if !inbox::are_empty() {
            PUBLISHED.publish(clock::tick_of(clock::now_ns()));
        }
        self.empty_turns = 0;
    }
}

/// Waits until a time in the tick by which the tick before was surely not published any more.
fn await_phase(tick: u32) {
    let now_ns = clock::now_ns();
    let passed_ns = now_ns % TICK_NS;
    if clock::tick_of(now_ns) == tick && passed_ns < PHASE_NS {
        clock::pause(Duration::from_nanos(PHASE_NS - passed_ns));
    }
}

/// Time into a tick up to which the tick before may still be published, and from which it fires:
/// 0.5 ms.
const PHASE_NS: u64 = TICK_NS / 20;
/// A second without a timer, so that a timer now and then does not wake the sweeper each time.
const PARKED_AFTER_TURNS: u32 = 100;
/// Ticks between two searches for disarmed slots, and the most that one search takes.
const REAPED_EVERY_TICKS: u32 = 8;
const REAPED_MAX: u32 = 4096;
/// Wakers and slots for which the lists keep room.
const WAKERS_KEPT: usize = 4096;
/// The number of waiting entries of an inbox after which the sweeper is checked each time: an inbox
/// that is emptied 100 times a second rarely gets there.
const WATCHED_EVERY: usize = 64;
const STUCK_TICKS: u32 = 2 * TICKS_PER_SECOND;
const STUCK_MS: u32 = 1000;
const TICKS_PER_SECOND: u32 = (1000 / TICK.as_millis()) as u32;

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::timeout;
    use std::future::pending;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake};
    use std::thread::{self, Thread};

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    #[test]
    fn a_timer_counted_from_a_stale_tick_is_not_early_when_the_sweeper_is_lost() {
        const LENGTH: Duration = Duration::from_millis(40);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        // The sweeper runs.
        let mut first = pin!(timeout(LENGTH, pending::<()>()));
        assert!(first.as_mut().poll(&mut context).is_pending());

        // As long as the state is locked, no sweeper replaces the tick.
        let mut state = lock();
        let overdue = PUBLISHED.last_tick();
        while clock::tick_of(clock::now_ns()).wrapping_sub(overdue) < 8 {
            clock::pause(TICK);
        }
        let start = clock::now_ns();
        let mut armed = pin!(timeout(LENGTH, pending::<()>()));
        assert!(armed.as_mut().poll(&mut context).is_pending());
        assert_eq!(
            PUBLISHED.tick(),
            Some(overdue),
            "it was counted from the stale tick"
        );
        state.forget_thread();
        drop(state);

        // The next poll starts another.
        while armed.as_mut().poll(&mut context) == Poll::Pending {
            thread::park_timeout(TICK);
        }
        let passed = Duration::from_nanos(clock::now_ns() - start);
        assert!(passed >= LENGTH, "fired after {passed:?}");
    }
}
