//! Futures with a deadline.
#![expect(unsafe_code, reason = "the futures inside are pinned where they are")]

use super::clock;
use super::timer::Timer;
use crate::Elapsed;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Gives `future` at most `duration`, counted from when it is first found pending.
///
/// Shape: see [`Timeout`]. A future that is ready at once costs one poll and nothing else: no
/// clock is read, no timer armed.
/// Units: rounded up to whole ticks of 10 ms, and one for the tick in progress.
///
/// # Errors
/// [`Elapsed`] if the duration has passed; the future inside is not polled after that.
///
/// ```
/// # smol::block_on(async {
/// use dwell_timers::{Elapsed, timeout};
/// use std::time::Duration;
///
/// let limit = Duration::from_millis(20);
/// assert_eq!(timeout(limit, async { 7 }).await, Ok(7));
/// let never = std::future::pending::<()>();
/// assert_eq!(timeout(limit, never).await, Err(Elapsed));
/// # });
/// ```
#[inline]
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout {
        future: future.into_future(),
        timer: Timer::new(duration),
    }
}

/// Gives `future` until `deadline`.
///
/// Shape: like [`timeout`], but the clock is read once, when the future is first found pending. A
/// deadline that has passed lets the future be polled once.
///
/// # Errors
/// [`Elapsed`] if the deadline has passed.
///
/// ```
/// # smol::block_on(async {
/// use dwell_timers::{Elapsed, timeout_at};
/// use std::time::{Duration, Instant};
///
/// // Two steps that share one deadline.
/// let deadline = Instant::now() + Duration::from_millis(20);
/// assert_eq!(timeout_at(deadline, async { "read" }).await, Ok("read"));
/// assert_eq!(timeout_at(deadline, std::future::pending::<()>()).await, Err(Elapsed));
/// assert!(Instant::now() >= deadline);
/// # });
/// ```
#[inline]
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> TimeoutAt<F::IntoFuture> {
    TimeoutAt {
        future: future.into_future(),
        alarm: Alarm::new(deadline),
    }
}

/// Waits for `duration`, counted from the first poll.
///
/// Units: rounded up to whole ticks of 10 ms, and one for the tick in progress.
///
/// ```
/// # smol::block_on(async {
/// use dwell_timers::sleep;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// sleep(Duration::from_millis(15)).await;
/// assert!(start.elapsed() >= Duration::from_millis(15));
/// # });
/// ```
#[inline]
pub const fn sleep(duration: Duration) -> Sleep {
    Sleep {
        timer: Timer::new(duration),
    }
}

/// Waits until `deadline`; ready at once if it has passed.
///
/// ```
/// # smol::block_on(async {
/// use dwell_timers::sleep_until;
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(15);
/// sleep_until(deadline).await;
/// assert!(Instant::now() >= deadline);
/// sleep_until(deadline).await;
/// # });
/// ```
#[inline]
pub const fn sleep_until(deadline: Instant) -> SleepUntil {
    SleepUntil {
        alarm: Alarm::new(deadline),
    }
}

/// The future of [`timeout`].
///
/// Shape: polls the future inside first, so a future that is ready wins against a deadline that
/// has passed. Any thread may poll or drop it. Once it has returned `Err`, another poll polls the
/// future inside again, and says `Err` again if that is still pending.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Timeout<F> {
    future: F,
    timer: Timer,
}

/// The future of [`timeout_at`].
///
/// Shape: as [`Timeout`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct TimeoutAt<F> {
    future: F,
    alarm: Alarm,
}

/// The future of [`sleep`]. Polled after it was ready, it is ready again.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    timer: Timer,
}

/// The future of [`sleep_until`]. Polled after it was ready, it is ready again.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct SleepUntil {
    alarm: Alarm,
}

/// A timer for a point in time instead of a length of it.
#[derive(Debug)]
struct Alarm {
    timer: Timer,
    deadline: Instant,
}

impl<F> Timeout<F> {
    /// The future inside, without its deadline.
    ///
    /// ```
    /// # smol::block_on(async {
    /// use dwell_timers::timeout;
    /// use std::time::Duration;
    ///
    /// let hurried = timeout(Duration::ZERO, async { 7 });
    /// assert_eq!(hurried.into_inner().await, 7);
    /// # });
    /// ```
    pub fn into_inner(self) -> F {
        self.future
    }

    #[inline]
    fn project(self: Pin<&mut Self>) -> (Pin<&mut F>, &mut Timer) {
        // SAFETY: `future` is pinned with `self` and never moved out of a pinned one; there is no
        // `Drop` for this type, and it is `Unpin` only if `F` is, as the compiler derives it.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above. The timer is not pinned: nothing points to it.
        (
            unsafe { Pin::new_unchecked(&mut this.future) },
            &mut this.timer,
        )
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (future, timer) = self.project();
        if let Poll::Ready(output) = future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        timer.poll(cx).map(|()| Err(Elapsed))
    }
}

impl<F> TimeoutAt<F> {
    /// The future inside, without its deadline.
    pub fn into_inner(self) -> F {
        self.future
    }

    #[inline]
    fn project(self: Pin<&mut Self>) -> (Pin<&mut F>, &mut Alarm) {
        // SAFETY: as for `Timeout`.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as for `Timeout`.
        (
            unsafe { Pin::new_unchecked(&mut this.future) },
            &mut this.alarm,
        )
    }
}

impl<F: Future> Future for TimeoutAt<F> {
    type Output = Result<F::Output, Elapsed>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (future, alarm) = self.project();
        if let Poll::Ready(output) = future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        alarm.poll(cx).map(|()| Err(Elapsed))
    }
}

impl Future for Sleep {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.poll(cx)
    }
}

impl Future for SleepUntil {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll(cx)
    }
}

impl Alarm {
    const fn new(deadline: Instant) -> Self {
        Self {
            timer: Timer::new(Duration::ZERO),
            deadline,
        }
    }

    #[inline]
    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.timer.is_armed() {
            self.timer.set_duration(clock::until(self.deadline));
        }
        self.timer.poll(cx)
    }
}
