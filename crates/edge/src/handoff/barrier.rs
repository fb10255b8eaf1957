//! A pause of all loops of a process, at the ends of their turns.

use super::listeners::InheritedListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which `pause` checks whether to go on.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The point where the loops wait until all of them do.
#[derive(Debug, Default)]
pub(crate) struct Barrier {
    /// Read by every loop at the end of every turn; the rest is read only if it is set.
    is_wanted: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the pause, by which a loop notices that its own is over.
    number: u64,
    is_wanted: bool,
    waiting: usize,
    sockets: Vec<InheritedListener>,
}

/// A pause, which lasts until this is dropped.
#[derive(Debug)]
pub(crate) struct Paused<'s>(&'s Barrier);

impl Barrier {
    /// Returns true from the begin of a pause until its end.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// Waits for the end of the pause, if there is one, and adds the result of `sockets` to those
    /// that [`pause`](Self::pause) returns.
    pub(crate) fn wait(&self, sockets: impl FnOnce() -> Vec<InheritedListener>) {
        if !self.is_wanted() {
            return;
        }
        let sockets = sockets();
        let mut state = self.lock();
        if !state.is_wanted {
            return;
        }
        state.waiting += 1;
        state.sockets.extend(sockets);
        self.changed.notify_all();
        let number = state.number;
        while state.number == number {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Pauses `loops` loops; `wake` makes them notice.
    ///
    /// Returns `None`, and all loops go on, if some loop does not wait at the deadline, or once
    /// `may_go_on` returns false.
    pub(crate) fn pause(
        &self,
        loops: usize,
        deadline: Instant,
        wake: impl FnOnce(),
        may_go_on: impl Fn() -> bool,
    ) -> Option<(Paused<'_>, Vec<InheritedListener>)> {
        let mut state = self.lock();
        state.is_wanted = true;
        self.is_wanted.store(true, Ordering::Release);
        let paused = Paused(self);
        wake();
        while state.waiting < loops {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !may_go_on() {
                drop(state);
                return None;
            }
            let waited = self.changed.wait_timeout(state, left.min(CHECK_INTERVAL));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let sockets = std::mem::take(&mut state.sockets);
        drop(state);
        Some((paused, sockets))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Counts, which are consistent after every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        self.0.is_wanted.store(false, Ordering::Release);
        *state = State {
            number: state.number + 1,
            ..State::default()
        };
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn nobody_moves_until_it_is_over() {
        let barrier = Barrier::default();
        let ends = AtomicBool::new(false);
        let deadline = Instant::now() + Duration::from_secs(60);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !ends.load(Ordering::Acquire) {
                        barrier.wait(Vec::new);
                        thread::yield_now();
                    }
                });
            }
            for _ in 0..20 {
                let (paused, _) = barrier.pause(3, deadline, || {}, || true).unwrap();
                assert_eq!(barrier.lock().waiting, 3);
                drop(paused);
            }
            ends.store(true, Ordering::Release);
        });
    }

    #[test]
    fn one_that_does_not_come_holds_nobody_for_ever() {
        let barrier = Barrier::default();
        let now = Instant::now();
        assert!(barrier.pause(1, now, || {}, || true).is_none());
        let later = now + Duration::from_secs(60);
        assert!(barrier.pause(1, later, || {}, || false).is_none());
        barrier.wait(Vec::new);
    }
}
