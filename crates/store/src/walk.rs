//! Going through all items, a slice at a time, while the store is used.

use crate::item::Seconds;
use crate::options::MetaDebug;
use crate::record::{NIL, word, word_at};
use crate::shard::Shard;
use crate::store::Store;

/// A place on the way through all items of a store.
///
/// Shape: a few bytes, which borrow nothing. An item that is there from the beginning to the end is
/// met exactly once, however many others come, go and are moved meanwhile; one that comes or goes
/// is met at most once.
///
/// The hashes are gone through in the order of their bits read backwards: so every bucket of the
/// table has hashes that follow one another, whatever its size, and stays so when it is split.
///
/// ```
/// use dwell_store::{Expiry, Store, StoreConfig, Walk};
///
/// let store = Store::new(&StoreConfig::default(), Box::new(()));
/// for key in [b"one", b"two"] {
///     store.set(key, 0, Expiry::NEVER, b"value", 1);
/// }
/// let mut walk = Walk::default();
/// let mut keys = Vec::new();
/// while !walk.is_over(&store) {
///     walk.step(&store, 64, 1, |item| keys.push(item.key.to_vec()));
/// }
/// keys.sort_unstable();
/// assert_eq!(keys, [b"one", b"two"]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Walk {
    shard: usize,
    /// The hash that comes next, its bits read backwards.
    next: u64,
}

/// An item that is met on a [`Walk`].
#[derive(Clone, Copy, Debug)]
pub struct WalkedItem<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The bytes of its value.
    pub value_len: usize,
    /// The facts that `me` shows of it.
    pub debug: MetaDebug,
}

/// Behind the last hash of a shard.
const END: u64 = 1 << u32::BITS;

impl Walk {
    /// True when all items have been met.
    pub fn is_over(&self, store: &Store) -> bool {
        self.shard >= store.shards()
    }

    /// Goes on until `budget` is used up or a shard ends; returns how much was used.
    ///
    /// Shape: a bucket of the table costs 1, and so does each item; the last bucket may go beyond
    /// the budget. The shard is locked meanwhile: `visit` is to be short and must not use the
    /// store. Expired items are passed over, and no item counts as used.
    pub fn step(
        &mut self,
        store: &Store,
        budget: usize,
        now: Seconds,
        mut visit: impl FnMut(WalkedItem<'_>),
    ) -> usize {
        if self.is_over(store) {
            return 0;
        }
        let next = &mut self.next;
        let used = store.on_shard(self.shard, now, |shard, _| {
            let mut used = 0;
            while used < budget {
                let Ok(from) = u32::try_from(*next) else {
                    break;
                };
                let Some((first, bits)) = shard.items.table.bucket_of(from.reverse_bits()) else {
                    *next = END;
                    break;
                };
                used += 1 + shard.walk_chain(first, from, now, &mut visit);
                let hashes = END >> bits;
                *next = (*next & !(hashes - 1)) + hashes;
            }
            used
        });
        if self.next >= END {
            self.shard += 1;
            self.next = 0;
        }
        used
    }
}

impl Shard {
    /// Visits the items of one bucket, but for those whose hashes, read backwards, are below
    /// `from`; returns how many there are.
    fn walk_chain(
        &self,
        first: u32,
        from: u32,
        now: Seconds,
        visit: &mut impl FnMut(WalkedItem<'_>),
    ) -> usize {
        let mut count = 0;
        let mut at = first;
        while at != NIL {
            let entry = self.items.entry(at);
            if entry.hash.reverse_bits() >= from && !entry.expiry.is_past(now) {
                visit(WalkedItem {
                    key: entry.key(),
                    value_len: entry.value().len(),
                    debug: self.describe(at, now),
                });
            }
            count += 1;
            at = word_at(self.items.records.record(at), word::CHAIN);
        }
        count
    }
}
