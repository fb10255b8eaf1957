//! Deadlines kept by the shared timers: a thread that shuts down what is overdue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use dwell_timers::Deadline;

use super::socket::Socket;

/// Ends the connection of an operation that is overdue.
///
/// To set it is a few stores: no system call, whatever the time. When it is over, the thread of
/// the shared timers shuts the socket down, which ends whatever waits on it.
#[derive(Debug)]
pub(crate) struct Reaper {
    deadline: Deadline,
    watch: Arc<Watch>,
    waker: Waker,
}

#[derive(Debug)]
struct Watch {
    socket: Arc<Socket>,
    base: Instant,
    /// Nanoseconds from `base` to the end of the operation; [`NONE`] or [`REAPED`] otherwise.
    ///
    /// A wake may be one for a deadline that was moved meanwhile, so it is this that decides.
    due_ns: AtomicU64,
}

impl Reaper {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        let watch = Arc::new(Watch {
            socket,
            base: Instant::now(),
            due_ns: AtomicU64::new(NONE),
        });
        Self {
            deadline: Deadline::new(),
            waker: Waker::from(Arc::clone(&watch)),
            watch,
        }
    }

    /// Gives the operation that began at `started` the time `limit`, of which `rest` is left.
    pub(crate) fn begin(&mut self, started: Instant, limit: Duration, rest: Duration) {
        let end = started.saturating_duration_since(self.watch.base) + limit;
        let due_ns = u64::try_from(end.as_nanos()).map_or(REAPED - 1, |ns| ns.min(REAPED - 1));
        self.watch.due_ns.store(due_ns, Ordering::SeqCst);
        self.deadline.set(rest, &self.waker);
    }

    /// Ends the watch; whether the connection was shut down.
    pub(crate) fn end(&self) -> bool {
        self.watch.due_ns.swap(NONE, Ordering::SeqCst) == REAPED
    }

    /// Returns true if the connection was shut down.
    pub(crate) fn has_reaped(&self) -> bool {
        self.watch.due_ns.load(Ordering::SeqCst) == REAPED
    }
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        let due_ns = self.due_ns.load(Ordering::SeqCst);
        if matches!(due_ns, NONE | REAPED) {
            return;
        }
        if self.base.elapsed() < Duration::from_nanos(due_ns) {
            return;
        }
        let reaped =
            self.due_ns
                .compare_exchange(due_ns, REAPED, Ordering::SeqCst, Ordering::SeqCst);
        if reaped.is_ok() {
            self.socket.shut_down();
        }
    }
}

/// No operation is in progress.
const NONE: u64 = 0;
/// The connection has been shut down.
const REAPED: u64 = u64::MAX;
