//! Taking all items out, and putting them back after a restart.

use crate::item::{Expiry, Value};
use crate::items::Write;
use crate::record::{Place, mark};
use crate::shard::{Call, Shard};

/// An item with everything the store knows of it, to be kept beyond the life of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptItem {
    /// Key and bytes.
    pub value: Value,
    /// What is stored beside them.
    pub state: KeptState,
}

/// What is stored beside key and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptState {
    /// The client's flags.
    pub flags: u32,
    /// When the item is gone.
    pub expiry: Expiry,
    /// The version number.
    pub cas: u64,
    /// Whether the item has been read, is stale, and whether a win was given out: one bit each.
    pub marks: u8,
    /// Whether the item has been used enough to be among the last that are evicted.
    pub is_frequent: bool,
}

/// The marks that are kept.
const MARKS: u8 = mark::FETCHED | mark::STALE | mark::WIN_SENT;

impl Shard {
    /// The items of one segment.
    pub(crate) fn kept_items(&self, segment: u32) -> Vec<KeptItem> {
        let places = self.items.records.iter_in(segment);
        places
            .map(|at| {
                let entry = self.items.entry(at);
                KeptItem {
                    value: entry.item().value,
                    state: KeptState {
                        flags: entry.flags,
                        expiry: entry.expiry,
                        cas: entry.cas,
                        marks: entry.tag.marks() & MARKS,
                        is_frequent: entry.tag.place() == Place::Main,
                    },
                }
            })
            .collect()
    }

    /// Puts a kept item back; `false` if it has expired, or there is no room for it.
    pub(crate) fn restore(&mut self, value: &[u8], state: &KeptState, call: &mut Call<'_>) -> bool {
        if state.expiry.is_past(call.now) || !self.fits(call.key.len(), value.len()) {
            return false;
        }
        let existing = self.find(call);
        let write = Write {
            head: value,
            ..Write::empty(state.flags, state.expiry, state.marks & MARKS, state.cas)
        };
        if self.put(existing, write, call).is_err() {
            return false;
        }
        if state.is_frequent
            && let Some(at) = self.items.find(call.hash, call.key)
        {
            // It is promoted when its turn comes to be evicted.
            self.items.set_uses(at, 1);
        }
        true
    }
}
