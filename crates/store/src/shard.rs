//! One shard: items, their queues and watches under one lock.

use std::sync::atomic::{AtomicU64, Ordering};

use triomphe::Arc;

use crate::item::{Expiry, Seconds, allocate, allocation_bytes};
use crate::queues::Queues;
use crate::slab::{Entry, NewEntry, Place, Slab, mark};
use crate::statistics::Statistics;
use crate::watch::{Changes, Watches};

/// What memcached adds to key and value when it compares an item with the size limit: a header
/// of 48 bytes, the version, and the terminators of key and value.
const ITEM_HEADER_BYTES: usize = 59;

/// The part of a shard that one item may take, so that small items survive a large one.
const ITEM_SHARE: usize = 4;

/// The part of a shard's bytes that the small queue may take.
const SMALL_SHARE: usize = 10;

/// One command on one key, while the shard is locked.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) hash: u32,
    pub(crate) now: Seconds,
    pub(crate) versions: &'a AtomicU64,
    pub(crate) changes: &'a mut Changes,
}

impl Call<'_> {
    /// The version a stored item gets: the one asked for, or the next one.
    pub(crate) fn version(&self, asked: Option<u64>) -> u64 {
        // Relaxed: the number only has to be unique. Order comes from the shard's lock.
        asked.unwrap_or_else(|| self.versions.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// An item about to be stored under the key of a call.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    /// The value, in two parts.
    pub(crate) head: &'a [u8],
    pub(crate) tail: &'a [u8],
    /// Key and value in their allocation, if somebody has made it already.
    pub(crate) ready: Option<Arc<[u8]>>,
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

    fn value_len(&self) -> usize {
        self.head.len() + self.tail.len()
    }
}

/// There is no room and nothing may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// What a removal is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    Asked,
    Expired,
    Evicted,
}

#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) slab: Slab,
    queues: Queues,
    pub(crate) watches: Watches,
    pub(crate) statistics: Statistics,
    bytes_max: usize,
    item_bytes_max: usize,
    evicts: bool,
    /// When everything stored by then goes, by a delayed `flush_all`.
    flush_at: Option<Seconds>,
    /// Where the next sweep begins.
    sweep_from: usize,
}

impl Shard {
    pub(crate) fn new(bytes_max: usize, item_bytes_max: usize, evicts: bool) -> Self {
        Self {
            slab: Slab::default(),
            queues: Queues::default(),
            watches: Watches::default(),
            statistics: Statistics::default(),
            bytes_max,
            item_bytes_max,
            evicts,
            flush_at: None,
            sweep_from: 0,
        }
    }

    /// The bytes of items, slots, hash table and fingerprints.
    pub(crate) fn bytes(&self) -> usize {
        self.queues.item_bytes() + self.slab.bytes() + self.queues.bytes()
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// The indices of all items, those first that would be evicted first, and whether each is in
    /// the main queue.
    pub(crate) fn eviction_order(&self) -> impl Iterator<Item = (u32, bool)> {
        self.queues.eviction_order(&self.slab)
    }

    /// Items in the small queue.
    pub(crate) fn small_items(&self) -> usize {
        self.queues.small_items()
    }

    /// The bytes of the hash table and the fingerprints.
    pub(crate) fn table_bytes(&self) -> usize {
        self.slab.buckets() * size_of::<u32>() + self.queues.bytes()
    }

    /// Whether key and value together are within the item size limit.
    pub(crate) fn fits(&self, key_len: usize, value_len: usize) -> bool {
        let bytes = ITEM_HEADER_BYTES
            .saturating_add(key_len)
            .saturating_add(value_len);
        u8::try_from(key_len).is_ok()
            && bytes <= self.item_bytes_max
            && bytes <= self.bytes_max / ITEM_SHARE
    }

    /// The entry of the call's key, if it has not expired.
    pub(crate) fn find(&mut self, call: &mut Call<'_>) -> Option<u32> {
        let index = self.slab.find(call.hash, call.key)?;
        if self.slab.entry(index).expiry.is_past(call.now) {
            self.remove_expired(index, call.changes);
            return None;
        }
        Some(index)
    }

    /// Notes that the entry was read.
    pub(crate) fn bump(&mut self, index: u32, now: Seconds) {
        let entry = self.slab.entry_mut(index);
        entry.marks |= mark::FETCHED;
        entry.used = now;
        Queues::bump(entry);
    }

    /// Gives the entry another expiry, which may be in the past.
    pub(crate) fn set_expiry(&mut self, index: u32, expiry: Expiry, call: &mut Call<'_>) {
        self.slab.entry_mut(index).expiry = expiry;
        if expiry.is_past(call.now) {
            self.remove_expired(index, call.changes);
        } else {
            self.watches.expiry_moved(call.hash, call.key, expiry);
        }
    }

    /// Tells the watchers of the call's key, whose item now has this expiry.
    pub(crate) fn changed(&mut self, expiry: Expiry, call: &mut Call<'_>) {
        self.watches
            .changed(call.hash, call.key, expiry, call.changes);
    }

    /// Removes the entry because a command asked for it.
    pub(crate) fn remove(&mut self, index: u32, call: &mut Call<'_>) {
        self.take_out(index, Removal::Asked, call.changes);
    }

    /// Stores an item under the call's key, over the entry that [`Shard::find`] returned.
    ///
    /// The caller has made sure that the item [`Shard::fits`].
    ///
    /// # Errors
    /// [`NoRoom`] where nothing may be evicted; the entry is then as it was.
    pub(crate) fn put(
        &mut self,
        existing: Option<u32>,
        write: Write<'_>,
        call: &mut Call<'_>,
    ) -> Result<(), NoRoom> {
        if write.expiry.is_past(call.now) {
            // Stored and expired at once: only the removal of the old value can be seen.
            self.statistics.total_items += 1;
            if let Some(index) = existing {
                self.remove(index, call);
            }
            return Ok(());
        }
        let expiry = write.expiry;
        let bytes = allocation_bytes(call.key.len() + write.value_len());
        let existing = self.make_room(bytes, existing, call)?;
        self.statistics.total_items += 1;
        match existing {
            Some(index) => self.overwrite(index, write, call),
            None => self.insert(write, call),
        }
        self.changed(expiry, call);
        Ok(())
    }

    fn overwrite(&mut self, index: u32, write: Write<'_>, call: &Call<'_>) {
        let entry = self.slab.entry_mut(index);
        let before = entry.data.len();
        let key_len = call.key.len();
        let after = key_len + write.value_len();
        match Arc::get_mut(&mut entry.data) {
            // Nobody reads the old bytes and the new ones fit exactly: no allocation at all.
            Some(bytes) if write.ready.is_none() && before == after => {
                let (middle, back) = bytes[key_len..].split_at_mut(write.head.len());
                middle.copy_from_slice(write.head);
                back.copy_from_slice(write.tail);
            }
            _ => {
                entry.data = write
                    .ready
                    .unwrap_or_else(|| allocate(call.key, write.head, write.tail));
            }
        }
        entry.cas = write.cas;
        entry.expiry = write.expiry;
        entry.flags = write.flags;
        entry.used = call.now;
        entry.marks = write.marks;
        Queues::bump(entry);
        let place = entry.place;
        self.queues.resized(place, before, after);
    }

    fn insert(&mut self, write: Write<'_>, call: &Call<'_>) {
        let data = write
            .ready
            .unwrap_or_else(|| allocate(call.key, write.head, write.tail));
        let index = self.slab.insert(NewEntry {
            data,
            key_len: call.key.len() as u8,
            hash: call.hash,
            cas: write.cas,
            expiry: write.expiry,
            flags: write.flags,
            used: call.now,
            marks: write.marks,
        });
        self.queues.enter(&mut self.slab, index);
    }

    /// Evicts until an item of `bytes` fits in the place of the entry at `existing`, or in a slot
    /// of its own; returns where that entry is now, which may have been moved or evicted.
    fn make_room(
        &mut self,
        bytes: usize,
        existing: Option<u32>,
        call: &mut Call<'_>,
    ) -> Result<Option<u32>, NoRoom> {
        let mut existing = existing;
        loop {
            let released = existing.map_or(0, |index| {
                allocation_bytes(self.slab.entry(index).data.len())
            });
            let growing = existing.is_none() && self.slab.is_full();
            let growth = if growing {
                let (_, buckets) = self.slab.grown();
                self.slab.growth_bytes() + self.queues.growth_bytes(buckets)
            } else {
                0
            };
            if self.bytes() - released + growth + bytes <= self.bytes_max {
                if growing {
                    self.slab.grow();
                    self.queues.resize(self.slab.buckets());
                }
                return Ok(existing);
            }
            if !self.evicts && !self.slab.is_sparse() {
                self.statistics.store_no_memory += 1;
                return Err(NoRoom);
            }
            if !self.shrink(call.now, call.changes) {
                return Ok(existing);
            }
            existing = existing.and_then(|_| self.slab.find(call.hash, call.key));
        }
    }

    /// Gives some memory back, by moving items together or evicting one; `false` if it cannot.
    fn shrink(&mut self, now: Seconds, changes: &mut Changes) -> bool {
        if self.slab.is_sparse() {
            self.queues.compact(&mut self.slab);
            self.sweep_from = 0;
            return true;
        }
        self.evict(now, changes)
    }

    /// Removes one item to make room; `false` if there is none.
    fn evict(&mut self, now: Seconds, changes: &mut Changes) -> bool {
        let small_bytes_max = self.bytes_max / SMALL_SHARE;
        let is_gone = |entry: &Entry| entry.expiry.is_past(now);
        let Some(index) = self.queues.victim(&mut self.slab, small_bytes_max, is_gone) else {
            return false;
        };
        if self.slab.entry(index).expiry.is_past(now) {
            self.remove_expired(index, changes);
        } else {
            self.take_out(index, Removal::Evicted, changes);
        }
        true
    }

    fn remove_expired(&mut self, index: u32, changes: &mut Changes) {
        self.take_out(index, Removal::Expired, changes);
    }

    fn take_out(&mut self, index: u32, removal: Removal, changes: &mut Changes) {
        self.queues.leave(&mut self.slab, index);
        let entry = self.slab.entry(index);
        let (hash, key_len) = (entry.hash, usize::from(entry.key_len));
        let unread = u64::from(!entry.has(mark::FETCHED));
        match removal {
            Removal::Asked => {}
            Removal::Expired => {
                self.statistics.reclaimed += 1;
                self.statistics.expired_unfetched += unread;
            }
            Removal::Evicted => {
                self.statistics.evictions += 1;
                self.statistics.evicted_unfetched += unread;
            }
        }
        let data = self.slab.remove(index);
        let key = data.get(..key_len).unwrap_or_default();
        self.watches.changed(hash, key, Expiry::NEVER, changes);
    }

    /// Does what has become due: a delayed `flush_all`.
    pub(crate) fn advance(&mut self, now: Seconds, changes: &mut Changes) -> Option<Flushed> {
        if self.flush_at.is_some_and(|at| at <= now) {
            return Some(self.flush(changes));
        }
        None
    }

    /// Has everything stored before `at` removed then; replaces an earlier request.
    pub(crate) fn flush_at(&mut self, at: Seconds) {
        self.flush_at = Some(at);
    }

    /// Removes everything, and returns it to be dropped when the lock is released.
    pub(crate) fn flush(&mut self, changes: &mut Changes) -> Flushed {
        self.flush_at = None;
        self.sweep_from = 0;
        self.queues = Queues::default();
        let slab = std::mem::take(&mut self.slab);
        let was_there = |hash, key: &[u8]| slab.find(hash, key).is_some();
        self.watches.flushed(was_there, changes);
        Flushed(slab)
    }

    /// Removes what has expired under watched keys, and looks at `budget` slots besides.
    pub(crate) fn sweep(&mut self, now: Seconds, budget: usize, changes: &mut Changes) -> usize {
        let mut removed = 0;
        while let Some((hash, key)) = self.watches.pop_alarm(now) {
            let Some(index) = self.slab.find(hash, &key) else {
                continue;
            };
            let expiry = self.slab.entry(index).expiry;
            if expiry.is_past(now) {
                self.remove_expired(index, changes);
                removed += 1;
            } else {
                self.watches.expiry_moved(hash, &key, expiry);
            }
        }
        let slots = self.slab.slots();
        for _ in 0..budget.min(slots) {
            if self.sweep_from >= slots {
                self.sweep_from = 0;
            }
            let index = self.sweep_from as u32;
            self.sweep_from += 1;
            let entry = self.slab.entry(index);
            if entry.place != Place::Vacant && entry.expiry.is_past(now) {
                self.remove_expired(index, changes);
                removed += 1;
            }
        }
        self.statistics.crawler_items_checked += budget.min(slots) as u64;
        removed
    }

    /// Changes the bound and evicts what no longer fits.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize, now: Seconds, changes: &mut Changes) {
        self.bytes_max = bytes_max;
        while self.bytes() > self.bytes_max && self.shrink(now, changes) {}
    }
}

/// The items a flush has removed, to be dropped outside of the lock.
#[derive(Debug)]
pub(crate) struct Flushed(#[expect(dead_code, reason = "held to be dropped")] Slab);

#[cfg(test)]
mod tests;
