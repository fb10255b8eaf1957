//! Values, with the time for which they are stored.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An item as the server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Value {
    /// Its data.
    pub data: Vec<u8>,
    /// The client flags stored with it.
    pub flags: u32,
    /// Its cas unique, in the result of an operation that reads it.
    pub cas_unique: Option<u64>,
}

/// The time at which the server drops an item.
///
/// ```
/// use dwell_memcache::{Exptime, StoreOptions};
/// use std::time::Duration;
///
/// let minute: StoreOptions = Duration::from_secs(60).into();
/// assert_eq!(minute.exptime, Exptime::In(Duration::from_secs(60)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exptime {
    /// Never, unless the server needs the room.
    #[default]
    Never,
    /// A time from now, in whole seconds, rounded up.
    In(Duration),
    /// A second of Unix time.
    At(u64),
    /// The present: the item is dropped at once.
    Immediately,
}

impl Exptime {
    /// The number on the wire.
    ///
    /// The protocol takes more than 30 days for a date, so what lies farther ahead is sent as one.
    ///
    /// Source: memcached `doc/protocol.txt`, "Expiration times".
    pub(crate) fn on_wire(self) -> i64 {
        match self {
            Self::Never => 0,
            Self::Immediately => -1,
            Self::At(second) => i64::try_from(second).unwrap_or(i64::MAX).max(1),
            Self::In(duration) => {
                let rest = u64::from(duration.subsec_nanos() > 0);
                let seconds = duration.as_secs().saturating_add(rest);
                if seconds <= RELATIVE_SECONDS_MAX {
                    // Nothing from now is over at once; 0 on the wire would be never.
                    return if seconds == 0 {
                        -1
                    } else {
                        seconds.cast_signed()
                    };
                }
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let now = now.map_or(0, |passed| passed.as_secs());
                i64::try_from(now.saturating_add(seconds)).unwrap_or(i64::MAX)
            }
        }
    }
}

impl From<Duration> for Exptime {
    fn from(duration: Duration) -> Self {
        Self::In(duration)
    }
}

/// Options stored with a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StoreOptions {
    /// The client flags, returned with the value.
    pub flags: u32,
    /// The time at which it is dropped. Default: never.
    pub exptime: Exptime,
}

impl From<Exptime> for StoreOptions {
    fn from(exptime: Exptime) -> Self {
        Self { flags: 0, exptime }
    }
}

impl From<Duration> for StoreOptions {
    fn from(duration: Duration) -> Self {
        Exptime::In(duration).into()
    }
}

/// Longer than this from now is a date. Source: memcached `doc/protocol.txt`.
const RELATIVE_SECONDS_MAX: u64 = 30 * 24 * 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_ahead_is_a_date_and_nothing_is_not_for_ever() {
        let seconds = |seconds| Exptime::In(Duration::from_secs(seconds)).on_wire();
        assert_eq!(Exptime::Never.on_wire(), 0);
        assert_eq!(seconds(0), -1);
        assert_eq!(Exptime::In(Duration::from_millis(1)).on_wire(), 1);
        assert_eq!(seconds(RELATIVE_SECONDS_MAX), 2_592_000);
        assert!(seconds(RELATIVE_SECONDS_MAX + 1) > 1_700_000_000);
        assert_eq!(seconds(u64::MAX), i64::MAX);
        assert_eq!(Exptime::At(0).on_wire(), 1);
    }
}
