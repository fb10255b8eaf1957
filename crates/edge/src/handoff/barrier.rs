//! Rounds of all loops of a process: each takes part once, at the end of a turn, and in a pause it
//! waits there until the round is over.

use super::listeners::InheritedListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which the caller of a round checks whether to go on.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The point that all loops pass at the ends of their turns, and wait at in a pause.
#[derive(Debug, Default)]
pub(crate) struct Barrier {
    /// Read by every loop at the end of every turn; the rest is read only if it is set.
    is_wanted: AtomicBool,
    state: Mutex<BarrierState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct BarrierState {
    /// Number of the round, by which a loop notices that its own is over.
    number: u64,
    /// Loops that have not taken part since the round began.
    missing: Vec<usize>,
    /// True if a loop that takes part waits for the end of the round.
    is_pause: bool,
    sockets: Vec<InheritedListener>,
}

/// A round, which lasts until this is dropped.
#[derive(Debug)]
pub(crate) struct Round<'s>(&'s Barrier);

impl Barrier {
    /// Returns true from the begin of a round until its end.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// Takes part with one loop: waits for the end of a pause, or adds the result of `sockets` to
    /// those that [`gather`](Self::gather) returns.
    pub(crate) fn come(&self, of_loop: usize, sockets: impl FnOnce() -> Vec<InheritedListener>) {
        let mut state = self.lock();
        let Some(place) = state.missing.iter().position(|missing| *missing == of_loop) else {
            return;
        };
        state.missing.swap_remove(place);
        if !state.is_pause {
            state.sockets.extend(sockets());
        }
        self.changed.notify_all();
        let number = state.number;
        while state.is_pause && state.number == number {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until each of `loops` loops has taken part and gone on, and returns their sockets;
    /// `wake` makes them notice.
    ///
    /// Returns `None` if some loop has not taken part at the deadline, or once `may_go_on`
    /// returns false.
    pub(crate) fn gather(
        &self,
        loops: usize,
        deadline: Instant,
        wake: impl FnOnce(),
        may_go_on: impl Fn() -> bool,
    ) -> Option<Vec<InheritedListener>> {
        let _round = self.round(false, loops, wake);
        let mut state = self.all_come(deadline, may_go_on)?;
        Some(std::mem::take(&mut state.sockets))
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
    ) -> Option<Round<'_>> {
        let round = self.round(true, loops, wake);
        self.all_come(deadline, may_go_on).map(|_| round)
    }

    fn round(&self, is_pause: bool, loops: usize, wake: impl FnOnce()) -> Round<'_> {
        let mut state = self.lock();
        state.missing = (0..loops).collect();
        state.is_pause = is_pause;
        self.is_wanted.store(true, Ordering::Release);
        drop(state);
        wake();
        Round(self)
    }

    fn all_come(
        &self,
        deadline: Instant,
        may_go_on: impl Fn() -> bool,
    ) -> Option<MutexGuard<'_, BarrierState>> {
        let mut state = self.lock();
        while !state.missing.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !may_go_on() {
                return None;
            }
            let waited = self.changed.wait_timeout(state, left.min(CHECK_INTERVAL));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state)
    }

    fn lock(&self) -> MutexGuard<'_, BarrierState> {
        // Counts, which are consistent after every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        self.0.is_wanted.store(false, Ordering::Release);
        *state = BarrierState {
            number: state.number + 1,
            ..BarrierState::default()
        };
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ListenAddress, Role};
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;
    use std::thread;

    const FOREVER: Duration = Duration::from_secs(60);

    /// Runs so many loops that come to the barrier at every turn's end while `act` runs.
    fn with_loops(barrier: &Barrier, loops: usize, turns: &AtomicUsize, act: impl FnOnce()) {
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            for index in 0..loops {
                let ends = &ends;
                scope.spawn(move || {
                    while !ends.load(Ordering::Acquire) {
                        if barrier.is_wanted() {
                            barrier.come(index, Vec::new);
                        }
                        turns.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                    }
                });
            }
            act();
            ends.store(true, Ordering::Release);
        });
    }

    #[test]
    fn nobody_moves_until_it_is_over() {
        let (barrier, turns) = (Barrier::default(), AtomicUsize::new(0));
        let deadline = Instant::now() + FOREVER;
        with_loops(&barrier, 3, &turns, || {
            for _ in 0..20 {
                let round = barrier.pause(3, deadline, || {}, || true).unwrap();
                let before = turns.load(Ordering::SeqCst);
                thread::yield_now();
                assert_eq!(turns.load(Ordering::SeqCst), before);
                drop(round);
            }
        });
    }

    fn socket(name: &str) -> Vec<InheritedListener> {
        vec![InheritedListener {
            role: Role::Store,
            address: ListenAddress::Unix(name.into()),
            owns_file: false,
            descriptor: OwnedFd::from(UnixStream::pair().unwrap().0).into(),
        }]
    }

    #[test]
    fn loops_that_have_come_go_on_while_one_is_waited_for() {
        let barrier = Barrier::default();
        thread::scope(|scope| {
            let (asked, is_asked) = mpsc::channel();
            let wake = move || asked.send(()).unwrap();
            let gather = || barrier.gather(2, Instant::now() + FOREVER, wake, || true);
            let gathered = scope.spawn(gather);
            is_asked.recv().unwrap();
            // On one thread: neither of the two is held up.
            barrier.come(0, || socket("first"));
            barrier.come(0, || unreachable!("a loop comes once"));
            assert!(!gathered.is_finished());
            barrier.come(1, || socket("second"));
            let sockets = gathered.join().unwrap().unwrap();
            let names = sockets.iter().map(|socket| socket.address.clone());
            let expected = ["first", "second"].map(|name| ListenAddress::Unix(name.into()));
            assert_eq!(names.collect::<Vec<_>>(), expected);
        });
        assert!(!barrier.is_wanted());
        barrier.come(0, || unreachable!("it is over"));
    }

    #[test]
    fn one_that_does_not_come_holds_nobody_for_ever() {
        let barrier = Barrier::default();
        let now = Instant::now();
        let (never, later) = (|| false, now + FOREVER);
        assert!(barrier.pause(1, now, || {}, || true).is_none());
        assert!(barrier.pause(1, later, || {}, never).is_none());
        assert!(barrier.gather(1, now, || {}, || true).is_none());
        assert!(barrier.gather(1, later, || {}, never).is_none());
        assert!(!barrier.is_wanted());
        barrier.come(0, || unreachable!("each round is over"));
    }

    #[test]
    fn those_that_have_come_are_let_go_when_one_does_not() {
        let (barrier, may_go_on) = (Barrier::default(), AtomicBool::new(true));
        thread::scope(|scope| {
            let (asked, is_asked) = mpsc::channel();
            let wake = move || asked.send(()).unwrap();
            let paused = scope.spawn(|| {
                let goes_on = || may_go_on.load(Ordering::Acquire);
                let deadline = Instant::now() + FOREVER;
                barrier.pause(2, deadline, wake, goes_on).is_some()
            });
            is_asked.recv().unwrap();
            let first = scope.spawn(|| barrier.come(0, Vec::new));
            while barrier.lock().missing != [1] {
                thread::yield_now();
            }
            assert!(!first.is_finished());
            may_go_on.store(false, Ordering::Release);
            assert!(!paused.join().unwrap());
            first.join().unwrap();
        });
    }
}
