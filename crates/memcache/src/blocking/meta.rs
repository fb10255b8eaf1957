//! The options and the results of the meta commands.
//!
//! Source: memcached `doc/protocol.txt`, "Meta Commands".

use std::time::Duration;

use dwell_proto::memcache::encode::request::MetaLine;
use dwell_proto::memcache::{ArithmeticMode, Flags, MetaSetMode};

use super::value::{Exptime, Value};
use crate::StoreOutcome;

/// Options of `mg`: the attributes it returns, and its side effects.
///
/// ```
/// use dwell_memcache::MetaGet;
/// use std::time::Duration;
///
/// // In the last ten seconds of an item's life one client wins the right to recache it.
/// let early = MetaGet { recache: Some(Duration::from_secs(10)), ..MetaGet::default() };
/// assert!(early.value);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one flag of the protocol, on or off"
)]
pub struct MetaGet {
    /// `v` and `f`: the data and its client flags. Default: yes.
    pub value: bool,
    /// `c`: the cas unique.
    pub cas_unique: bool,
    /// `s`: the length of the data.
    pub size: bool,
    /// `t`: how long the item will live.
    pub ttl: bool,
    /// `l`: how long ago it was read last.
    pub last_access: bool,
    /// `h`: whether it was read before.
    pub was_read: bool,
    /// `u`: this is not to count as a read.
    pub no_bump: bool,
    /// `T`: the item's new exptime.
    pub exptime: Option<Exptime>,
    /// `N`: where there is no item, make an empty one with this exptime, and win.
    pub vivify: Option<Exptime>,
    /// `R`: win if the item has less than this to live. In whole seconds.
    pub recache: Option<Duration>,
}

impl Default for MetaGet {
    fn default() -> Self {
        Self {
            value: true,
            cas_unique: false,
            size: false,
            ttl: false,
            last_access: false,
            was_read: false,
            no_bump: false,
            exptime: None,
            vivify: None,
            recache: None,
        }
    }
}

impl MetaGet {
    pub(crate) fn write<'o>(&self, line: MetaLine<'o>) -> MetaLine<'o> {
        let letters = [
            (self.value, b'v'),
            (self.value, b'f'),
            (self.cas_unique, b'c'),
            (self.size, b's'),
            (self.ttl, b't'),
            (self.last_access, b'l'),
            (self.was_read, b'h'),
            (self.no_bump, b'u'),
        ];
        let line = letters.iter().fold(line, |line, (is_set, letter)| {
            line.flag_if(*letter, *is_set)
        });
        let recache = self.recache.map(|left| left.as_secs());
        line.number_if(b'T', self.exptime.map(Exptime::on_wire))
            .number_if(b'N', self.vivify.map(Exptime::on_wire))
            .number_if(b'R', recache)
    }
}

/// An item as `mg` returns it: the attributes asked for, and the state of its recache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetaItem {
    /// Its data.
    pub data: Option<Vec<u8>>,
    /// Its client flags.
    pub flags: Option<u32>,
    /// Its cas unique.
    pub cas_unique: Option<u64>,
    /// The length of its data. Units: bytes.
    pub size: Option<u64>,
    /// The time that it will live.
    pub ttl: Option<Ttl>,
    /// The time since it was read last.
    pub last_access: Option<Duration>,
    /// True if it was read before.
    pub was_read: Option<bool>,
    /// `W`: this client has won the right to recache the item.
    pub has_won: bool,
    /// `X`: the item was marked stale.
    pub is_stale: bool,
    /// `Z`: another client has won and not finished yet.
    pub is_claimed: bool,
}

/// The time that an item will live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ttl {
    /// Until its room is needed.
    Unlimited,
    /// The rest of its time, in whole seconds.
    Left(Duration),
}

impl MetaItem {
    pub(crate) fn new(flags: Flags<'_>, data: Option<&[u8]>) -> Self {
        let seconds = |letter| {
            let number = flags.number(letter)?;
            Some(Duration::from_secs(u64::try_from(number).ok()?))
        };
        Self {
            data: data.map(<[u8]>::to_vec),
            flags: flags.number(b'f').and_then(|flags| flags.try_into().ok()),
            cas_unique: flags.cas_unique(),
            size: flags.number(b's').and_then(|size| size.try_into().ok()),
            ttl: flags.find(b't').map(|_| match seconds(b't') {
                Some(left) => Ttl::Left(left),
                None => Ttl::Unlimited,
            }),
            last_access: seconds(b'l'),
            was_read: flags.number(b'h').map(|times| times != 0),
            has_won: flags.find(b'W').is_some(),
            is_stale: flags.find(b'X').is_some(),
            is_claimed: flags.find(b'Z').is_some(),
        }
    }

    /// Returns its data, flags and cas unique; what was not asked for is empty, 0 or `None`.
    pub fn into_value(self) -> Value {
        Value {
            data: self.data.unwrap_or_default(),
            flags: self.flags.unwrap_or_default(),
            cas_unique: self.cas_unique,
        }
    }
}

/// Options of `ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaSet {
    /// `F`: the client flags.
    pub flags: u32,
    /// `T`: when the item is forgotten.
    pub exptime: Exptime,
    /// `M`: set, add, replace, append or prepend.
    pub mode: MetaSetMode,
    /// `C`: store only if the item's cas unique is still this one.
    pub cas_unique: Option<u64>,
    /// `I`: with a cas unique lower than the item's, store it all the same, marked stale.
    pub invalidate: bool,
    /// `E`: the item's new cas unique (memcached 1.6.22 and later).
    pub cas_new: Option<u64>,
    /// `N`: where there is nothing to append or prepend to, make it, with this exptime (memcached
    /// after 1.6.18).
    pub vivify: Option<Exptime>,
}

impl Default for MetaSet {
    fn default() -> Self {
        Self {
            flags: 0,
            exptime: Exptime::Never,
            mode: MetaSetMode::Set,
            cas_unique: None,
            invalidate: false,
            cas_new: None,
            vivify: None,
        }
    }
}

impl MetaSet {
    pub(crate) fn write<'o>(&self, line: MetaLine<'o>) -> MetaLine<'o> {
        let mode = match self.mode {
            MetaSetMode::Set => b'S',
            MetaSetMode::Add => b'E',
            MetaSetMode::Replace => b'R',
            MetaSetMode::Append => b'A',
            MetaSetMode::Prepend => b'P',
        };
        line.flag(b'c')
            .mode(mode)
            .number(b'F', self.flags)
            .number(b'T', self.exptime.on_wire())
            .number_if(b'C', self.cas_unique)
            .number_if(b'E', self.cas_new)
            .number_if(b'N', self.vivify.map(Exptime::on_wire))
            .flag_if(b'I', self.invalidate)
    }
}

/// The result of `ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetaStored {
    /// The outcome of the store.
    pub outcome: StoreOutcome,
    /// The item's cas unique; `None` if it is not stored, or the server does not return it.
    pub cas_unique: Option<u64>,
}

/// Options of `md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaDelete {
    /// `C`: only if the item's cas unique is still this one.
    pub cas_unique: Option<u64>,
    /// `I`: mark the item stale instead, so that one client may recache it while the others go on
    /// with the old value.
    pub invalidate: bool,
    /// `T`: with `invalidate`, the item's new exptime.
    pub exptime: Option<Exptime>,
    /// `x`: delete the data and keep the item (memcached 1.6.32 and later).
    pub remove_value: bool,
}

impl MetaDelete {
    pub(crate) fn write<'o>(&self, line: MetaLine<'o>) -> MetaLine<'o> {
        line.number_if(b'C', self.cas_unique)
            .number_if(b'T', self.exptime.map(Exptime::on_wire))
            .flag_if(b'I', self.invalidate)
            .flag_if(b'x', self.remove_value)
    }
}

/// The result of `md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaDeleted {
    /// Deleted, or marked stale.
    Deleted,
    /// There is no such item.
    NotFound,
    /// The item has changed since its cas unique was read.
    Exists,
}

/// Options of `ma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaArithmetic {
    /// `M`: up or down.
    pub mode: ArithmeticMode,
    /// `D`: by how much.
    pub delta: u64,
    /// `N` and `J`: where there is no item, make one that starts with this number, with this
    /// exptime.
    pub vivify: Option<(u64, Exptime)>,
    /// `T`: the item's new exptime.
    pub exptime: Option<Exptime>,
    /// `C`: only if the item's cas unique is still this one.
    pub cas_unique: Option<u64>,
}

impl Default for MetaArithmetic {
    fn default() -> Self {
        Self {
            mode: ArithmeticMode::Increment,
            delta: 1,
            vivify: None,
            exptime: None,
            cas_unique: None,
        }
    }
}

impl MetaArithmetic {
    pub(crate) fn write<'o>(&self, line: MetaLine<'o>) -> MetaLine<'o> {
        let mode = match self.mode {
            ArithmeticMode::Increment => b'I',
            ArithmeticMode::Decrement => b'D',
        };
        let (initial, exptime) = self.vivify.unzip();
        line.flag(b'v')
            .flag(b'c')
            .mode(mode)
            .number(b'D', self.delta)
            .number_if(b'C', self.cas_unique)
            .number_if(b'T', self.exptime.map(Exptime::on_wire))
            .number_if(b'J', initial)
            .number_if(b'N', exptime.map(Exptime::on_wire))
    }
}

/// The result of `ma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaCounted {
    /// The new number, and the item's cas unique if the server returns it.
    Number {
        /// The number.
        number: u64,
        /// The cas unique.
        cas_unique: Option<u64>,
    },
    /// There is no such item, or making one failed.
    NotFound,
    /// The item has changed since its cas unique was read.
    Exists,
}

/// Times of a lease: one client recaches an item, and the others get the old value meanwhile.
///
/// ```
/// use dwell_memcache::Lease;
/// use std::time::Duration;
///
/// let lease = Lease { hold: Duration::from_secs(30), recache: Duration::from_secs(5) };
/// assert!(lease.recache < lease.hold);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The time that the winner has to make a missing item, before another client may.
    pub hold: Duration,
    /// The time before its end at which an item is recached; zero for not before.
    pub recache: Duration,
}

/// The result of [`Client::lease`](super::Client::lease).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leased {
    /// The item.
    Fresh(Value),
    /// This client is to make the item, and then to store it with
    /// [`Client::fulfil`](super::Client::fulfil).
    Won {
        /// The value until then: stale, or soon to end.
        stale: Option<Value>,
        /// The cas unique to store it with.
        cas_unique: u64,
    },
    /// Another client is making it.
    Claimed {
        /// The value until then.
        stale: Option<Value>,
    },
}

impl Lease {
    pub(crate) fn request(self) -> MetaGet {
        MetaGet {
            cas_unique: true,
            vivify: Some(Exptime::In(self.hold)),
            recache: (!self.recache.is_zero()).then_some(self.recache),
            ..MetaGet::default()
        }
    }
}

impl Leased {
    /// Reads the answer to [`Lease::request`]; `None` if it lacks something.
    pub(crate) fn of(item: MetaItem) -> Option<Self> {
        let cas_unique = item.cas_unique?;
        let value = Value {
            data: item.data?,
            flags: item.flags.unwrap_or(0),
            cas_unique: Some(cas_unique),
        };
        // The item that stands for a missing one is empty.
        let kept = |value: Value| (!value.data.is_empty()).then_some(value);
        Some(if item.has_won {
            let stale = kept(value);
            Self::Won { stale, cas_unique }
        } else if item.is_claimed && (item.is_stale || value.data.is_empty()) {
            Self::Claimed { stale: kept(value) }
        } else {
            Self::Fresh(value)
        })
    }
}
