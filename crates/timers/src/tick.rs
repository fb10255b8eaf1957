use std::time::Duration;

/// The length of one tick: 10 ms.
///
/// ```
/// use dwell_timers::{TICK, ticks_ceil};
///
/// assert_eq!(TICK * ticks_ceil(TICK), TICK);
/// ```
pub const TICK: Duration = Duration::from_millis(10);

/// The farthest a deadline can lie ahead of now: 2^30 ticks, about 124 days.
///
/// Anything farther saturates here. It keeps the wrapping comparison of two ticks unambiguous.
///
/// ```
/// use dwell_timers::{TICKS_AHEAD_MAX, Tick, ticks_ceil};
/// use std::time::Duration;
///
/// assert_eq!(ticks_ceil(Duration::MAX), TICKS_AHEAD_MAX);
/// let now = Tick::new(5);
/// assert_eq!(now.plus(u32::MAX), now.plus(TICKS_AHEAD_MAX));
/// ```
pub const TICKS_AHEAD_MAX: u32 = 1 << 30;

/// A point on the 10 ms tick, wrapping after 497 days.
///
/// Two ticks compare by the shorter way round, so they carry no `Ord`: ask [`Tick::is_due`].
///
/// ```
/// use dwell_timers::Tick;
///
/// let before = Tick::new(u32::MAX);
/// let after = before.plus(3);
/// assert_eq!(after.value(), 2);
/// assert!(before.is_due(after) && !after.is_due(before));
/// assert_eq!(after.ticks_since(before), 3);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Tick(u32);

impl Tick {
    /// Makes a tick of its number.
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The number of this tick.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The tick that lies `ticks` after this one, at most [`TICKS_AHEAD_MAX`] of them.
    #[must_use]
    pub const fn plus(self, ticks: u32) -> Self {
        let ticks = if ticks > TICKS_AHEAD_MAX {
            TICKS_AHEAD_MAX
        } else {
            ticks
        };
        Self(self.0.wrapping_add(ticks))
    }

    /// Returns true if this tick is `now` or lies before it.
    pub const fn is_due(self, now: Self) -> bool {
        now.0.wrapping_sub(self.0) < HALF_CIRCLE
    }

    /// Returns the number of ticks that have passed since `earlier`, wrapping.
    ///
    /// Shape: meaningful only when `earlier` is not after this tick.
    pub const fn ticks_since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}

/// The number of ticks that cover `duration`: rounded up, at most [`TICKS_AHEAD_MAX`].
///
/// A deadline must not fire early. So a caller that adds this to a tick whose beginning lies in the
/// past adds one tick more.
///
/// ```
/// use dwell_timers::ticks_ceil;
/// use std::time::Duration;
///
/// assert_eq!(ticks_ceil(Duration::from_nanos(1)), 1);
/// assert_eq!(ticks_ceil(Duration::from_secs(60)), 6000);
/// ```
pub const fn ticks_ceil(duration: Duration) -> u32 {
    // A second is a whole number of ticks, which spares a division of 128 bits.
    let ticks = duration.as_secs().saturating_mul(TICKS_PER_SECOND);
    let ticks = ticks.saturating_add(duration.subsec_nanos().div_ceil(TICK.subsec_nanos()) as u64);
    if ticks > TICKS_AHEAD_MAX as u64 {
        TICKS_AHEAD_MAX
    } else {
        ticks as u32
    }
}

const HALF_CIRCLE: u32 = 1 << 31;
const TICKS_PER_SECOND: u64 = 1000 / TICK.as_millis() as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_up_and_saturate() {
        assert_eq!(ticks_ceil(Duration::ZERO), 0);
        assert_eq!(ticks_ceil(Duration::from_nanos(1)), 1);
        assert_eq!(ticks_ceil(TICK), 1);
        assert_eq!(ticks_ceil(TICK + Duration::from_nanos(1)), 2);
        assert_eq!(ticks_ceil(Duration::from_secs(60)), 6000);
        assert_eq!(ticks_ceil(Duration::MAX), TICKS_AHEAD_MAX);
    }

    #[test]
    fn ticks_compare_across_the_wrap() {
        let before = Tick::new(u32::MAX - 1);
        let after = before.plus(3);
        assert_eq!(after.value(), 1);
        assert!(before.is_due(after) && after.is_due(after));
        assert!(!after.is_due(before));
        assert_eq!(after.ticks_since(before), 3);
        assert_eq!(before.plus(u32::MAX).ticks_since(before), TICKS_AHEAD_MAX);
    }
}
