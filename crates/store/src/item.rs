//! Types that the store hands out: values, items and times of expiry.

use std::fmt;
use std::ops::Deref;

use triomphe::Arc;

use crate::arena::SharedRun;

/// Seconds of Unix time, or a number of seconds, as memcached counts them.
pub type Seconds = u32;

/// The longest `exptime` that is an offset from now: 30 days. Anything above is Unix time.
const EXPTIME_RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;

/// The bytes of a stored value: those of a large one are shared with the store, not copied.
///
/// Shape: reference-counted; a clone is a counter increment. The bytes never change while a
/// `Value` holds them, whatever happens to the key.
#[derive(Clone)]
pub struct Value {
    data: Data,
    key_len: u8,
}

/// The key followed by the value.
#[derive(Clone)]
enum Data {
    Copied(Arc<[u8]>),
    Shared(SharedRun),
}

impl Data {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared(run) => run,
        }
    }
}

impl Value {
    /// A copy of the bytes of a small item.
    pub(crate) fn copied(data: &[u8], key_len: u8) -> Self {
        let data = Data::Copied(Arc::from(data));
        Self { data, key_len }
    }

    /// The bytes of a large item where they are.
    pub(crate) fn shared(data: SharedRun, key_len: u8) -> Self {
        let data = Data::Shared(data);
        Self { data, key_len }
    }

    /// The key these bytes were stored under.
    pub fn key(&self) -> &[u8] {
        self.data
            .bytes()
            .get(..usize::from(self.key_len))
            .unwrap_or_default()
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.data
            .bytes()
            .get(usize::from(self.key_len)..)
            .unwrap_or_default()
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "b\"{}\"", self.escape_ascii())
    }
}

const _: () = assert!(
    size_of::<Value>() == 24,
    "either is told apart by its pointer"
);

/// A value with what is stored beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The bytes.
    pub value: Value,
    /// The client's flags, opaque to the store.
    pub flags: u32,
    /// The unique number of this version, changed by every store and never by a touch.
    pub cas: u64,
}

impl Item {
    /// The item, borrowed.
    pub fn borrowed(&self) -> ItemRef<'_> {
        ItemRef {
            value: &self.value,
            flags: self.flags,
            cas: self.cas,
        }
    }
}

/// An item that is read in place; see [`Store::read`](crate::Store::read).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemRef<'a> {
    /// The bytes.
    pub value: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// The unique number of this version.
    pub cas: u64,
}

/// The time at which an item stops existing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(Seconds);

impl Expiry {
    /// The item stays until it is deleted, flushed or evicted.
    pub const NEVER: Self = Self(0);

    /// The item is already gone.
    pub const IMMEDIATE: Self = Self(1);

    /// The item is gone from `time` on.
    ///
    /// Units: seconds of Unix time; 0 counts as long ago, not as never.
    pub fn at(time: Seconds) -> Self {
        Self(time.max(Self::IMMEDIATE.0))
    }

    /// Reads an `exptime` as it stands on the wire.
    ///
    /// Shape: 0 is never, a negative number is gone at once, up to 30 days is an offset from
    /// `now`, more is Unix time. Numbers beyond 31 bits are gone at once, because memcached keeps
    /// an `exptime` in a signed 32-bit integer.
    ///
    /// Source: memcached `doc/protocol.txt`, "Expiration times".
    pub fn from_exptime(exptime: i64, now: Seconds) -> Self {
        Self::from_exptime_by(exptime, now, now)
    }

    /// Reads an `exptime` as it stands on the wire, where the clock that counts lifetimes is not
    /// the one that clients read: it is `now` by the first, and `unix` by the second.
    ///
    /// Shape: as that of [`Expiry::from_exptime`]. An `exptime` that is Unix time comes as many
    /// seconds after `now` as it is after `unix`.
    ///
    /// ```
    /// use dwell_store::Expiry;
    ///
    /// // The wall clock was set forward by an hour since the process started.
    /// let (now, unix) = (1_700_000_000, 1_700_003_600);
    /// let remaining = |exptime| Expiry::from_exptime_by(exptime, now, unix).remaining(now);
    /// assert_eq!(remaining(60), Some(60));
    /// assert_eq!(remaining(1_700_003_660), Some(60));
    /// ```
    pub fn from_exptime_by(exptime: i64, now: Seconds, unix: Seconds) -> Self {
        match exptime {
            0 => Self::NEVER,
            1..=EXPTIME_RELATIVE_MAX => {
                let offset = u32::try_from(exptime).unwrap_or(u32::MAX);
                Self::at(now.saturating_add(offset))
            }
            _ => i32::try_from(exptime)
                .ok()
                .and_then(|time| u32::try_from(time).ok())
                .map_or(Self::IMMEDIATE, |time| Self::at_by(time, now, unix)),
        }
    }

    /// The expiry at a Unix time that comes as many seconds after `now` as after `unix`; a time
    /// that has passed stays in the past.
    pub fn at_by(time: Seconds, now: Seconds, unix: Seconds) -> Self {
        if time <= unix {
            return Self::IMMEDIATE;
        }
        Self::at(now.saturating_add(time - unix))
    }

    /// The expiry that [`Expiry::word`] gave.
    pub(crate) fn from_word(word: u32) -> Self {
        Self(word)
    }

    /// The expiry as the store keeps it.
    pub(crate) fn word(self) -> u32 {
        self.0
    }

    /// Returns true if an item with this expiry is gone at `now`.
    pub fn is_past(self, now: Seconds) -> bool {
        self != Self::NEVER && self.0 <= now
    }

    /// The Unix time of the expiry, or `None` for never.
    pub fn time(self) -> Option<Seconds> {
        (self != Self::NEVER).then_some(self.0)
    }

    /// The seconds left at `now`, or `None` for an item that does not expire.
    pub fn remaining(self, now: Seconds) -> Option<Seconds> {
        self.time().map(|time| time.saturating_sub(now))
    }
}
