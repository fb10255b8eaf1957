//! Commands of a client.

use super::error_line::ErrorLine;
use super::key::MetaKey;
use super::line::Tokens;
use super::meta::MetaFlags;

/// One request, borrowed from the bytes it came in.
///
/// Shape: keys have 1 to 250 bytes and no space or line feed. `noreply` asks for silence.
/// Units: `exptime` as the client wrote it (0 never, negative at once, up to 30 days in seconds
/// relative, above that Unix time).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command<'b> {
    /// `get` and `gets`.
    Get {
        /// The keys; at least one.
        keys: Keys<'b>,
        /// True to return each item's cas unique.
        with_cas: bool,
    },
    /// `gat` and `gats`.
    GetAndTouch {
        /// The keys; there may be none, as in memcached.
        keys: Keys<'b>,
        /// The new exptime of each.
        exptime: i64,
        /// True to return each item's cas unique.
        with_cas: bool,
    },
    /// `set`, `add`, `replace`, `append`, `prepend` and `cas`.
    Store {
        /// The command.
        verb: StoreVerb,
        /// The key to store under.
        key: &'b [u8],
        /// The client flags.
        flags: u32,
        /// The exptime of the item.
        exptime: i64,
        /// True to leave the reply out.
        noreply: bool,
        /// The data.
        value: &'b [u8],
    },
    /// `delete`.
    Delete {
        /// The key to delete.
        key: &'b [u8],
        /// True to leave the reply out.
        noreply: bool,
    },
    /// `incr` and `decr`.
    Arithmetic {
        /// The direction.
        mode: ArithmeticMode,
        /// The counter.
        key: &'b [u8],
        /// The amount.
        delta: u64,
        /// True to leave the reply out.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// The key of the item.
        key: &'b [u8],
        /// Its new exptime.
        exptime: i64,
        /// True to leave the reply out.
        noreply: bool,
    },
    /// `flush_all`.
    FlushAll {
        /// The time of it, as an exptime; 0 and negative mean now.
        delay: i64,
        /// True to leave the reply out.
        noreply: bool,
    },
    /// `version`.
    Version,
    /// `verbosity`.
    Verbosity {
        /// The level.
        level: u32,
        /// True to leave the reply out.
        noreply: bool,
    },
    /// `cache_memlimit`.
    CacheMemlimit {
        /// The new limit in MiB.
        megabytes: u32,
        /// True to leave the reply out.
        noreply: bool,
    },
    /// `stats`.
    Stats {
        /// The topic; empty for the general statistics.
        arguments: Tokens<'b>,
    },
    /// `lru_crawler`: listings of keys, and what clears expired items.
    LruCrawler {
        /// The subcommand and its arguments.
        arguments: Tokens<'b>,
    },
    /// `quit`: close without an answer.
    Quit,
    /// `shutdown`: end the process, where that is allowed.
    Shutdown {
        /// True if the mode, if there is one, is `graceful`, which is the only one.
        is_mode_known: bool,
    },
    /// `mg`.
    MetaGet(MetaGet<'b>),
    /// `ms`.
    MetaSet(MetaSet<'b>),
    /// `md`.
    MetaDelete(MetaDelete<'b>),
    /// `ma`.
    MetaArithmetic(MetaArithmetic<'b>),
    /// `mn`.
    MetaNoop,
    /// `me`.
    MetaDebug {
        /// The key of the item.
        key: MetaKey<'b>,
    },
}

/// The keys of a retrieval command; each has been checked for length.
pub type Keys<'b> = Tokens<'b>;

/// The storage commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreVerb {
    /// Store.
    Set,
    /// Store if there is no such item.
    Add,
    /// Store if there is such an item.
    Replace,
    /// Add the data behind the item's.
    Append,
    /// Add the data before the item's.
    Prepend,
    /// Store if the item's cas unique is still this one.
    Cas(u64),
}

impl StoreVerb {
    /// The command's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Prepend => "prepend",
            Self::Cas(_) => "cas",
        }
    }
}

/// The direction of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArithmeticMode {
    /// Up, wrapping at 64 bits.
    Increment,
    /// Down, stopping at 0.
    Decrement,
}

/// `mg`: get, touch, vivify, in one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaGet<'b> {
    /// The key of the item.
    pub key: MetaKey<'b>,
    /// The flags.
    pub flags: MetaFlags<'b>,
}

/// `ms`: every storage command in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaSet<'b> {
    /// The key to store under.
    pub key: MetaKey<'b>,
    /// The flags.
    pub flags: MetaFlags<'b>,
    /// The mode.
    pub mode: MetaSetMode,
    /// The data.
    pub value: &'b [u8],
}

/// Flag `M` of `ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaSetMode {
    /// `S`, and without the flag.
    Set,
    /// `E`.
    Add,
    /// `R`.
    Replace,
    /// `A`.
    Append,
    /// `P`.
    Prepend,
}

/// `md`: delete, or mark stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaDelete<'b> {
    /// The key of the item.
    pub key: MetaKey<'b>,
    /// The flags.
    pub flags: MetaFlags<'b>,
}

/// `ma`: count up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaArithmetic<'b> {
    /// The counter.
    pub key: MetaKey<'b>,
    /// The flags.
    pub flags: MetaFlags<'b>,
    /// The direction.
    pub mode: ArithmeticMode,
}

impl<'b> Command<'b> {
    /// Puts the data where the line announced it.
    pub(super) fn with_value(self, data: &'b [u8]) -> Self {
        match self {
            Self::Store {
                verb,
                key,
                flags,
                exptime,
                noreply,
                ..
            } => Self::Store {
                verb,
                key,
                flags,
                exptime,
                noreply,
                value: data,
            },
            Self::MetaSet(set) => Self::MetaSet(MetaSet { value: data, ..set }),
            other => other,
        }
    }

    /// The error line for data without its line end, unless `noreply` silences it.
    pub(super) fn bad_data_reply(&self) -> Option<ErrorLine> {
        match self {
            Self::Store { noreply: true, .. } => None,
            _ => Some(ErrorLine::BadDataChunk),
        }
    }
}
