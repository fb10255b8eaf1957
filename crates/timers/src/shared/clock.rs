//! The one place that reads a clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nanoseconds on the clock of the timers: monotonic, from some point in the past.
pub(crate) fn now_ns() -> u64 {
    match MANUAL_NS.load(Ordering::SeqCst) {
        NOT_MANUAL => monotonic_ns() + AHEAD_NS.load(Ordering::SeqCst),
        manual => manual,
    }
}

/// The tick that a point in time belongs to.
pub(crate) const fn tick_of(ns: u64) -> u32 {
    (ns / TICK_NS) as u32
}

/// The time `duration` after `ns`, or the end of the clock if that comes first.
pub(crate) fn after(ns: u64, duration: Duration) -> u64 {
    let passed = u64::try_from(duration.as_nanos()).unwrap_or(END_NS);
    ns.saturating_add(passed).min(END_NS)
}

/// Returns the time from now to `instant`; zero if it has passed.
#[expect(clippy::disallowed_methods, reason = "the clock of the shared timers")]
pub(crate) fn until(instant: Instant) -> Duration {
    instant.saturating_duration_since(Instant::now())
}

/// Waits on the calling thread.
#[expect(clippy::disallowed_methods, reason = "the sweeper waits for its tick")]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Has the clock stand still until it is moved; the time at which it stands.
pub(crate) fn stand_still() -> u64 {
    let now = now_ns();
    MANUAL_NS.store(now, Ordering::SeqCst);
    now
}

/// Moves a clock that stands still.
pub(crate) fn move_to(ns: u64) {
    MANUAL_NS.store(ns, Ordering::SeqCst);
}

/// Has a clock that stood still go on from where it stands, or from real time if that is later.
pub(crate) fn go_on() {
    let stood = MANUAL_NS.load(Ordering::SeqCst);
    let ahead = stood.saturating_sub(monotonic_ns());
    AHEAD_NS.fetch_max(ahead, Ordering::SeqCst);
    MANUAL_NS.store(NOT_MANUAL, Ordering::SeqCst);
}

#[expect(clippy::disallowed_methods, reason = "the clock of the shared timers")]
fn monotonic_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let passed = Instant::now().saturating_duration_since(*START.get_or_init(Instant::now));
    passed.as_nanos() as u64
}

pub(crate) const TICK_NS: u64 = crate::TICK.as_nanos() as u64;

/// The time at which the clock stands, `NOT_MANUAL` if it goes.
static MANUAL_NS: AtomicU64 = AtomicU64::new(NOT_MANUAL);
const NOT_MANUAL: u64 = u64::MAX;
/// Time by which the clock is ahead of real time, after it stood at a later one.
static AHEAD_NS: AtomicU64 = AtomicU64::new(0);
/// The farthest time to which a clock is moved by hand: 292 years, so that real time can go on from
/// there as long.
const END_NS: u64 = u64::MAX / 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_moved_by_hand_has_an_end() {
        assert_eq!(after(7, Duration::from_nanos(3)), 10);
        assert_eq!(after(7, Duration::MAX), END_NS);
        assert_eq!(after(END_NS, Duration::MAX), END_NS);
    }
}
