//! `fork` without a call before or after it.
//!
//! A child gets a copy of everything but the threads. The locks are taken before, so that no other
//! thread holds one at that moment; in the child the sweeper is declared gone, and the next timer
//! that is armed or polled starts another.
#![expect(
    unsafe_code,
    reason = "guards are kept between two calls of the C library"
)]

use super::pool::{self, Pool, SlotRef};
use super::sweeper::{self, State};
use super::{inbox, sys};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{MutexGuard, Once};

/// Every lock of this module's, in the order in which they are taken.
struct Guards {
    _inboxes: Vec<MutexGuard<'static, Vec<SlotRef>>>,
    _pool: MutexGuard<'static, Pool>,
    state: MutexGuard<'static, State>,
}

/// The guards during a `fork`.
struct Held(UnsafeCell<Option<Guards>>);

// SAFETY: the cell is touched by the handlers alone, on the thread that forks. Two threads cannot
// be between `prepare` and `release` at once: the second waits in `prepare` for the first lock.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Returns the number of forks between the first call and this process, counted along its
/// ancestors.
///
/// Shape: one load. An object that a child must not share, such as a connection, is kept with this
/// number: in a child the number is another one than when the object was made.
///
/// ```
/// let made_in = dwell_timers::forks();
/// assert_eq!(dwell_timers::forks(), made_in, "no fork since");
/// ```
#[inline]
pub fn forks() -> u64 {
    if !IS_WATCHED.is_completed() {
        watch();
    }
    FORKS.load(Ordering::Relaxed)
}

/// From now on, every `fork` of this process is prepared for.
pub(crate) fn watch() {
    // Where there are no handlers, a child has to do without its parent's timers.
    IS_WATCHED.call_once(|| {
        sys::call_around_fork(prepare, in_parent, in_child);
    });
}

static IS_WATCHED: Once = Once::new();
static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn prepare() {
    let state = sweeper::lock();
    let guards = Guards {
        state,
        _pool: pool::lock(),
        _inboxes: inbox::lock_all().collect(),
    };
    // SAFETY: see `Held`; the locks are held.
    unsafe { *HELD.0.get() = Some(guards) };
}

extern "C" fn in_parent() {
    drop(release());
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    if let Some(mut guards) = release() {
        guards.state.forget_thread();
    }
}

fn release() -> Option<Guards> {
    // SAFETY: see `Held`; `prepare` ran on this thread and the locks are still held.
    unsafe { (*HELD.0.get()).take() }
}
