use super::clock::{self, TICK_NS};
use super::sweeper::{self, PUBLISHED};
use crate::Tick;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A clock moved by hand, for tests: no test has to wait for its timers.
///
/// While there is one, the shared timers of the *whole process* stand still but for
/// [`ManualClock::advance`]; [`Wheel`](crate::Wheel) is given its ticks and is not concerned. Tests
/// that run side by side take turns: [`ManualClock::install`] waits for the clock before it to be
/// dropped. Afterwards real time goes on.
///
/// [`timeout_at`](crate::timeout_at) and [`sleep_until`](crate::sleep_until) read the real clock to
/// find how much time is left, and then wait for the manual one.
///
/// ```
/// use dwell_timers::{ManualClock, sleep};
/// use std::task::{Context, Waker};
/// use std::{future::Future, pin::pin, time::Duration};
///
/// let clock = ManualClock::install();
/// let mut day = pin!(sleep(Duration::from_secs(86_400)));
/// let mut cx = Context::from_waker(Waker::noop());
/// assert!(day.as_mut().poll(&mut cx).is_pending());
/// clock.advance(Duration::from_secs(86_399));
/// assert!(day.as_mut().poll(&mut cx).is_pending());
/// clock.advance(Duration::from_secs(2));
/// assert!(day.as_mut().poll(&mut cx).is_ready());
/// ```
#[derive(Debug)]
pub struct ManualClock {
    _only_one: MutexGuard<'static, ()>,
}

impl ManualClock {
    /// Has the clock stand still.
    pub fn install() -> Self {
        let only_one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = sweeper::lock();
        state.is_manual = true;
        PUBLISHED.publish(clock::tick_of(clock::stand_still()));
        Self {
            _only_one: only_one,
        }
    }

    /// Moves the clock on, and fires on this thread what becomes due, in order of tick.
    ///
    /// Shape: what a woken task arms counts from the tick it was woken in.
    /// Units: nanoseconds; ticks are 10 ms long and begin somewhere. The clock ends after 292
    /// years, and stands still there.
    pub fn advance(&self, duration: Duration) {
        let target_ns = clock::after(clock::now_ns(), duration);
        let mut fired = Vec::new();
        loop {
            // What was armed since the last sweep has to be filed before the next tick is known.
            let next = sweep(clock::now_ns(), &mut fired);
            let now_ns = clock::now_ns();
            let ticks_left = (target_ns / TICK_NS).saturating_sub(now_ns / TICK_NS);
            if ticks_left == 0 {
                break;
            }
            // A wheel must not be moved by half of the circle of ticks at once.
            let ticks = ticks_left.min(next.unwrap_or(u64::MAX)).min(STEP_TICKS_MAX);
            sweep((now_ns / TICK_NS + ticks) * TICK_NS, &mut fired);
        }
        clock::move_to(target_ns);
    }
}

impl Drop for ManualClock {
    fn drop(&mut self) {
        let mut state = sweeper::lock();
        state.is_manual = false;
        clock::go_on();
        // The next timer that is armed or polled starts the sweeper, or the lines below do.
        PUBLISHED.stop();
        let is_needed = state.is_needed();
        drop(state);
        if is_needed {
            sweeper::start();
        }
    }
}

/// Sweeps at a time; how many ticks later the next look is due.
fn sweep(now_ns: u64, fired: &mut Vec<std::task::Waker>) -> Option<u64> {
    let now = Tick::new(clock::tick_of(now_ns));
    let mut state = sweeper::lock();
    clock::move_to(now_ns);
    PUBLISHED.publish(now.value());
    state.sweep(now, fired);
    let next = state.next_look();
    drop(state);
    sweeper::wake(fired);
    next.map(|next| u64::from(next.ticks_since(now)).max(1))
}

const STEP_TICKS_MAX: u64 = crate::TICKS_AHEAD_MAX as u64;
static ONE: Mutex<()> = Mutex::new(());
