//! One shard: items, their queues and watches under one lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::arena::SharedRun;
use crate::item::{Expiry, Seconds};
use crate::items::{Items, Write};
use crate::options::{StoreMode, StoreOptions};
use crate::queues::PASSES_OF_COMMAND_MAX;
use crate::record::{Place, mark};
use crate::segments::Sweep;
use crate::statistics::Statistics;
use crate::watch::{Changes, Watches};

/// Bytes that memcached adds to key and value when it compares an item with the size limit: a
/// header of 48 bytes, the version, and the terminators of key and value.
const ITEM_HEADER_BYTES: usize = 59;

/// The part of a shard that one item may take: as of all of memcached's memory.
const ITEM_SHARE: usize = 2;

/// The part of a shard that a value may be for which there is room beside the one it replaces.
const FILL_SHARE: usize = 16;

/// Above this the length of a run could not be counted.
const ITEM_BYTES_LIMIT: usize = i32::MAX as usize;

/// The segments that one command may clean when it can evict, too.
const CLEANS_MAX: usize = 4;

/// The segments that one command may clean before it is refused.
const CLEANS_TO_REFUSAL: usize = 16;

/// The records that one command may check for expired ones before it is refused.
const SWEEP_TO_REFUSAL: usize = 256;

/// The items evicted or moved at a time for a smaller bound.
const EVICTIONS_AT_A_TIME: usize = 1024;

/// The most that a flush gives back to the system at once; more of it takes too long.
const FLUSHED_BYTES_MAX: usize = 4 << 20;

/// The part of a bound that tables of the size for a larger one may take.
const FIXED_SHARE: usize = 16;

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
    /// Returns the version that a stored item gets: the given one, or the next one.
    pub(crate) fn version(&self, asked: Option<u64>) -> u64 {
        // Relaxed: the number only has to be unique. Order comes from the shard's lock.
        asked.unwrap_or_else(|| self.versions.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// There is no room and nothing may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// The work that one command may still do to make room.
#[derive(Debug)]
struct Effort {
    cleans: usize,
    passes: usize,
    /// The records that may be visited.
    sweep: Sweep,
}

impl Effort {
    fn new(evicts: bool) -> Self {
        let (cleans, records) = if evicts {
            (CLEANS_MAX, 0)
        } else {
            (CLEANS_TO_REFUSAL, SWEEP_TO_REFUSAL)
        };
        Self {
            cleans,
            passes: PASSES_OF_COMMAND_MAX,
            sweep: Sweep::new(records),
        }
    }
}

/// The counter of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    Asked,
    Expired,
    Evicted,
}

#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) items: Items,
    pub(crate) watches: Watches,
    pub(crate) statistics: Statistics,
    item_bytes_max: usize,
    evicts: bool,
    /// The time of a delayed `flush_all`, at which everything stored by then goes.
    flush_at: Option<Seconds>,
}

impl Shard {
    pub(crate) fn new(bytes_max: usize, item_bytes_max: usize, evicts: bool) -> Self {
        Self {
            items: Items::new(bytes_max),
            watches: Watches::default(),
            statistics: Statistics::default(),
            item_bytes_max,
            evicts,
            flush_at: None,
        }
    }

    /// The bytes of items, hash table and fingerprints.
    pub(crate) fn bytes(&self) -> usize {
        self.items.bytes()
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.items.bytes_max()
    }

    /// Returns true if key and value together are within the item size limit.
    pub(crate) fn fits(&self, key_len: usize, value_len: usize) -> bool {
        let bytes = ITEM_HEADER_BYTES
            .saturating_add(key_len)
            .saturating_add(value_len);
        u8::try_from(key_len).is_ok() && bytes <= self.item_bytes_max()
    }

    /// The bytes that one item may have, as memcached counts them.
    pub(crate) fn item_bytes_max(&self) -> usize {
        let share = self.bytes_max() / ITEM_SHARE;
        self.item_bytes_max.min(share).min(ITEM_BYTES_LIMIT)
    }

    /// The item of the call's key, if it has not expired.
    pub(crate) fn find(&mut self, call: &mut Call<'_>) -> Option<u32> {
        let at = self.items.find(call.hash, call.key)?;
        if self.items.entry(at).expiry.is_past(call.now) {
            self.take_out(at, Removal::Expired, call.changes);
            return None;
        }
        Some(at)
    }

    /// Gives the item another expiry, which may be in the past.
    pub(crate) fn set_expiry(&mut self, at: u32, expiry: Expiry, call: &mut Call<'_>) {
        self.items.set_expiry(at, expiry);
        if expiry.is_past(call.now) {
            self.take_out(at, Removal::Expired, call.changes);
        } else {
            self.watches.expiry_moved(call.hash, call.key, expiry);
        }
    }

    /// Notifies the watchers of the call's key, whose item now has this expiry.
    pub(crate) fn changed(&mut self, expiry: Expiry, call: &mut Call<'_>) {
        self.watches
            .changed(call.hash, call.key, expiry, call.changes);
    }

    /// Removes the item by order of a command.
    pub(crate) fn remove(&mut self, at: u32, call: &mut Call<'_>) {
        self.take_out(at, Removal::Asked, call.changes);
    }

    /// Stores an item under the call's key, over the one that [`Shard::find`] returned.
    ///
    /// The caller has made sure that the item [`Shard::fits`].
    ///
    /// # Errors
    /// [`NoRoom`] where nothing may be evicted; the item is then as it was.
    pub(crate) fn put(
        &mut self,
        existing: Option<u32>,
        write: Write<'_>,
        call: &mut Call<'_>,
    ) -> Result<(), NoRoom> {
        if write.expiry.is_past(call.now) {
            // Stored and expired at once: only the removal of the old value can be seen.
            self.statistics.total_items += 1;
            if let Some(at) = existing {
                self.remove(at, call);
            }
            return Ok(());
        }
        let expiry = write.expiry;
        let len = call.key.len() + write.value_len();
        let existing = self.make_room(len, existing, call)?;
        self.statistics.total_items += 1;
        let (key, hash, now) = (call.key, call.hash, call.now);
        match existing {
            Some(at) => self.items.overwrite(at, key, hash, write, now),
            None => self.items.insert(key, hash, write, now),
        }
        self.changed(expiry, call);
        Ok(())
    }

    /// Evicts until an item with `len` bytes of key and value fits over the one at `existing`, or
    /// beside the others; returns where that one is now, which may have been moved or evicted.
    fn make_room(
        &mut self,
        len: usize,
        existing: Option<u32>,
        call: &mut Call<'_>,
    ) -> Result<Option<u32>, NoRoom> {
        let mut existing = existing;
        let mut effort = Effort::new(self.evicts);
        // A full shard makes room item by item, not for a segment at once when it needs another.
        let mut is_ahead = existing.is_some() || !self.evicts;
        loop {
            let demand = self.items.demand(existing, call.hash, len);
            let wanted = self.bytes().saturating_add(demand);
            let with_reserve = wanted.saturating_add(self.items.reserve_bytes());
            let missing = with_reserve.saturating_sub(self.bytes_max());
            if demand == 0 || missing == 0 {
                if is_ahead || self.items.has_spare_segment() {
                    return Ok(existing);
                }
                is_ahead = true;
                self.shrink(missing, &mut effort, call.now, call.changes);
                continue;
            }
            if !self.shrink(missing, &mut effort, call.now, call.changes) {
                if wanted <= self.bytes_max() && self.evicts {
                    return Ok(existing);
                }
                self.statistics.store_no_memory += 1;
                return Err(NoRoom);
            }
            existing = existing.and_then(|_| self.items.find(call.hash, call.key));
        }
    }

    /// Makes room for a value and takes the run for it, to be filled while the shard is not locked.
    ///
    /// Shape: `None` if it is to be filled under the lock: where it may be refused after all, or
    /// where room for it beside the item that it replaces would be much of the shard.
    pub(crate) fn run_for(
        &mut self,
        value: &[u8],
        options: &StoreOptions,
        call: &mut Call<'_>,
    ) -> Option<SharedRun> {
        let is_sure = options.mode == StoreMode::Set && options.cas.is_none();
        let len = call.key.len() + value.len();
        let fits = self.fits(call.key.len(), value.len()) && len <= self.bytes_max() / FILL_SHARE;
        if !is_sure || !fits || !self.evicts || options.expiry.is_past(call.now) {
            return None;
        }
        self.make_room(len, None, call).ok()?;
        Some(self.items.records.arena.take_shared(len))
    }

    /// Makes room for an item that is put back; `false` if no room can be made.
    pub(crate) fn make_room_to_restore(
        &mut self,
        place: Place,
        len: usize,
        call: &mut Call<'_>,
    ) -> bool {
        let mut passes = PASSES_OF_COMMAND_MAX;
        loop {
            let demand = self.items.demand_in(place, len);
            if demand == 0 || self.bytes().saturating_add(demand) <= self.bytes_max() {
                return true;
            }
            if !self.evict(&mut passes, call.now, call.changes)
                && !self.items.records.give_back_empty()
            {
                return false;
            }
        }
    }

    /// Gives some of the memory back that is missing, by moving items together or removing one;
    /// `false` if it cannot.
    fn shrink(
        &mut self,
        missing: usize,
        effort: &mut Effort,
        now: Seconds,
        changes: &mut Changes,
    ) -> bool {
        if self.remove_expired(&mut effort.sweep, now, changes) > 0 {
            return true;
        }
        let is_worth = if self.evicts {
            self.items.has_gaps()
        } else {
            self.items.can_gain(missing)
        };
        if is_worth && effort.cleans > 0 && self.items.clean(!self.evicts) {
            effort.cleans -= 1;
            return true;
        }
        self.evicts && self.evict(&mut effort.passes, now, changes)
            || self.items.records.give_back_empty()
    }

    /// Removes one item to make room; `false` if no item is left.
    fn evict(&mut self, passes: &mut usize, now: Seconds, changes: &mut Changes) -> bool {
        let Some(at) = self.items.victim(now, passes) else {
            return false;
        };
        let is_past = self.items.entry(at).expiry.is_past(now);
        let removal = if is_past {
            Removal::Expired
        } else {
            Removal::Evicted
        };
        self.take_out(at, removal, changes);
        true
    }

    fn take_out(&mut self, at: u32, removal: Removal, changes: &mut Changes) {
        let entry = self.items.entry(at);
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
        self.watches
            .changed(entry.hash, entry.key(), Expiry::NEVER, changes);
        self.items.remove(at);
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
        let fresh = Items::new(self.bytes_max());
        let items = std::mem::replace(&mut self.items, fresh);
        let was_there = |hash, key: &[u8]| items.find(hash, key).is_some();
        self.watches.flushed(was_there, changes);
        Flushed(items)
    }

    /// Removes what has expired under watched keys, and visits `budget` records besides.
    pub(crate) fn sweep(&mut self, now: Seconds, budget: usize, changes: &mut Changes) -> usize {
        let mut removed = 0;
        self.items.records.arena.sweep();
        while let Some((hash, key)) = self.watches.pop_alarm(now) {
            let Some(at) = self.items.find(hash, &key) else {
                continue;
            };
            let expiry = self.items.entry(at).expiry;
            if expiry.is_past(now) {
                self.take_out(at, Removal::Expired, changes);
                removed += 1;
            } else {
                self.watches.expiry_moved(hash, &key, expiry);
            }
        }
        removed + self.remove_expired(&mut Sweep::new(budget), now, changes)
    }

    /// Removes what has expired of the records that may be visited; how many those were.
    fn remove_expired(&mut self, sweep: &mut Sweep, now: Seconds, changes: &mut Changes) -> usize {
        let (records_before, mut removed) = (sweep.records_left, 0);
        while let Some(at) = self.items.records.sweep(sweep) {
            if self.items.entry(at).expiry.is_past(now) {
                self.take_out(at, Removal::Expired, changes);
                removed += 1;
            }
        }
        let looked_at = records_before - sweep.records_left;
        self.statistics.crawler_items_checked += looked_at as u64;
        removed
    }

    /// Evicts some of what does not fit into a new bound; `false` if there is more to evict, and
    /// this is to be called again.
    pub(crate) fn approach_bytes_max(
        &mut self,
        bytes_max: usize,
        now: Seconds,
        changes: &mut Changes,
    ) -> bool {
        self.items.plan_for(bytes_max);
        let fixed = self.items.fixed_bytes();
        let sheds_fixed = fixed > bytes_max / FIXED_SHARE;
        let bytes_left = bytes_max + if sheds_fixed { fixed } else { 0 };
        // Until the new bound is met one above it is the limit for moves.
        if !self.evict_until(bytes_left, EVICTIONS_AT_A_TIME, now, changes) {
            self.items.lower_bytes_max();
            return false;
        }
        if sheds_fixed {
            self.items.rebuild();
            self.evict_until(bytes_max, usize::MAX, now, changes);
        }
        self.items.set_bytes_max(bytes_max);
        true
    }

    /// Evicts until no more than so many bytes are taken; `false` if that takes more evictions.
    fn evict_until(
        &mut self,
        bytes: usize,
        evictions: usize,
        now: Seconds,
        changes: &mut Changes,
    ) -> bool {
        let mut left = evictions;
        while left > 0 {
            let mut passes = PASSES_OF_COMMAND_MAX;
            let is_met = self.bytes() <= bytes;
            if is_met
                || !self.evict(&mut passes, now, changes) && !self.items.records.give_back_empty()
            {
                return true;
            }
            left = left.saturating_sub(1 + PASSES_OF_COMMAND_MAX - passes);
        }
        false
    }
}

/// The items a flush has removed, to be dropped outside of the lock.
#[derive(Debug)]
pub(crate) struct Flushed(Items);

impl Flushed {
    /// Gives the memory back: at once if it is not much, or else in a thread of its own.
    pub(crate) fn discard(flushed: Vec<Self>) {
        let bytes: usize = flushed.iter().map(|Self(items)| items.bytes()).sum();
        if bytes <= FLUSHED_BYTES_MAX {
            return;
        }
        let discard = move || drop(flushed);
        // Where there is no thread to be had it is dropped here, by the one that failed.
        let _ = thread::Builder::new()
            .name("store-flush".into())
            .spawn(discard);
    }
}

#[cfg(test)]
mod tests;
