//! The queues between the loop and the workers: jobs one way, orders the other, and few wake-ups.
//!
//! Jobs that are queued wake one worker if all are asleep, not one worker each: while one runs
//! Python the others could only wait for the interpreter. Workers that block, in a query for one,
//! are made up for by the loop, which looks a millisecond later whether jobs still wait and then
//! wakes more.
//!
//! Answers wake the loop once, when the worker has no further job at hand; while there are jobs
//! the loop looks by itself every millisecond, so an answer is never held up by the next job for
//! longer.

use crate::web::address::Origin;
use crate::web::answer::WebAnswer;
use crate::web::head::Head;
use crate::web::options::Options;
use crate::web::tls::Secure;
use dwell_engine::UnderWay;
use dwell_engine::desk::{Attention, Line, Owed};
use dwell_evloop::Sender;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A request for a worker.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) owed: Arc<Owed<Meeting>>,
    pub(super) head: Head,
    pub(super) origin: Origin,
    pub(super) secure: Option<Secure>,
    pub(super) body: JobBody,
    /// Counts until the app has returned, which a reset of the request does not bring about.
    pub(super) _under_way: UnderWay,
}

/// The body of a request.
#[derive(Debug)]
pub(super) enum JobBody {
    Whole(Vec<u8>),
    Streamed,
}

/// The server serves.
const SERVING: u8 = 0;
/// It stops accepting, and ends when every client has its answer.
const DRAINING: u8 = 1;
/// It ends at once.
const STOPPED: u8 = 2;

/// Bytes of a request body that are granted ahead of the reader.
const INPUT_WINDOW: u64 = 256 * 1024;
/// Bytes of an answer that may wait for the client before its worker has to.
const OUTPUT_WINDOW: usize = 512 * 1024;

/// Time between two checks of the orders while jobs wait.
const LOOK: Duration = Duration::from_millis(1);

/// The loop is at work and looks at the orders before it waits.
const RUNNING: u8 = 0;
/// The loop waits for a millisecond at most.
const LOOKING: u8 = 1;
/// The loop waits for ever.
const WAITING: u8 = 2;

#[derive(Debug)]
pub(super) struct Meeting {
    queue: Mutex<Queue>,
    ready: Condvar,
    attention: Attention,
    loop_state: AtomicU8,
    /// The stage of the server on its way to its end.
    end: AtomicU8,
    sender: Sender<()>,
    queue_max: usize,
    /// Requests that wait or run.
    concurrency_max: usize,
    /// Workers run Python side by side: each job is worth a wake-up.
    is_parallel: bool,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    workers: usize,
    /// Jobs that were taken since the loop looked last.
    taken: usize,
    /// Jobs that were taken at all.
    taken_total: u64,
    /// Jobs that workers have.
    running: usize,
    /// Workers that were woken when it did.
    woken: usize,
    closed: bool,
}

/// One worker among those of a meeting, until it ends in whatever way: the loop wakes a worker at
/// once only where all sleep, and one that is counted and has panicked never does.
#[derive(Debug)]
pub(super) struct Place(Arc<Meeting>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.queue().workers -= 1;
    }
}

impl Meeting {
    pub(super) fn new(sender: Sender<()>, options: &Options, is_parallel: bool) -> Self {
        Self {
            queue: Mutex::default(),
            ready: Condvar::new(),
            attention: Attention::default(),
            loop_state: AtomicU8::new(RUNNING),
            end: AtomicU8::new(SERVING),
            sender,
            queue_max: options.queue_max,
            concurrency_max: options.concurrency_max,
            is_parallel,
        }
    }

    /// A worker begins; it is counted until its place is dropped.
    pub(super) fn join(self: &Arc<Self>) -> Place {
        self.queue().workers += 1;
        Place(Arc::clone(self))
    }

    /// The number of workers.
    pub(super) fn workers(&self) -> usize {
        self.queue().workers
    }

    /// Returns how many more jobs there is room for.
    pub(super) fn room(&self) -> usize {
        let queue = self.queue();
        let jobs = queue.jobs.len();
        let at_once = self.concurrency_max.saturating_sub(jobs + queue.running);
        self.queue_max.saturating_sub(jobs).min(at_once)
    }

    /// The jobs that wait, and the number of those that workers have taken so far.
    pub(super) fn progress(&self) -> (usize, u64) {
        let queue = self.queue();
        (queue.jobs.len(), queue.taken_total)
    }

    /// Queues the jobs of a turn.
    pub(super) fn offer(&self, jobs: &mut Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let mut queue = self.queue();
        let count = jobs.len();
        queue.jobs.extend(jobs.drain(..));
        let sleepers = queue.idle;
        let all_sleep = sleepers == queue.workers;
        drop(queue);
        if self.is_parallel {
            (0..count.min(sleepers)).for_each(|_| self.ready.notify_one());
        } else if all_sleep {
            self.ready.notify_one();
        }
    }

    /// Takes a job if one is there; `had` is true for a worker that has had one.
    pub(super) fn try_take(&self, had: bool) -> Option<Job> {
        let mut queue = self.queue();
        queue.running -= usize::from(had);
        let job = queue.jobs.pop_front();
        queue.taken += usize::from(job.is_some());
        queue.taken_total += u64::from(job.is_some());
        queue.running += usize::from(job.is_some());
        job
    }

    /// Waits for a job; `None` when there will be no more.
    pub(super) fn take(&self) -> Option<Job> {
        let mut queue = self.queue();
        queue.idle += 1;
        while queue.jobs.is_empty() && !queue.closed {
            let woken = self.ready.wait(queue);
            queue = woken.unwrap_or_else(PoisonError::into_inner);
        }
        queue.idle -= 1;
        let job = queue.jobs.pop_front();
        queue.taken += usize::from(job.is_some());
        queue.taken_total += u64::from(job.is_some());
        queue.running += usize::from(job.is_some());
        job
    }

    /// Lets every worker end when no job is left.
    pub(super) fn close(&self) {
        self.queue().closed = true;
        self.ready.notify_all();
    }

    /// Jobs still wait a millisecond later: wakes further workers, the more the fewer were taken.
    pub(super) fn look(&self) {
        let mut queue = self.queue();
        if queue.jobs.is_empty() || queue.idle == 0 {
            queue.woken = 0;
            queue.taken = 0;
            return;
        }
        let stuck = queue.taken <= queue.woken;
        queue.woken = if stuck { queue.woken.max(1) * 2 } else { 1 };
        queue.taken = 0;
        let count = queue.woken.min(queue.idle).min(queue.jobs.len());
        drop(queue);
        (0..count).for_each(|_| self.ready.notify_one());
    }

    /// Lets the server end when every client has its answer.
    pub(super) fn drain(&self) {
        self.end_by(DRAINING);
    }

    /// Ends the server at once.
    pub(super) fn stop(&self) {
        self.end_by(STOPPED);
    }

    fn end_by(&self, end: u8) {
        // Before the loop's state is read; the loop writes its state before it reads this.
        self.end.fetch_max(end, Ordering::SeqCst);
        self.sender.wake();
    }

    pub(super) fn is_draining(&self) -> bool {
        self.end.load(Ordering::SeqCst) >= DRAINING
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.end.load(Ordering::SeqCst) == STOPPED
    }

    /// The loop, which may know that the server drains, is about to wait: for how long at most?
    pub(super) fn before_wait(&self, is_draining: bool) -> Option<Duration> {
        let has_jobs = !self.queue().jobs.is_empty();
        let (state, wait) = if has_jobs {
            (LOOKING, Some(LOOK))
        } else {
            (WAITING, None)
        };
        self.loop_state.store(state, Ordering::SeqCst);
        let is_ending = self.is_draining() && (self.is_stopped() || !is_draining);
        if self.attention.is_any() || is_ending {
            self.loop_state.store(RUNNING, Ordering::SeqCst);
            return Some(Duration::ZERO);
        }
        wait
    }

    /// The loop runs again.
    pub(super) fn after_wait(&self) {
        self.loop_state.store(RUNNING, Ordering::SeqCst);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line for Meeting {
    type Answer = WebAnswer;
    type Takeover = Infallible;

    fn output_bytes_max(&self) -> usize {
        OUTPUT_WINDOW
    }

    fn body_window_bytes(&self) -> u64 {
        INPUT_WINDOW
    }

    fn attention(&self) -> &Attention {
        &self.attention
    }

    /// Shape: a worker that has nothing more to order takes its next job now. While there is one,
    /// the loop's next check is soon enough.
    fn wake(&self, is_last: bool) {
        let wakes = match self.loop_state.load(Ordering::SeqCst) {
            RUNNING => false,
            LOOKING if is_last => self.queue().jobs.is_empty(),
            _ => true,
        };
        if wakes {
            self.sender.wake();
        }
    }
}
