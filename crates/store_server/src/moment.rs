//! The time of the store, beside that of the world.

use dwell_evloop::{Context, steady_seconds};
use dwell_store::{Expiry, Seconds};
use std::time::{SystemTime, UNIX_EPOCH};

/// One moment by two clocks.
///
/// Lifetimes in the store are counted by the steady one, which a wall clock that is set does not
/// move. A time of day, and a time that another process reads, is one of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The Unix time at the start of the process, and what has passed since.
    pub steady: Seconds,
    /// Unix time.
    pub unix: Seconds,
}

impl Moment {
    /// The moment of the turn.
    pub fn of(context: &Context) -> Self {
        Self {
            steady: seconds(context.steady_seconds()),
            unix: seconds(context.unix_seconds()),
        }
    }

    /// The present, outside of a loop.
    pub fn now() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            steady: seconds(steady_seconds()),
            unix: unix.map_or(0, |unix| seconds(unix.as_secs())),
        }
    }

    /// The Unix time of an expiry of the store; 0 is never.
    pub fn unix_time(self, expiry: Expiry) -> Seconds {
        let time = expiry.time().map(|time| {
            let left = i64::from(time) - i64::from(self.steady);
            (i64::from(self.unix) + left).clamp(1, i64::from(Seconds::MAX))
        });
        time.map_or(0, |time| Seconds::try_from(time).unwrap_or(Seconds::MAX))
    }

    /// The expiry in the store of what [`Moment::unix_time`] gave, maybe in another process.
    pub fn expiry(self, unix_time: Seconds) -> Expiry {
        match unix_time {
            0 => Expiry::NEVER,
            time => Expiry::at_by(time, self.steady, self.unix),
        }
    }
}

/// Seconds as the store counts them, until the year 2106.
pub fn seconds(seconds: u64) -> Seconds {
    Seconds::try_from(seconds).unwrap_or(Seconds::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEADY: Seconds = 1_700_000_000;

    #[test]
    fn what_is_left_of_a_lifetime_passes_between_clocks() {
        for (before, after) in [(0, 0), (7200, 0), (-7200, 300), (-7200, -7200)] {
            let at = |offset: i32| Moment {
                steady: STEADY,
                unix: STEADY.saturating_add_signed(offset),
            };
            let told =
                |left: i32| at(before).unix_time(Expiry::at(STEADY.saturating_add_signed(left)));
            // Ten seconds later, the wall clock of the reader is as wrong as that of the writer.
            let reader = Moment {
                steady: at(after).steady + 10,
                unix: at(before).unix + 10,
            };
            assert_eq!(reader.expiry(told(60)).remaining(reader.steady), Some(50));
            assert!(reader.expiry(told(10)).is_past(reader.steady));
            assert!(reader.expiry(told(-5)).is_past(reader.steady));
            assert_eq!(
                reader.expiry(at(before).unix_time(Expiry::NEVER)),
                Expiry::NEVER
            );
        }
    }

    #[test]
    fn an_expiry_at_the_ends_of_time_stays_one() {
        let moment = Moment {
            steady: STEADY,
            unix: 100,
        };
        let old = moment.unix_time(Expiry::IMMEDIATE);
        assert!(moment.expiry(old).is_past(STEADY));
        let late = moment.unix_time(Expiry::at(Seconds::MAX));
        assert!(!moment.expiry(late).is_past(STEADY));
    }
}
