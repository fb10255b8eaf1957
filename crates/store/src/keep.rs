//! Taking all items out, and putting them back after a restart.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

use crate::item::{Expiry, Value};
use crate::items::Write;
use crate::record::{Place, mark};
use crate::shard::{Call, Shard};

/// An item with its complete state, to be kept beyond the life of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptItem {
    /// Key and bytes.
    pub value: Value,
    /// The state stored beside them.
    pub state: KeptState,
}

/// The state of an item beside its key and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptState {
    /// The client's flags.
    pub flags: u32,
    /// The time at which the item is gone.
    pub expiry: Expiry,
    /// The version number.
    pub cas: u64,
    /// One bit each: the item has been read, is stale, a win was given out, and it is a copy of
    /// what can be had again.
    pub marks: u8,
    /// True if the item has been used enough to be among the last that are evicted.
    pub is_frequent: bool,
    /// The recent uses, each of which is another round before the item is evicted: at most 3.
    pub uses: u8,
}

/// The outcome of putting an item back; see [`Store::restore`](crate::Store::restore).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreOutcome {
    /// The item is there again.
    Restored,
    /// The item's time is over.
    Expired,
    /// There is no room for the item.
    LeftOut,
}

/// The secret that a store's hashes begin with: it decides which shard has a key.
///
/// Shape: random. Clients that had it could choose keys of one shard.
#[derive(Clone, Debug)]
pub struct HashSeed {
    words: [u64; 2],
    shared: SharedSeed,
}

impl HashSeed {
    /// The bytes of a seed that is kept.
    pub const BYTES: usize = 16;

    pub(crate) fn random() -> Self {
        // Seeded by the system, unlike those of the faster hash.
        let random = RandomState::new();
        Self::new([random.hash_one(0), random.hash_one(1)])
    }

    fn new(words: [u64; 2]) -> Self {
        let shared = SharedSeed::from_u64(words[1]);
        Self { words, shared }
    }

    /// The seed that [`HashSeed::to_bytes`] gave.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self::new([both as u64, (both >> 64) as u64])
    }

    /// The seed, to be kept beyond the life of the process.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let [low, high] = self.words.map(u128::from);
        (low | high << 64).to_le_bytes()
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.words[0], &self.shared);
        key.hash(&mut hasher);
        hasher.finish()
    }
}

/// The marks that are kept.
const MARKS: u8 = mark::FETCHED | mark::STALE | mark::WIN_SENT | mark::FILLED;

/// Joins the items of shards into one sequence, in which the next one is always the one stored
/// first among those that are next in their shards.
pub(crate) fn merged(
    shards: impl Iterator<Item = impl Iterator<Item = KeptItem>>,
) -> impl Iterator<Item = KeptItem> {
    let mut shards: Vec<_> = shards.map(Iterator::peekable).collect();
    let heads = shards.iter_mut().enumerate();
    let mut heads: BinaryHeap<_> = heads
        .filter_map(|(index, items)| Some(Reverse((items.peek()?.state.cas, index))))
        .collect();
    std::iter::from_fn(move || {
        let Reverse((_, index)) = heads.pop()?;
        let items = shards.get_mut(index)?;
        let item = items.next();
        if let Some(next) = items.peek() {
            heads.push(Reverse((next.state.cas, index)));
        }
        item
    })
}

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
                        uses: entry.tag.uses(),
                    },
                }
            })
            .collect()
    }

    /// Puts a kept item back into the queue that it was in, behind those that are there.
    ///
    /// Shape: all of the bound is used before anything is evicted, so what fitted before fits
    /// again. Beyond it the oldest go, also in a store that evicts nothing otherwise.
    pub(crate) fn restore(
        &mut self,
        value: &[u8],
        state: &KeptState,
        call: &mut Call<'_>,
    ) -> RestoreOutcome {
        if state.expiry.is_past(call.now) {
            return RestoreOutcome::Expired;
        }
        if !self.fits(call.key.len(), value.len()) {
            return RestoreOutcome::LeftOut;
        }
        if let Some(at) = self.find(call) {
            self.remove(at, call);
        }
        let place = if state.is_frequent {
            Place::Main
        } else {
            Place::Small
        };
        if !self.make_room_to_restore(place, call.key.len() + value.len(), call) {
            return RestoreOutcome::LeftOut;
        }
        let write = Write {
            head: value,
            ..Write::empty(state.flags, state.expiry, state.marks & MARKS, state.cas)
        };
        self.statistics.total_items += 1;
        let (key, hash, now) = (call.key, call.hash, call.now);
        self.items.add(place, state.uses, key, hash, write, now);
        self.changed(state.expiry, call);
        RestoreOutcome::Restored
    }
}
