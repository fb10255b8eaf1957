//! The entries of one shard and the hash table over them.
//!
//! Chained rather than open addressing: the memory is known to the byte, which the hard bound
//! needs, and a removal leaves no tombstone behind.

use triomphe::Arc;

use crate::item::{Expiry, Item, Seconds, Value};

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// The fewest slots a shard grows by.
const GROWTH_MIN: usize = 16;

/// Which queue an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Vacant,
    Small,
    Main,
}

/// Marks of an entry.
pub(crate) mod mark {
    /// The item has been read since it was stored.
    pub(crate) const FETCHED: u8 = 1;
    /// The item was invalidated.
    pub(crate) const STALE: u8 = 2;
    /// A caller has been told to store a fresh value.
    pub(crate) const WIN_SENT: u8 = 4;
}

/// One item, with its links.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The key followed by the value.
    pub(crate) data: Arc<[u8]>,
    pub(crate) cas: u64,
    pub(crate) hash: u32,
    pub(crate) expiry: Expiry,
    pub(crate) flags: u32,
    pub(crate) used: Seconds,
    /// The next entry of the hash bucket, or of the free list.
    chain: u32,
    pub(crate) newer: u32,
    pub(crate) older: u32,
    pub(crate) key_len: u8,
    /// Recent uses, 0 to 3.
    pub(crate) uses: u8,
    pub(crate) place: Place,
    pub(crate) marks: u8,
}

impl Entry {
    pub(crate) fn key(&self) -> &[u8] {
        self.data
            .get(..usize::from(self.key_len))
            .unwrap_or_default()
    }

    pub(crate) fn item(&self) -> Item {
        Item {
            value: Value::new(Arc::clone(&self.data), self.key_len),
            flags: self.flags,
            cas: self.cas,
        }
    }

    pub(crate) fn has(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }
}

/// The fields of an entry that the caller of [`Slab::insert`] chooses.
#[derive(Debug)]
pub(crate) struct NewEntry {
    pub(crate) data: Arc<[u8]>,
    pub(crate) key_len: u8,
    pub(crate) hash: u32,
    pub(crate) cas: u64,
    pub(crate) expiry: Expiry,
    pub(crate) flags: u32,
    pub(crate) used: Seconds,
    pub(crate) marks: u8,
}

/// An arena of entries with a hash table over their keys.
#[derive(Debug)]
pub(crate) struct Slab {
    entries: Vec<Entry>,
    /// The first entry of each bucket; the length is a power of two, or 0.
    heads: Vec<u32>,
    /// The first vacant slot. Meaningful while `vacant` is not 0.
    free: u32,
    vacant: usize,
    /// The data of vacant slots.
    blank: Arc<[u8]>,
}

impl Default for Slab {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            heads: Vec::new(),
            free: NIL,
            vacant: 0,
            blank: std::iter::empty().collect(),
        }
    }
}

impl Slab {
    /// The bytes of an entry, its share of the hash table aside.
    pub(crate) const ENTRY_BYTES: usize = size_of::<Entry>();

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.vacant
    }

    /// The number of slots that exist, vacant ones included.
    pub(crate) fn slots(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn buckets(&self) -> usize {
        self.heads.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_for(self.entries.capacity(), self.heads.len())
    }

    fn bytes_for(slots: usize, buckets: usize) -> usize {
        slots * Self::ENTRY_BYTES + buckets * size_of::<u32>()
    }

    /// Whether the next insertion needs [`Slab::grow`] first.
    pub(crate) fn is_full(&self) -> bool {
        self.vacant == 0 && self.entries.len() == self.entries.capacity()
    }

    /// Whether less than half of the slots hold an item, so that moving them saves memory.
    pub(crate) fn is_sparse(&self) -> bool {
        self.entries.capacity() > 2 * self.len() + 2 * GROWTH_MIN
    }

    fn capacity_after(len: usize) -> (usize, usize) {
        let slots = len + (len / 16).max(GROWTH_MIN);
        // From one to two entries a bucket: the chain is short, and a bucket is a word per item.
        (slots, slots.next_power_of_two() / 2)
    }

    /// The slots and buckets after the next growth.
    pub(crate) fn grown(&self) -> (usize, usize) {
        let (slots, buckets) = Self::capacity_after(self.entries.capacity());
        (slots, buckets.max(self.heads.len()))
    }

    /// The bytes that the next growth adds.
    pub(crate) fn growth_bytes(&self) -> usize {
        let (slots, buckets) = self.grown();
        Self::bytes_for(slots, buckets).saturating_sub(self.bytes())
    }

    /// Makes room for more entries, a sixteenth more at a time.
    pub(crate) fn grow(&mut self) {
        let (slots, buckets) = self.grown();
        self.entries.reserve_exact(slots - self.entries.len());
        if buckets == self.heads.len() {
            return;
        }
        self.heads = vec![NIL; buckets];
        for index in 0..self.entries.len() {
            if self.entries[index].place != Place::Vacant {
                self.link(index as u32);
            }
        }
    }

    /// An empty slab with room for `len` entries and a sixteenth more.
    pub(crate) fn with_room_for(len: usize) -> Self {
        let (slots, buckets) = Self::capacity_after(len);
        Self {
            entries: Vec::with_capacity(slots),
            heads: vec![NIL; buckets],
            ..Self::default()
        }
    }

    pub(crate) fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        if self.heads.is_empty() {
            return None;
        }
        let mut index = self.heads[self.bucket(hash)];
        while index != NIL {
            let entry = &self.entries[index as usize];
            if entry.hash == hash && entry.key() == key {
                return Some(index);
            }
            index = entry.chain;
        }
        None
    }

    pub(crate) fn entry(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }

    pub(crate) fn entry_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    /// Stores an entry in a vacant slot and returns its index.
    ///
    /// The caller has made sure that the slab is not full.
    pub(crate) fn insert(&mut self, new: NewEntry) -> u32 {
        debug_assert!(!self.is_full(), "the caller grows the slab first");
        let entry = Entry {
            data: new.data,
            cas: new.cas,
            hash: new.hash,
            expiry: new.expiry,
            flags: new.flags,
            used: new.used,
            chain: NIL,
            newer: NIL,
            older: NIL,
            key_len: new.key_len,
            uses: 0,
            place: Place::Small,
            marks: new.marks,
        };
        let index = if self.vacant > 0 {
            let index = self.free;
            self.free = self.entries[index as usize].chain;
            self.vacant -= 1;
            self.entries[index as usize] = entry;
            index
        } else {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        };
        self.link(index);
        index
    }

    /// Empties a slot and returns the bytes it held.
    pub(crate) fn remove(&mut self, index: u32) -> Arc<[u8]> {
        let bucket = self.bucket(self.entries[index as usize].hash);
        let next = self.entries[index as usize].chain;
        if self.heads[bucket] == index {
            self.heads[bucket] = next;
        } else {
            let mut before = self.heads[bucket];
            while self.entries[before as usize].chain != index {
                before = self.entries[before as usize].chain;
            }
            self.entries[before as usize].chain = next;
        }
        let entry = &mut self.entries[index as usize];
        entry.place = Place::Vacant;
        entry.key_len = 0;
        entry.chain = self.free;
        self.free = index;
        self.vacant += 1;
        std::mem::replace(&mut entry.data, Arc::clone(&self.blank))
    }

    /// Moves an entry over from another slab, which is about to be dropped.
    pub(crate) fn adopt(&mut self, from: &mut Self, index: u32) -> u32 {
        let entry = from.entry_mut(index);
        let uses = entry.uses;
        let moved = self.insert(NewEntry {
            data: std::mem::replace(&mut entry.data, Arc::clone(&self.blank)),
            key_len: entry.key_len,
            hash: entry.hash,
            cas: entry.cas,
            expiry: entry.expiry,
            flags: entry.flags,
            used: entry.used,
            marks: entry.marks,
        });
        self.entry_mut(moved).uses = uses;
        moved
    }

    fn bucket(&self, hash: u32) -> usize {
        hash as usize & (self.heads.len() - 1)
    }

    fn link(&mut self, index: u32) {
        let bucket = self.bucket(self.entries[index as usize].hash);
        self.entries[index as usize].chain = self.heads[bucket];
        self.heads[bucket] = index;
    }
}

const _: () = assert!(
    size_of::<Entry>() == 56,
    "the overhead in the documentation"
);
