use super::clock;
use super::timer::Timer;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Ticks at once, and then every `period`.
///
/// # Panics
/// If `period` is zero.
///
/// ```
/// # smol::block_on(async {
/// use dwell_timers::interval;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let mut beat = interval(Duration::from_millis(20));
/// for _ in 0..3 {
///     beat.tick().await; // At once, then every 20 ms.
/// }
/// assert!(start.elapsed() >= Duration::from_millis(40));
/// # });
/// ```
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "the period of an interval is zero");
    Interval {
        period,
        next_ns: None,
        timer: Timer::new(Duration::ZERO),
    }
}

/// The periods of [`interval`], counted from its first poll.
///
/// Shape: does not drift, however late each tick is noticed: the n-th comes not before `n` periods
/// after the first. Ticks that were missed are skipped, not caught up.
#[derive(Debug)]
pub struct Interval {
    period: Duration,
    /// The time at which the next tick is due; the first is due at the first poll.
    next_ns: Option<u64>,
    timer: Timer,
}

impl Interval {
    /// Waits for the next tick.
    ///
    /// Shape: nothing is lost when this future is dropped.
    pub async fn tick(&mut self) {
        std::future::poll_fn(|cx| self.poll_tick(cx)).await;
    }

    /// Ready once for each tick.
    pub fn poll_tick(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.timer.is_armed() {
            let now_ns = clock::now_ns();
            let next_ns = *self.next_ns.get_or_insert(now_ns);
            let left_ns = next_ns.saturating_sub(now_ns);
            self.timer.set_duration(Duration::from_nanos(left_ns));
        }
        ready!(self.timer.poll(cx));
        self.next_ns = self.next_ns.map(|due_ns| self.first_after(due_ns));
        Poll::Ready(())
    }

    /// The time between two ticks.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// The first tick after now, counting on from one that was due at `due_ns`.
    fn first_after(&self, due_ns: u64) -> u64 {
        let period_ns = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX);
        let periods = clock::now_ns().saturating_sub(due_ns) / period_ns + 1;
        due_ns.saturating_add(periods.saturating_mul(period_ns))
    }
}
