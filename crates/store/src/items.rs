//! The items of one shard: their records, the hash table over them, and the large values.

use crate::arena::{Arena, SharedRun, UNIT_BYTES};
use crate::item::{Expiry, Seconds};
use crate::large::LargeValues;
use crate::record::{
    Entry, HEADER_BYTES, LARGE_UNITS, NIL, Place, RECORD_BYTES_MAX, State, Tag, is_small, mark,
    small_data, units_for, word, word_at, write_state,
};
use crate::segments::{GAP_SHARE, Queue, SEGMENT_BYTES_MAX, Segments};
use crate::table::Table;

/// The segments of a full shard, about: a few of them are being filled and emptied.
const SEGMENTS_WANTED: usize = 256;

/// Segments that are kept from new items, so that others can be moved when room is made.
const RESERVE: usize = 2;

/// An item about to be stored under a key.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    /// The value, in two parts.
    pub(crate) head: &'a [u8],
    pub(crate) tail: &'a [u8],
    /// Key and value in an uncharged run, if one has been filled already.
    pub(crate) ready: Option<SharedRun>,
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    pub(crate) marks: u8,
    pub(crate) cas: u64,
}

impl Write<'_> {
    /// A write of no bytes.
    pub(crate) fn empty(flags: u32, expiry: Expiry, marks: u8, cas: u64) -> Self {
        Self {
            head: &[],
            tail: &[],
            ready: None,
            flags,
            expiry,
            marks,
            cas,
        }
    }

    pub(crate) fn value_len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// The tag of a record for it, under a key of so many bytes.
    fn tag(&self, key_len: usize) -> Tag {
        let value_len = self.value_len();
        if is_small(key_len + value_len) {
            Tag::small(key_len, value_len)
        } else {
            Tag::large(key_len)
        }
    }

    fn state(&self, hash: u32, now: Seconds) -> State {
        State {
            hash,
            expiry: self.expiry,
            flags: self.flags,
            used: now,
            cas: self.cas,
        }
    }

    /// Writes the value over bytes of its length.
    fn copy_to(&self, value: &mut [u8]) {
        let (head, tail) = value.split_at_mut(self.head.len());
        head.copy_from_slice(self.head);
        tail[..self.tail.len()].copy_from_slice(self.tail);
    }
}

#[derive(Debug)]
pub(crate) struct Items {
    pub(crate) table: Table,
    large: LargeValues,
    /// Dropped behind what lies in its arena.
    pub(crate) records: Segments,
    segment_bytes: usize,
    bytes_max: usize,
    /// The bytes of the items that are marked as filled.
    filled_bytes: usize,
    /// The items that have been moved.
    #[cfg(test)]
    pub(crate) moves: usize,
}

impl Items {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let mut items = Self {
            table: Table::default(),
            large: LargeValues::default(),
            records: Segments::new(Arena::new(bytes_max)),
            segment_bytes: 0,
            bytes_max,
            filled_bytes: 0,
            #[cfg(test)]
            moves: 0,
        };
        items.plan_for(bytes_max);
        items
    }

    /// The bytes of everything: records, table and large values.
    pub(crate) fn bytes(&self) -> usize {
        self.records.bytes() + self.table.list_bytes() + self.large.slot_bytes()
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// The bytes of the items that are marked as filled.
    pub(crate) fn filled_bytes(&self) -> usize {
        self.filled_bytes
    }

    /// The bytes that do not become fewer with the items, until [`Items::rebuild`].
    pub(crate) fn fixed_bytes(&self) -> usize {
        self.records.table_bytes() + self.table.list_bytes() + self.large.slot_bytes()
    }

    /// Has others not take again what has been given back, but for the room that moves need.
    pub(crate) fn lower_bytes_max(&mut self) {
        let needed = self.bytes() + self.reserve_bytes();
        self.bytes_max = self.bytes_max.min(needed);
    }

    /// Changes the bound, which the caller has made sure is not exceeded.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.plan_for(bytes_max);
    }

    /// Has the segments that are begun from now on fit to a bound.
    pub(crate) fn plan_for(&mut self, bytes_max: usize) {
        self.segment_bytes = (bytes_max / SEGMENTS_WANTED)
            .clamp(RECORD_BYTES_MAX, SEGMENT_BYTES_MAX)
            .next_multiple_of(UNIT_BYTES);
        self.records.arena.set_bytes_max(bytes_max);
    }

    /// The bytes that are kept free for moves.
    pub(crate) fn reserve_bytes(&self) -> usize {
        RESERVE * self.segment_bytes
    }

    /// Returns true if the next segment can be begun without making room first.
    pub(crate) fn has_spare_segment(&self) -> bool {
        self.bytes() + self.segment_bytes + self.reserve_bytes() <= self.bytes_max
    }

    pub(crate) fn len(&self) -> usize {
        self.records.small.items + self.records.main.items
    }

    /// The bytes that a write of `len` bytes of key and value takes more than there are, over the
    /// item at `existing` or beside the others.
    pub(crate) fn demand(&self, existing: Option<u32>, hash: u32, len: usize) -> usize {
        let (units, outside, slots) = self.parts_of(len);
        let Some(at) = existing else {
            return self.demand_in(self.place_of_new(hash), len);
        };
        let tag = self.records.tag(at);
        let released = self.outside_bytes(at, tag);
        if tag.can_become(units, outside > 0) {
            return outside.saturating_sub(released);
        }
        (self.record_demand(tag.place(), units) + outside + slots).saturating_sub(released)
    }

    /// The bytes that an item more takes in a queue.
    pub(crate) fn demand_in(&self, place: Place, len: usize) -> usize {
        let (units, outside, slots) = self.parts_of(len);
        let table = self.table.growth_bytes(self.len() + 1, &self.records.arena);
        self.record_demand(place, units) + table + outside + slots
    }

    /// The units of a record, the bytes elsewhere, and those that a slot for them may take.
    fn parts_of(&self, len: usize) -> (u32, usize, usize) {
        if is_small(len) {
            return (units_for(len), 0, 0);
        }
        let slots = self.large.growth_bytes();
        (
            LARGE_UNITS,
            LargeValues::demand(len, &self.records.arena),
            slots,
        )
    }

    fn record_demand(&self, place: Place, units: u32) -> usize {
        if self.records.has_room(place, units) {
            return 0;
        }
        self.records
            .opening_bytes(self.segment_bytes)
            .unwrap_or(usize::MAX / 2)
    }

    /// The bytes that a large item has elsewhere.
    fn outside_bytes(&self, at: u32, tag: Tag) -> usize {
        if !tag.is_large() {
            return 0;
        }
        let value = self.large.value(self.slot(at));
        value.map_or(0, |data| LargeValues::value_bytes(data.len()))
    }

    fn slot(&self, at: u32) -> u32 {
        word_at(self.records.record(at), HEADER_BYTES)
    }

    pub(crate) fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        let mut at = self.table.first(hash);
        while at != NIL {
            let record = self.records.record(at);
            if word_at(record, word::HASH) == hash && self.entry(at).key() == key {
                return Some(at);
            }
            at = word_at(record, word::CHAIN);
        }
        None
    }

    #[inline]
    pub(crate) fn entry(&self, at: u32) -> Entry<'_> {
        let record = self.records.record(at);
        let tag = Tag(word_at(record, word::TAG));
        if tag.is_large() {
            let shared = self.large.value(word_at(record, HEADER_BYTES));
            return Entry::new(record, shared.map_or(&[], |run| run), shared);
        }
        Entry::new(record, small_data(record, tag), None)
    }

    /// The bytes that an item takes, its share of the table included.
    pub(crate) fn item_bytes(&self, at: u32) -> usize {
        let tag = self.records.tag(at);
        tag.bytes() + self.outside_bytes(at, tag) + Table::ITEM_BYTES
    }

    /// The bytes by which an item counts as filled.
    fn filled_bytes_of(&self, at: u32) -> usize {
        let tag = self.records.tag(at);
        if tag.marks() & mark::FILLED == 0 {
            return 0;
        }
        tag.bytes() + self.outside_bytes(at, tag)
    }

    /// Notes a use of the item.
    pub(crate) fn bump(&mut self, at: u32) {
        let tag = self.records.tag(at);
        self.set_tag(at, tag.with_uses(tag.uses() + 1));
    }

    /// Notes a use of the item by a reader.
    pub(crate) fn bump_read(&mut self, at: u32, now: Seconds) {
        let tag = self.records.tag(at).with_mark(mark::FETCHED);
        self.set_tag(at, tag.with_uses(tag.uses() + 1));
        self.records.set_word(at, word::USED, now);
    }

    pub(crate) fn set_marks(&mut self, at: u32, marks: u8) {
        let tag = self.records.tag(at);
        self.set_tag(at, tag.with(tag.place(), tag.uses(), marks));
    }

    pub(crate) fn set_expiry(&mut self, at: u32, expiry: Expiry) {
        self.records.set_word(at, word::EXPIRY, expiry.word());
    }

    pub(crate) fn set_cas(&mut self, at: u32, cas: u64) {
        self.records.set_word(at, word::CAS, cas as u32);
        let high = word::CAS + size_of::<u32>();
        self.records.set_word(at, high, (cas >> 32) as u32);
    }

    fn set_tag(&mut self, at: u32, tag: Tag) {
        self.records.set_word(at, word::TAG, tag.0);
    }

    /// Returns the queue for an item that is not there yet.
    fn place_of_new(&self, hash: u32) -> Place {
        if self.table.remembers(hash) {
            Place::Main
        } else {
            Place::Small
        }
    }

    /// Stores an item whose key is not there, in room that the caller has made.
    pub(crate) fn insert(&mut self, key: &[u8], hash: u32, write: Write<'_>, now: Seconds) {
        let place = self.place_of_new(hash);
        if place == Place::Main {
            self.table.forget(hash);
        }
        self.add(place, 0, key, hash, write, now);
    }

    /// Stores an item over another one of its key, in room that the caller has made.
    pub(crate) fn overwrite(
        &mut self,
        at: u32,
        key: &[u8],
        hash: u32,
        write: Write<'_>,
        now: Seconds,
    ) {
        let before = self.records.tag(at);
        let (place, uses) = (before.place(), before.uses() + 1);
        let tag = write.tag(key.len());
        if !before.can_become(tag.units(), tag.is_large()) {
            self.remove(at);
            self.add(place, uses, key, hash, write, now);
            return;
        }
        self.filled_bytes -= self.filled_bytes_of(at);
        self.records.retag(at, tag.with(place, uses, write.marks));
        let record = self.records.record_mut(at);
        write_state(record, &write.state(hash, now));
        if tag.is_large() {
            self.overwrite_large(at, place, key, write);
        } else {
            write.copy_to(&mut record[HEADER_BYTES + key.len()..]);
        }
        self.filled_bytes += self.filled_bytes_of(at);
    }

    fn overwrite_large(&mut self, at: u32, place: Place, key: &[u8], write: Write<'_>) {
        let slot = self.slot(at);
        let len = key.len() + write.value_len();
        let there = self.large.value_mut(slot).filter(|data| data.len() == len);
        if let (None, Some(data)) = (&write.ready, there.and_then(SharedRun::get_mut)) {
            // No reader holds the old bytes, and the new ones fit exactly: no allocation.
            write.copy_to(&mut data[key.len()..]);
            return;
        }
        let before = self.outside_bytes(at, self.records.tag(at));
        if write.ready.is_none() {
            // Its room first: that for both was not made.
            self.large.vacate(slot, &mut self.records.arena);
        }
        let data = self.run_of(key, write);
        let queue = self.records.queue_mut(place);
        queue.bytes = queue.bytes - before + LargeValues::value_bytes(data.len());
        self.large.replace(slot, data, &mut self.records.arena);
    }

    /// A charged run with key and value.
    fn run_of(&mut self, key: &[u8], write: Write<'_>) -> SharedRun {
        let arena = &mut self.records.arena;
        if let Some(run) = write.ready
            && arena.charge(&run)
        {
            return run;
        }
        let run = arena.take_shared(key.len() + write.head.len() + write.tail.len());
        let run = run.filled(&[key, write.head, write.tail]);
        arena.charge(&run);
        run
    }

    /// Stores an item at the new end of a queue, in room that the caller has made.
    pub(crate) fn add(
        &mut self,
        place: Place,
        uses: u8,
        key: &[u8],
        hash: u32,
        write: Write<'_>,
        now: Seconds,
    ) {
        let tag = write.tag(key.len());
        if !self.records.has_room(place, tag.units()) {
            self.records.open(place, self.segment_bytes);
        }
        let at = self.records.append(tag.with(place, uses, write.marks));
        let record = self.records.record_mut(at);
        write_state(record, &write.state(hash, now));
        if tag.is_large() {
            let data = self.run_of(key, write);
            self.records.queue_mut(place).bytes += LargeValues::value_bytes(data.len());
            let slot = self.large.insert(data);
            self.records.set_word(at, HEADER_BYTES, slot);
        } else {
            let (front, value) = record[HEADER_BYTES..].split_at_mut(key.len());
            front.copy_from_slice(key);
            write.copy_to(value);
        }
        self.filled_bytes += self.filled_bytes_of(at);
        let items = self.len();
        self.table.link(&mut self.records, at, hash, items);
    }

    /// Moves all items, in their order, to tables that are as large as they need.
    pub(crate) fn rebuild(&mut self) {
        let mut fresh = Self::new(self.bytes_max);
        fresh.segment_bytes = self.segment_bytes;
        for place in [Place::Small, Place::Main] {
            while let Some(at) = self.records.oldest(place) {
                let entry = self.entry(at);
                let (tag, key, hash) = (entry.tag, entry.key(), entry.hash);
                let write = Write {
                    head: entry.value(),
                    ..Write::empty(entry.flags, entry.expiry, tag.marks(), entry.cas)
                };
                fresh.add(place, tag.uses(), key, hash, write, entry.used);
                self.remove(at);
                self.records.arena.trim();
            }
        }
        *self = fresh;
    }

    /// Removes an item.
    pub(crate) fn remove(&mut self, at: u32) {
        let tag = self.records.tag(at);
        self.filled_bytes -= self.filled_bytes_of(at);
        let items = self.len() - 1;
        self.table.unlink(&mut self.records, at, items);
        if tag.is_large() {
            self.records.queue_mut(tag.place()).bytes -= self.outside_bytes(at, tag);
            let slot = self.slot(at);
            self.large.remove(slot, &mut self.records.arena);
        }
        self.records.release(at);
    }

    /// Moves an item to the new end of a queue; `false` if there is no room for that.
    pub(crate) fn relocate(&mut self, at: u32, place: Place, uses: u8) -> bool {
        let before = self.records.tag(at);
        let tag = before.with_place(place).with_uses(uses);
        if !self.records.has_room(place, tag.units()) && !self.open(place) {
            return false;
        }
        let outside = self.outside_bytes(at, tag);
        let to = self.records.append(tag);
        self.records.copy(at, to);
        self.table.replace(&mut self.records, at, to);
        self.records.queue_mut(before.place()).bytes -= outside;
        self.records.queue_mut(place).bytes += outside;
        self.records.release(at);
        #[cfg(test)]
        {
            self.moves += 1;
        }
        true
    }

    /// Begins a segment if the bound allows.
    fn open(&mut self, place: Place) -> bool {
        let opening = self.records.opening_bytes(self.segment_bytes);
        let has_room = opening.is_some_and(|opening| self.bytes() + opening <= self.bytes_max);
        if has_room {
            self.records.open(place, self.segment_bytes);
        }
        has_room
    }

    /// Returns true if there are so many gaps that moving items saves memory.
    pub(crate) fn has_gaps(&self) -> bool {
        // Two segments are being emptied from their old ends.
        self.records.gap_bytes() > self.bytes_max / GAP_SHARE as usize + 2 * self.segment_bytes
    }

    /// Returns true if moving all items together would free so many bytes, and a segment at least.
    pub(crate) fn can_gain(&self, bytes: usize) -> bool {
        // Besides the gaps there is an end of a segment that the next record does not fit into.
        self.records.gap_bytes() + RECORD_BYTES_MAX >= bytes.max(self.segment_bytes)
    }

    /// Moves the items of one segment with gaps together; `false` if none is found, or no room.
    ///
    /// With `with_ends` any gap counts, in any segment.
    pub(crate) fn clean(&mut self, with_ends: bool) -> bool {
        let Some(segment) = self.records.cleanable(with_ends) else {
            return false;
        };
        let place = self.records.place_of(segment);
        if self.records.is_newest(segment) && !self.open(place) {
            return false;
        }
        let mut next = self.records.next_in(segment, 0);
        while let Some(at) = next {
            let end = self.records.end_of(at);
            if !self.relocate(at, place, self.records.tag(at).uses()) {
                return false;
            }
            next = self.records.next_in(segment, end);
        }
        true
    }

    pub(crate) fn small(&self) -> &Queue {
        &self.records.small
    }
}

#[cfg(test)]
mod tests;
