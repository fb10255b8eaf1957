//! The commands, on one locked shard; those on numbers are in `arithmetic`.

use crate::arena::SharedRun;

use crate::item::{Expiry, Item, ItemRef, Seconds};
use crate::items::Write;
use crate::options::{
    DeleteOptions, DeleteOutcome, MetaDebug, MetaGet, MetaHit, StoreMode, StoreOptions,
    StoreOutcome,
};
use crate::record::{Entry, mark};
use crate::shard::{Call, NoRoom, Shard};
use crate::watch::{SharedKey, WatcherId};

impl Shard {
    /// `get`, `gets`, and with `expiry` `gat` and `gats`.
    pub(crate) fn get(&mut self, expiry: Option<Expiry>, call: &mut Call<'_>) -> Option<Item> {
        let at = self.find_to_get(expiry, call)?;
        let item = self.items.entry(at).item();
        if let Some(expiry) = expiry {
            self.set_expiry(at, expiry, call);
        }
        Some(item)
    }

    /// `get` and its like for a caller that copies the bytes: has them read where they are.
    ///
    /// # Errors
    /// A large item, to be read when the lock is released.
    pub(crate) fn read<R, V: FnOnce(ItemRef<'_>) -> R>(
        &mut self,
        expiry: Option<Expiry>,
        visit: V,
        call: &mut Call<'_>,
    ) -> Option<Result<R, (Item, V)>> {
        let at = self.find_to_get(expiry, call)?;
        let entry = self.items.entry(at);
        let read = if entry.is_large() {
            Err((entry.item(), visit))
        } else {
            Ok(visit(entry.item_ref()))
        };
        if let Some(expiry) = expiry {
            self.set_expiry(at, expiry, call);
        }
        Some(read)
    }

    /// Registers a watcher and reads.
    ///
    /// Shape: as [`Watches::add`](crate::watch::Watches::add).
    pub(crate) fn watch(
        &mut self,
        shared: impl FnOnce() -> SharedKey,
        watcher: WatcherId,
        call: &mut Call<'_>,
    ) -> Option<Item> {
        // The order within the lock cannot be observed; read first, so that an expiry noticed by
        // this read is not announced to its own reader.
        let item = self.get(None, call);
        self.watches.add(call.hash, call.key, shared, watcher);
        if let Some(at) = self.items.find(call.hash, call.key) {
            let expiry = self.items.entry(at).expiry;
            self.watches.expiry_moved(call.hash, call.key, expiry);
        }
        item
    }

    /// Reads for a watcher, whose lookup was counted when it began, and clears its mark.
    pub(crate) fn reread(&mut self, watcher: WatcherId, call: &mut Call<'_>) -> Option<Item> {
        let found = self.find(call);
        self.watches.acknowledge(call.hash, call.key, watcher);
        call.changes.withdraw(call.key, watcher);
        let at = found?;
        self.items.bump_read(at, call.now);
        Some(self.items.entry(at).item())
    }

    pub(crate) fn touch(&mut self, expiry: Expiry, call: &mut Call<'_>) -> bool {
        let found = self.find(call);
        self.count_touch(found.is_some());
        if let Some(at) = found {
            self.items.bump_read(at, call.now);
            self.set_expiry(at, expiry, call);
        }
        found.is_some()
    }

    pub(crate) fn store(
        &mut self,
        value: &[u8],
        ready: Option<SharedRun>,
        options: &StoreOptions,
        call: &mut Call<'_>,
    ) -> StoreOutcome {
        self.statistics.cmd_set += 1;
        let existing = self.find(call);
        if !self.fits(call.key.len(), value.len()) {
            self.statistics.store_too_large += 1;
            if let (Some(at), StoreMode::Set, None) = (existing, options.mode, options.cas) {
                // The client meant to replace this value; serving it on would be serving stale.
                self.remove(at, call);
            }
            return StoreOutcome::TooLarge;
        }
        let stale = match self.check(existing, options) {
            Ok(stale) => stale,
            Err(refusal) => return refusal,
        };
        let extends = matches!(options.mode, StoreMode::Append | StoreMode::Prepend);
        if let (true, Some(at)) = (extends, existing) {
            return self.extend(at, value, options, call);
        }
        let mut marks = if options.filled { mark::FILLED } else { 0 };
        let mut expiry = options.expiry;
        if let (true, Some(vivify)) = (extends, options.vivify) {
            (marks, expiry) = (0, vivify);
        }
        if let (true, Some(at)) = (stale, existing) {
            // A late value does not earn a new life: it stays stale, for the old time.
            let entry = self.items.entry(at);
            expiry = entry.expiry;
            marks = mark::STALE | (entry.tag.marks() & mark::WIN_SENT);
        }
        let cas = call.version(options.cas_new);
        let flags = options.flags;
        let write = Write {
            head: value,
            tail: &[],
            ready,
            flags,
            expiry,
            marks,
            cas,
        };
        if self.put(existing, write, call).is_ok() {
            return StoreOutcome::Stored { cas };
        }
        if options.mode == StoreMode::Set && options.cas.is_none() {
            // Looked up again: making room may have moved it.
            if let Some(at) = self.items.find(call.hash, call.key) {
                self.remove(at, call);
            }
        }
        StoreOutcome::OutOfMemory
    }

    /// Decides whether a store goes ahead; `Ok(true)` if it does with a version that is too old.
    fn check(
        &mut self,
        existing: Option<u32>,
        options: &StoreOptions,
    ) -> Result<bool, StoreOutcome> {
        let extends = matches!(options.mode, StoreMode::Append | StoreMode::Prepend);
        let overwrites = matches!(options.mode, StoreMode::Set | StoreMode::Replace);
        let Some(at) = existing else {
            return match (options.mode, options.cas) {
                (StoreMode::Set | StoreMode::Replace, Some(_)) => {
                    self.statistics.cas_misses += 1;
                    Err(StoreOutcome::NotFound)
                }
                (StoreMode::Replace, None) => Err(StoreOutcome::NotStored),
                _ if extends && options.vivify.is_none() => Err(StoreOutcome::NotStored),
                _ => Ok(false),
            };
        };
        if options.mode == StoreMode::Add {
            self.items.bump(at);
            return Err(StoreOutcome::NotStored);
        }
        let Some(asked) = options.cas else {
            return Ok(false);
        };
        let there = self.items.entry(at).cas;
        if asked == there {
            self.statistics.cas_hits += u64::from(overwrites);
            return Ok(false);
        }
        if overwrites && options.invalidate && asked < there {
            return Ok(true);
        }
        self.statistics.cas_badval += u64::from(overwrites);
        Err(StoreOutcome::Exists)
    }

    /// `append` and `prepend`, which keep flags and expiry; the longer value is a fresh one.
    fn extend(
        &mut self,
        at: u32,
        value: &[u8],
        options: &StoreOptions,
        call: &mut Call<'_>,
    ) -> StoreOutcome {
        let entry = self.items.entry(at);
        let expiry = entry.expiry;
        let old = entry.item();
        if !self.fits(call.key.len(), old.value.len().saturating_add(value.len())) {
            self.statistics.store_too_large += 1;
            return StoreOutcome::TooLarge;
        }
        let (head, tail) = match options.mode {
            StoreMode::Prepend => (value, &*old.value),
            _ => (&*old.value, value),
        };
        let cas = call.version(options.cas_new);
        let write = Write {
            head,
            tail,
            ready: None,
            flags: old.flags,
            expiry,
            marks: 0,
            cas,
        };
        match self.put(Some(at), write, call) {
            Ok(()) => StoreOutcome::Stored { cas },
            Err(NoRoom) => StoreOutcome::OutOfMemory,
        }
    }

    pub(crate) fn delete(&mut self, options: &DeleteOptions, call: &mut Call<'_>) -> DeleteOutcome {
        let Some(at) = self.find(call) else {
            self.statistics.delete_misses += 1;
            return DeleteOutcome::NotFound;
        };
        if options
            .cas
            .is_some_and(|cas| cas != self.items.entry(at).cas)
        {
            self.statistics.delete_misses += 1;
            return DeleteOutcome::Exists;
        }
        self.statistics.delete_hits += 1;
        if !options.invalidate && !options.remove_value {
            self.remove(at, call);
            return DeleteOutcome::Deleted;
        }
        let cas = call.version(options.cas_new);
        let entry = self.items.entry(at);
        let mut expiry = entry.expiry;
        let mut marks = entry.tag.marks();
        if options.invalidate {
            expiry = options.expiry.unwrap_or(expiry);
            // The next reader wins the right to store a fresh value.
            marks = (marks | mark::STALE) & !mark::WIN_SENT;
        }
        if options.remove_value {
            let write = Write::empty(0, expiry, marks, cas);
            // There is room for what is smaller than before, or else the item is gone altogether.
            let emptied = self.put(Some(at), write, call);
            if let (Err(NoRoom), Some(at)) = (emptied, self.items.find(call.hash, call.key)) {
                self.remove(at, call);
            }
            return DeleteOutcome::Deleted;
        }
        self.items.set_marks(at, marks);
        self.items.set_cas(at, cas);
        self.set_expiry(at, expiry, call);
        self.changed(expiry, call);
        DeleteOutcome::Deleted
    }

    /// `mg`: has the item read as it is before the command changes it.
    pub(crate) fn meta_get<R>(
        &mut self,
        options: &MetaGet,
        visit: impl FnOnce(MetaHit<Entry<'_>>) -> R,
        call: &mut Call<'_>,
    ) -> Option<R> {
        let found = self.find_for_read(call);
        if options.expiry.is_some() {
            self.count_touch(found.is_some());
        }
        let Some(at) = found else {
            let created = self.vivify(options, call)?;
            return Some(visit(created));
        };
        let entry = self.items.entry(at);
        let stale = entry.has(mark::STALE);
        let win_sent = entry.has(mark::WIN_SENT);
        let expiry_before = entry.expiry;
        let expiry = options.expiry.unwrap_or(expiry_before);
        let judged = if options.recache_last {
            expiry
        } else {
            expiry_before
        };
        let remaining = judged.remaining(call.now);
        let runs_out = matches!((remaining, options.recache), (Some(left), Some(r)) if left < r);
        let won = !win_sent && (stale || runs_out);
        let result = visit(MetaHit {
            item: entry,
            expiry_before,
            expiry,
            fetched: entry.has(mark::FETCHED),
            unused_seconds: call.now.saturating_sub(entry.used),
            won,
            stale,
            win_sent,
            created: false,
        });
        if !options.no_bump {
            self.items.bump_read(at, call.now);
        }
        if won {
            let marks = self.items.entry(at).tag.marks();
            self.items.set_marks(at, marks | mark::WIN_SENT);
        }
        if options.expiry.is_some() {
            self.set_expiry(at, expiry, call);
        }
        Some(result)
    }

    /// Creates the empty item by which other clients learn that a value is on its way.
    fn vivify<'a>(&mut self, options: &MetaGet, call: &mut Call<'a>) -> Option<MetaHit<Entry<'a>>> {
        let expiry = options.vivify.filter(|_| self.fits(call.key.len(), 0))?;
        let cas = call.version(options.cas_new);
        let marks = mark::WIN_SENT | mark::FETCHED;
        self.put(None, Write::empty(0, expiry, marks, cas), call)
            .ok()?;
        Some(MetaHit {
            item: Entry::blank(call.key, expiry, cas),
            expiry_before: expiry,
            expiry,
            fetched: false,
            unused_seconds: 0,
            won: true,
            stale: false,
            win_sent: false,
            created: true,
        })
    }

    pub(crate) fn meta_debug(&mut self, call: &mut Call<'_>) -> Option<MetaDebug> {
        let at = self.find(call)?;
        Some(self.describe(at, call.now))
    }

    pub(crate) fn describe(&self, at: u32, now: Seconds) -> MetaDebug {
        let entry = self.items.entry(at);
        MetaDebug {
            expiry: entry.expiry,
            unused_seconds: now.saturating_sub(entry.used),
            cas: entry.cas,
            fetched: entry.has(mark::FETCHED),
            bytes: self.items.item_bytes(at),
        }
    }

    /// Finds the item, counts the lookup and notes the use.
    fn find_to_get(&mut self, expiry: Option<Expiry>, call: &mut Call<'_>) -> Option<u32> {
        let found = self.find_for_read(call);
        if expiry.is_some() {
            self.count_touch(found.is_some());
        }
        if let Some(at) = found {
            self.items.bump_read(at, call.now);
        }
        found
    }

    /// Finds the item and counts the lookup.
    fn find_for_read(&mut self, call: &mut Call<'_>) -> Option<u32> {
        let reclaimed = self.statistics.reclaimed;
        let found = self.find(call);
        self.statistics.cmd_get += 1;
        if found.is_some() {
            self.statistics.get_hits += 1;
        } else {
            self.statistics.get_misses += 1;
            self.statistics.get_expired += self.statistics.reclaimed - reclaimed;
        }
        found
    }

    fn count_touch(&mut self, hit: bool) {
        self.statistics.cmd_touch += 1;
        if hit {
            self.statistics.touch_hits += 1;
        } else {
            self.statistics.touch_misses += 1;
        }
    }
}
