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

use super::channel::Channel;
use crate::web::address::Origin;
use crate::web::answer::{AnswerBody, AnswerHead};
use crate::web::head::Head;
use crate::web::options::Options;
use bytes::Bytes;
use dwell_engine::ExchangeId;
use dwell_evloop::Sender;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A request for a worker.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) exchange: ExchangeId,
    pub(super) head: Head,
    pub(super) origin: Origin,
    pub(super) body: JobBody,
}

/// The body of a request.
#[derive(Debug)]
pub(super) enum JobBody {
    Whole(Vec<u8>),
    Streamed(Arc<Channel>),
}

/// Orders to the loop from a worker, or from the thread that stops the server.
#[derive(Debug)]
pub(super) enum Order {
    Answer(ExchangeId, Box<(AnswerHead, AnswerBody)>),
    /// An informational answer, before the answer itself.
    Hint(ExchangeId, Box<AnswerHead>),
    Begin(ExchangeId, Box<AnswerHead>, Arc<Channel>),
    Write(ExchangeId, Bytes),
    Finish(ExchangeId),
    Abort(ExchangeId),
    /// A number of bytes of a body to grant; the channel has the state of the reader's wait.
    Want(ExchangeId, u64),
    Drain,
    Stop,
}

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
    orders: Mutex<Vec<Order>>,
    has_orders: AtomicBool,
    loop_state: AtomicU8,
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
            orders: Mutex::default(),
            has_orders: AtomicBool::new(false),
            loop_state: AtomicU8::new(RUNNING),
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

    /// Gives the loop an order; it is woken now unless it looks by itself.
    pub(super) fn order(&self, order: Order) {
        self.push(order);
        if self.loop_state.load(Ordering::SeqCst) != RUNNING {
            self.sender.wake();
        }
    }

    /// Leaves an order as [`order`](Self::order) does, by a worker that takes its next job now.
    /// While there is one, the loop's next check is soon enough.
    pub(super) fn order_before_next(&self, order: Order) {
        self.push(order);
        let wake = match self.loop_state.load(Ordering::SeqCst) {
            RUNNING => false,
            LOOKING => self.queue().jobs.is_empty(),
            _ => true,
        };
        if wake {
            self.sender.wake();
        }
    }

    fn push(&self, order: Order) {
        self.orders().push(order);
        // Before the state is read; the loop writes its state before it reads this.
        self.has_orders.store(true, Ordering::SeqCst);
    }

    /// Moves the orders into `into`, which must be empty.
    pub(super) fn take_orders(&self, into: &mut Vec<Order>) {
        if self.has_orders.swap(false, Ordering::SeqCst) {
            std::mem::swap(&mut *self.orders(), into);
        }
    }

    /// The loop is about to wait: for how long at most?
    pub(super) fn before_wait(&self) -> Option<Duration> {
        let has_jobs = !self.queue().jobs.is_empty();
        let (state, wait) = if has_jobs {
            (LOOKING, Some(LOOK))
        } else {
            (WAITING, None)
        };
        self.loop_state.store(state, Ordering::SeqCst);
        if self.has_orders.load(Ordering::SeqCst) {
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

    fn orders(&self) -> MutexGuard<'_, Vec<Order>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
