//! The arguments and results of the commands, one pair per command.

use crate::item::{Expiry, Item, Seconds};

/// The items that a store command may replace, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreMode {
    /// Store whatever is there (`set`; with a cas unique, `cas`).
    #[default]
    Set,
    /// Store only where nothing is (`add`).
    Add,
    /// Store only where something is (`replace`).
    Replace,
    /// Put the bytes behind those that are there (`append`).
    Append,
    /// Put the bytes before those that are there (`prepend`).
    Prepend,
}

/// Options of a store command: `set add replace append prepend cas` and `ms`.
///
/// ```
/// use dwell_store::{Expiry, StoreMode, StoreOptions};
///
/// let add_for_a_minute = StoreOptions {
///     mode: StoreMode::Add,
///     expiry: Expiry::from_exptime(60, 1_700_000_000),
///     ..StoreOptions::default()
/// };
/// assert_eq!(add_for_a_minute.flags, 0);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// The items that may be replaced (`M`).
    pub mode: StoreMode,
    /// The client's flags (`F`); ignored by append and prepend.
    pub flags: u32,
    /// The time at which the item is gone (`T`); ignored by append and prepend.
    pub expiry: Expiry,
    /// Store only over this version (`cas`, `C`).
    pub cas: Option<u64>,
    /// With `cas`: also store over a newer version, marking the result stale (`I`).
    pub invalidate: bool,
    /// Append and prepend create a missing item with this expiry (`N`).
    pub vivify: Option<Expiry>,
    /// The version number to give the item instead of the next one (`E`).
    pub cas_new: Option<u64>,
    /// The value is a copy of what can be had again: while such values take more than a tenth of
    /// the store, they are evicted before others. Ignored by append and prepend.
    pub filled: bool,
}

/// The outcome of a store command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// Stored, as this version.
    Stored {
        /// The item's new version number.
        cas: u64,
    },
    /// The condition of the mode was not met.
    NotStored,
    /// The item has another version than the given one.
    Exists,
    /// A version was given and there is no item.
    NotFound,
    /// The item exceeds the item size limit; a plain `set` has removed the old value.
    TooLarge,
    /// There is no room and nothing may be evicted; a plain `set` has removed the old value.
    OutOfMemory,
}

/// Options of `mg` beyond the item.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetaGet {
    /// Give the item this expiry (`T`).
    pub expiry: Option<Expiry>,
    /// Create a missing item, empty, with this expiry (`N`), whatever `expiry` is.
    pub vivify: Option<Expiry>,
    /// Offer a win when fewer seconds than this are left (`R`), judged before `expiry` is applied.
    pub recache: Option<Seconds>,
    /// Judge that after `expiry` is applied instead (`T` before `R`).
    pub recache_last: bool,
    /// Do not count the read as a use of the item (`u`).
    pub no_bump: bool,
    /// The version number of an item created by `vivify` (`E`).
    pub cas_new: Option<u64>,
}

/// The result of `mg`: an [`Item`] to keep, or an [`ItemRef`](crate::ItemRef) to read in place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "five independent flags of the protocol"
)]
pub struct MetaHit<I = Item> {
    /// The item.
    pub item: I,
    /// The expiry the item had when the command came (`t` in front of `T` or `N`).
    pub expiry_before: Expiry,
    /// The expiry the item has now (`t`).
    pub expiry: Expiry,
    /// True if the item had been read before (`h`).
    pub fetched: bool,
    /// Seconds since the item was last used (`l`).
    pub unused_seconds: Seconds,
    /// This caller should store a fresh value (`W`).
    pub won: bool,
    /// The item was invalidated (`X`).
    pub stale: bool,
    /// Another client has already won the right to store a fresh value (`Z`).
    pub win_sent: bool,
    /// The item was created by this command.
    pub created: bool,
}

impl<I> MetaHit<I> {
    /// The same, with the item in another form.
    pub fn map<J>(self, form: impl FnOnce(I) -> J) -> MetaHit<J> {
        MetaHit {
            item: form(self.item),
            expiry_before: self.expiry_before,
            expiry: self.expiry,
            fetched: self.fetched,
            unused_seconds: self.unused_seconds,
            won: self.won,
            stale: self.stale,
            win_sent: self.win_sent,
            created: self.created,
        }
    }
}

/// Options of a delete command: `delete` and `md`.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeleteOptions {
    /// Delete only this version (`C`).
    pub cas: Option<u64>,
    /// Mark the item stale instead, as a new version (`I`).
    pub invalidate: bool,
    /// With `invalidate`: give the item this expiry (`T`).
    pub expiry: Option<Expiry>,
    /// Keep the item but empty its value and flags (`x`).
    pub remove_value: bool,
    /// The version number for an item that stays (`E`).
    pub cas_new: Option<u64>,
}

/// The outcome of a delete command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// Deleted, invalidated or emptied.
    Deleted,
    /// There is no such item.
    NotFound,
    /// The item has another version than the given one.
    Exists,
}

/// The direction in which a number is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Add, wrapping at 2^64 (`incr`, `MI`).
    #[default]
    Increment,
    /// Subtract, stopping at 0 (`decr`, `MD`).
    Decrement,
}

/// Options of an arithmetic command: `incr`, `decr` and `ma`.
#[derive(Clone, Copy, Debug)]
pub struct ArithmeticOptions {
    /// The direction (`M`).
    pub direction: Direction,
    /// The amount (`D`).
    pub delta: u64,
    /// Change only this version (`C`).
    pub cas: Option<u64>,
    /// Create a missing item with this expiry (`N`), whatever `expiry` is.
    pub vivify: Option<Expiry>,
    /// The number a created item holds (`J`).
    pub initial: u64,
    /// Give the item this expiry (`T`).
    pub expiry: Option<Expiry>,
    /// The version number to give the item instead of the next one (`E`).
    pub cas_new: Option<u64>,
}

impl Default for ArithmeticOptions {
    fn default() -> Self {
        Self {
            direction: Direction::Increment,
            delta: 1,
            cas: None,
            vivify: None,
            initial: 0,
            expiry: None,
            cas_new: None,
        }
    }
}

/// The outcome of an arithmetic command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArithmeticOutcome {
    /// The number was changed, or created.
    Done {
        /// The number now stored.
        number: u64,
        /// The item's new version number.
        cas: u64,
        /// The item's expiry.
        expiry: Expiry,
        /// The expiry before; `None` if the item was created.
        expiry_before: Option<Expiry>,
    },
    /// There is no such item.
    NotFound,
    /// The item has another version than the given one.
    Exists,
    /// The value is not a decimal number of 64 bits.
    NotNumeric,
    /// The number with its key exceeds the item size limit; nothing was changed.
    TooLarge,
    /// There is no room and nothing may be evicted; nothing was changed.
    OutOfMemory,
}

/// The state of an item that `me` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaDebug {
    /// The time at which the item is gone (`exp`).
    pub expiry: Expiry,
    /// Seconds since the item was last used (`la`).
    pub unused_seconds: Seconds,
    /// The version number (`cas`).
    pub cas: u64,
    /// True if the item has been read (`fetch`).
    pub fetched: bool,
    /// The bytes the item occupies, overhead included (`size`).
    pub bytes: usize,
}
