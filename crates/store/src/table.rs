//! The hash table over the records, and the memory of what was dropped.
//!
//! Chained, through a word of every record: the memory is known to the byte, which the hard bound
//! needs, and a removal leaves no tombstone behind. Grown and shrunk by one bucket at a time
//! (linear hashing), so that no command pays for all items.
//!
//! Source: Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980.

use crate::arena::{Arena, Run};
use crate::record::{NIL, word, word_at};
use crate::segments::Segments;

/// The buckets of one run; a table has zero buckets, or at least so many.
const PAGE_BUCKETS: usize = 256;

const BUCKET_BYTES: usize = 2 * size_of::<u32>();

const PAGE_BYTES: usize = PAGE_BUCKETS * BUCKET_BYTES;

/// The place of the second word of a bucket.
const DROPPED: usize = size_of::<u32>();

/// The fewest pages that the list of pages grows by.
const GROWTH_MIN: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    first: u32,
    /// The hash of an item that was dropped; 0 for no item.
    dropped: u32,
}

const EMPTY: Bucket = Bucket {
    first: NIL,
    dropped: 0,
};

impl Bucket {
    fn to_bytes(self) -> [u8; BUCKET_BYTES] {
        let [first, dropped] = [self.first, self.dropped].map(u64::from);
        (first | dropped << u32::BITS).to_le_bytes()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The words of buckets, two each, as bytes.
    pages: Vec<Run>,
    buckets: usize,
    /// The least power of two that is not below `buckets`, less one.
    mask: usize,
}

impl Table {
    /// Bytes that an item takes in the table.
    pub(crate) const ITEM_BYTES: usize = BUCKET_BYTES;

    pub(crate) fn bytes(&self) -> usize {
        self.pages.len() * PAGE_BYTES + self.list_bytes()
    }

    /// The bytes of the list of pages.
    pub(crate) fn list_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<Run>()
    }

    /// The bytes that the table takes more when it holds `items`.
    pub(crate) fn growth_bytes(&self, items: usize, arena: &Arena) -> usize {
        if items <= self.pages.len() * PAGE_BUCKETS {
            return 0;
        }
        let is_full = self.pages.len() == self.pages.capacity();
        let entries = if is_full { self.growth() } else { 0 };
        arena.demand(PAGE_BYTES) + entries * size_of::<Run>()
    }

    fn growth(&self) -> usize {
        (self.pages.len() / 16).max(GROWTH_MIN)
    }

    pub(crate) fn first(&self, hash: u32) -> u32 {
        if self.buckets == 0 {
            return NIL;
        }
        self.bucket(self.place(hash)).first
    }

    /// The first record of the bucket that a hash is in, and how many low bits the hashes of that
    /// bucket have in common; `None` if there are no buckets.
    pub(crate) fn bucket_of(&self, hash: u32) -> Option<(u32, u32)> {
        if self.buckets == 0 {
            return None;
        }
        let place = self.place(hash);
        let half = self.mask >> 1;
        let is_split = place > half || place + half + 1 < self.buckets;
        let mask = if is_split { self.mask } else { half };
        Some((self.bucket(place).first, mask.count_ones()))
    }

    /// Puts a record into its bucket, of a table that then holds `items`.
    pub(crate) fn link(&mut self, records: &mut Segments, at: u32, hash: u32, items: usize) {
        if items > self.buckets {
            self.split(records);
        }
        let place = self.place(hash);
        let chain = self.bucket(place).first;
        self.set_first(place, at);
        records.set_word(at, word::CHAIN, chain);
    }

    /// Takes a record out of its bucket, of a table that then holds `items`.
    pub(crate) fn unlink(&mut self, records: &mut Segments, at: u32, items: usize) {
        let next = word_at(records.record(at), word::CHAIN);
        self.replace(records, at, next);
        for _ in 0..2 {
            if self.buckets > items + items / 8 + PAGE_BUCKETS {
                self.merge(records);
            }
        }
    }

    /// Has whatever points to a record point elsewhere.
    pub(crate) fn replace(&mut self, records: &mut Segments, at: u32, with: u32) {
        let place = self.place(word_at(records.record(at), word::HASH));
        let first = self.bucket(place).first;
        if first == at {
            self.set_first(place, with);
            return;
        }
        let mut before = first;
        loop {
            let next = word_at(records.record(before), word::CHAIN);
            if next == at {
                break;
            }
            before = next;
        }
        records.set_word(before, word::CHAIN, with);
    }

    /// Remembers that an item was dropped.
    pub(crate) fn remember(&mut self, hash: u32) {
        let place = self.place(hash);
        self.set_dropped(place, hash);
    }

    /// Returns true if an item of this hash was dropped lately.
    pub(crate) fn remembers(&self, hash: u32) -> bool {
        self.buckets > 0 && hash != 0 && self.bucket(self.place(hash)).dropped == hash
    }

    /// Forgets an item that [`Table::remembers`].
    pub(crate) fn forget(&mut self, hash: u32) {
        let place = self.place(hash);
        self.set_dropped(place, 0);
    }

    /// Adds a bucket, which takes over its part of another one.
    fn split(&mut self, records: &mut Segments) {
        if self.buckets == self.pages.len() * PAGE_BUCKETS {
            if self.pages.len() == self.pages.capacity() {
                self.pages.reserve_exact(self.growth());
            }
            let mut page = records.arena.take(PAGE_BYTES);
            for bucket in page.chunks_exact_mut(BUCKET_BYTES) {
                bucket.copy_from_slice(&EMPTY.to_bytes());
            }
            self.pages.push(page);
        }
        if self.buckets == 0 {
            self.buckets = PAGE_BUCKETS;
            self.mask = PAGE_BUCKETS - 1;
            return;
        }
        let target = self.buckets;
        self.buckets += 1;
        self.mask = self.buckets.next_power_of_two() - 1;
        let source = target & self.mask >> 1;
        let Bucket { first, dropped } = self.replace_bucket(source, EMPTY);
        if dropped != 0 {
            self.set_dropped(self.place(dropped), dropped);
        }
        let mut at = first;
        while at != NIL {
            let record = records.record(at);
            let next = word_at(record, word::CHAIN);
            let place = self.place(word_at(record, word::HASH));
            let chain = self.bucket(place).first;
            self.set_first(place, at);
            records.set_word(at, word::CHAIN, chain);
            at = next;
        }
    }

    /// Removes the last bucket, which leaves its part to another one.
    fn merge(&mut self, records: &mut Segments) {
        let source = self.buckets - 1;
        let target = source & self.mask >> 1;
        let from = self.replace_bucket(source, EMPTY);
        self.buckets = source;
        self.mask = self.buckets.next_power_of_two() - 1;
        if self.buckets.is_multiple_of(PAGE_BUCKETS) {
            let page = self.pages.pop().unwrap_or_default();
            records.arena.free(page);
        }
        let into = self.bucket(target);
        if into.dropped == 0 {
            self.set_dropped(target, from.dropped);
        }
        if into.first == NIL {
            self.set_first(target, from.first);
            return;
        }
        let mut last = into.first;
        loop {
            let next = word_at(records.record(last), word::CHAIN);
            if next == NIL {
                break;
            }
            last = next;
        }
        records.set_word(last, word::CHAIN, from.first);
    }

    fn place(&self, hash: u32) -> usize {
        let place = hash as usize & self.mask;
        if place < self.buckets {
            place
        } else {
            place & self.mask >> 1
        }
    }

    fn bucket(&self, place: usize) -> Bucket {
        let page = &self.pages[place / PAGE_BUCKETS];
        let at = place % PAGE_BUCKETS * BUCKET_BYTES;
        Bucket {
            first: word_at(page, at),
            dropped: word_at(page, at + DROPPED),
        }
    }

    fn set_first(&mut self, place: usize, first: u32) {
        self.set_word(place, 0, first);
    }

    fn set_dropped(&mut self, place: usize, hash: u32) {
        self.set_word(place, DROPPED, hash);
    }

    fn replace_bucket(&mut self, place: usize, with: Bucket) -> Bucket {
        let before = self.bucket(place);
        self.set_first(place, with.first);
        self.set_dropped(place, with.dropped);
        before
    }

    #[inline]
    fn set_word(&mut self, place: usize, word: usize, value: u32) {
        let page = &mut self.pages[place / PAGE_BUCKETS];
        let at = place % PAGE_BUCKETS * BUCKET_BYTES + word;
        if let Some(bytes) = page[at..].first_chunk_mut() {
            *bytes = value.to_le_bytes();
        }
    }
}

#[cfg(test)]
impl Table {
    /// The records that are linked; each must be in its own bucket.
    pub(crate) fn count(&self, records: &Segments) -> usize {
        let mut count = 0;
        for place in 0..self.buckets {
            let mut at = self.bucket(place).first;
            while at != NIL {
                assert_eq!(self.place(word_at(records.record(at), word::HASH)), place);
                count += 1;
                at = word_at(records.record(at), word::CHAIN);
            }
        }
        count
    }
}
