//! Threads for handlers that block.

use super::guard::guarded;
use super::statistics::Statistics;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A bounded number of threads behind a bounded queue; threads start as they are needed.
pub(crate) struct Pool {
    workers_max: usize,
    queue_max: usize,
    state: Mutex<State>,
    available: Condvar,
    jobs: AtomicU64,
    refused: AtomicU64,
    panics: AtomicU64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    workers: usize,
    idle: usize,
    is_closed: bool,
}

impl Pool {
    pub(super) fn new(workers_max: usize, queue_max: usize) -> Self {
        Self {
            workers_max,
            queue_max,
            state: Mutex::default(),
            available: Condvar::new(),
            jobs: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a job, unless as many wait as may.
    pub(crate) fn submit(self: &Arc<Self>, job: Job) -> Result<(), PoolFull> {
        let mut state = self.lock();
        let waits = state.idle <= state.queue.len();
        if waits && state.workers < self.workers_max && self.start() {
            state.workers += 1;
            state.idle += 1;
        }
        // Jobs that an idle worker is about to take do not count.
        let waiting = state.queue.len().saturating_sub(state.idle);
        let is_full = state.idle <= state.queue.len() && waiting >= self.queue_max;
        // Without any worker the system refuses us threads: the job would never run.
        if state.is_closed || is_full || state.workers == 0 {
            drop(state);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(PoolFull {
                limit: self.queue_max,
            });
        }
        state.queue.push_back(job);
        drop(state);
        self.available.notify_one();
        Ok(())
    }

    /// Starts a worker, which counts as idle until it takes its first job.
    fn start(self: &Arc<Self>) -> bool {
        let pool = Arc::clone(self);
        let builder = thread::Builder::new().name("dwell-worker".into());
        builder.spawn(move || pool.work()).is_ok()
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                state.idle -= 1;
                drop(state);
                self.jobs.fetch_add(1, Ordering::Relaxed);
                if guarded(job).is_err() {
                    self.panics.fetch_add(1, Ordering::Relaxed);
                }
                state = self.lock();
                state.idle += 1;
            } else if state.is_closed {
                state.idle -= 1;
                state.workers -= 1;
                return;
            } else {
                let waited = self.available.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Ends the workers when they have done what they do; jobs that wait are dropped.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        // Dropped after the lock is given back: a job may own anything.
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        self.available.notify_all();
        for job in queue {
            if guarded(|| drop(job)).is_err() {
                self.panics.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn add_to(&self, sums: &mut Statistics) {
        sums.workers = self.lock().workers;
        sums.jobs = self.jobs.load(Ordering::Relaxed);
        sums.jobs_refused = self.refused.load(Ordering::Relaxed);
        sums.panics += self.panics.load(Ordering::Relaxed);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

/// All workers are busy and the queue to them is full; the client was answered 503.
///
/// ```
/// use dwell_engine::handler::PoolFull;
///
/// assert_eq!(PoolFull { limit: 1024 }.to_string(), "1024 jobs wait for a worker already");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolFull {
    /// [`worker_queue`](crate::ServerBuilder::worker_queue).
    pub limit: usize,
}

impl fmt::Display for PoolFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} jobs wait for a worker already", self.limit)
    }
}

impl std::error::Error for PoolFull {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Panics when it is dropped, as a job that owns it is.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("as the test wants it");
        }
    }

    #[test]
    fn jobs_that_wait_at_the_end_are_dropped_whatever_they_own() {
        let pool = Arc::new(Pool::new(1, 2));
        let barrier = Arc::new(Barrier::new(2));
        let busy = Arc::clone(&barrier);
        let job = move || {
            busy.wait();
            busy.wait();
        };
        pool.submit(Box::new(job)).unwrap();
        barrier.wait();
        for _ in 0..2 {
            let bomb = Bomb;
            let job = move || drop(bomb);
            pool.submit(Box::new(job)).unwrap();
        }
        assert_eq!(pool.submit(Box::new(|| ())), Err(PoolFull { limit: 2 }));
        pool.close();
        barrier.wait();
        assert!(pool.submit(Box::new(|| ())).is_err(), "it is closed");
        let mut sums = Statistics::default();
        pool.add_to(&mut sums);
        assert_eq!((sums.jobs, sums.jobs_refused, sums.panics), (1, 2, 2));
    }
}
