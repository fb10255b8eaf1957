//! All loops of a process standing still at the ends of their turns, for a moment.

use super::Handed;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often it is asked whether to go on.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Where the loops wait.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    /// Read by every loop at every turn's end; the rest only when it is set.
    is_wanted: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Counts the standstills, so that a loop knows that its own is over.
    number: u64,
    is_wanted: bool,
    standing: usize,
    sockets: Vec<Handed>,
}

/// The loops stand still until this is dropped.
#[derive(Debug)]
pub(super) struct Standing<'s>(&'s Standstill);

impl Standstill {
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// Stands still if it is wanted, and gives the sockets that `sockets` makes.
    pub(crate) fn stand(&self, sockets: impl FnOnce() -> Vec<Handed>) {
        if !self.is_wanted() {
            return;
        }
        let sockets = sockets();
        let mut state = self.lock();
        if !state.is_wanted {
            return;
        }
        state.standing += 1;
        state.sockets.extend(sockets);
        self.changed.notify_all();
        let number = state.number;
        while state.number == number {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until so many loops stand still, which `wake` makes them look for; `None` where not
    /// all do before the deadline, or `may_go_on` says no, and all go on.
    pub(super) fn begin(
        &self,
        loops: usize,
        deadline: Instant,
        wake: impl FnOnce(),
        may_go_on: impl Fn() -> bool,
    ) -> Option<(Standing<'_>, Vec<Handed>)> {
        let mut state = self.lock();
        state.is_wanted = true;
        self.is_wanted.store(true, Ordering::Release);
        let standing = Standing(self);
        wake();
        while state.standing < loops {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !may_go_on() {
                drop(state);
                return None;
            }
            let waited = self.changed.wait_timeout(state, left.min(LOOK_INTERVAL));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let sockets = std::mem::take(&mut state.sockets);
        drop(state);
        Some((standing, sockets))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Counts only, each right after every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Standing<'_> {
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
        let standstill = Standstill::default();
        let ends = AtomicBool::new(false);
        let deadline = Instant::now() + Duration::from_secs(60);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !ends.load(Ordering::Acquire) {
                        standstill.stand(Vec::new);
                        thread::yield_now();
                    }
                });
            }
            for _ in 0..20 {
                let (standing, _) = standstill.begin(3, deadline, || {}, || true).unwrap();
                assert_eq!(standstill.lock().standing, 3);
                drop(standing);
            }
            ends.store(true, Ordering::Release);
        });
    }

    #[test]
    fn one_that_does_not_come_holds_nobody_for_ever() {
        let standstill = Standstill::default();
        let now = Instant::now();
        assert!(standstill.begin(1, now, || {}, || true).is_none());
        let later = now + Duration::from_secs(60);
        assert!(standstill.begin(1, later, || {}, || false).is_none());
        standstill.stand(Vec::new);
    }
}
