use super::timer::Timer;
use crate::ticks_ceil;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// One deadline that is moved again and again: what a connection keeps for its timeouts.
///
/// A connection has one of these for as long as it lives, and sets it at every read and write.
/// While it stays with one task, moving it costs two stores: no clock, no lock, no allocation, and
/// the waker is compared instead of cloned.
///
/// ```
/// use dwell_timers::Deadline;
/// use std::task::{Context, Poll, Waker};
/// use std::time::Duration;
///
/// let cx = Context::from_waker(Waker::noop());
/// let mut idle = Deadline::new();
/// assert!(idle.poll_elapsed(&cx).is_pending());
/// idle.set(Duration::from_secs(60), cx.waker());
/// idle.set(Duration::from_secs(75), cx.waker());
/// assert!(idle.poll_elapsed(&cx).is_pending());
/// idle.set(Duration::ZERO, cx.waker());
/// assert_eq!(idle.poll_elapsed(&cx), Poll::Ready(()));
/// ```
#[derive(Debug)]
pub struct Deadline {
    timer: Timer,
    is_set: bool,
}

impl Deadline {
    /// Makes a deadline that is not set.
    pub const fn new() -> Self {
        Self {
            timer: Timer::new(Duration::ZERO),
            is_set: false,
        }
    }

    /// Sets the deadline `timeout` from now, in the place of the one there was.
    ///
    /// Shape: `waker` is woken when it has elapsed; [`Deadline::poll_elapsed`] tells a wake for
    /// that from any other, such as one for the deadline before that was on its way already.
    /// Units: rounded up to whole ticks of 10 ms, and one for the tick in progress.
    #[inline]
    pub fn set(&mut self, timeout: Duration, waker: &Waker) {
        if !self.timer.rearm(ticks_ceil(timeout), waker) {
            self.timer.restart(timeout, waker);
            self.is_set = true;
        }
    }

    /// Takes the deadline away.
    #[inline]
    pub fn clear(&mut self) {
        self.timer.cancel();
        self.is_set = false;
    }

    /// Returns true if there is a deadline, elapsed or not.
    pub const fn is_set(&self) -> bool {
        self.is_set
    }

    /// Ready if the deadline has elapsed, until it is set again or cleared.
    ///
    /// Shape: pending without a deadline. The waker of `cx` takes the place of the one it was set
    /// with.
    #[inline]
    pub fn poll_elapsed(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.is_set {
            self.timer.poll(cx)
        } else {
            Poll::Pending
        }
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::new()
    }
}
