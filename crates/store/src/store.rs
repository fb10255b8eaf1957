//! The store: shards, each behind its lock, under one face.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::config::{StoreConfig, shard_bytes};
use crate::item::{Expiry, Item, ItemRef, Seconds};
use crate::keep::{HashSeed, KeptItem, KeptState, RestoreOutcome, merged};
use crate::options::{
    ArithmeticOptions, ArithmeticOutcome, DeleteOptions, DeleteOutcome, MetaDebug, MetaGet,
    MetaHit, StoreOptions, StoreOutcome,
};
use crate::record::{Entry, Place};
use crate::resize::Resize;
use crate::shard::{Call, Flushed, Shard};
use crate::statistics::Statistics;
use crate::table::Table;
use crate::watch::{Changes, Notify, SharedKey, WatcherId};

/// The longest key of the protocol. Reads of longer keys miss; see [`Store::watch`] for waits.
pub const KEY_BYTES_MAX: usize = 250;

/// A value of at least this many bytes is copied while its shard is not locked.
const FILL_OUTSIDE_BYTES: usize = 64 << 10;

/// An in-memory store with the semantics of memcached and word of every change.
///
/// Shape: shared by all threads; every command locks the one shard of its key. Time comes from the
/// caller, in seconds, and may differ between threads by a little. The memory of a value that a
/// caller still holds after the store dropped it is not counted.
///
/// ```
/// use dwell_store::{Expiry, Store, StoreConfig};
///
/// let now = 1_700_000_000;
/// let store = Store::new(&StoreConfig::default(), Box::new(()));
/// store.set(b"greeting", 0, Expiry::at(now + 60), b"hello", now);
/// assert_eq!(&*store.get(b"greeting", now).unwrap().value, b"hello");
/// assert!(store.get(b"greeting", now + 60).is_none());
/// ```
pub struct Store {
    shards: Box<[Mutex<Shard>]>,
    evicts: bool,
    /// Chosen by the first command, or taken over before it.
    seed: OnceLock<HashSeed>,
    /// The last version number given out.
    versions: AtomicU64,
    flushes: AtomicU64,
    retired: AtomicBool,
    pub(crate) resize: Resize,
    notify: Box<dyn Notify>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Store")
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Makes an empty store that calls `notify` for changes of watched keys.
    pub fn new(config: &StoreConfig, notify: Box<dyn Notify>) -> Self {
        let count = config.shard_count();
        let bytes_max = shard_bytes(config.bytes_max, count);
        let shards = (0..count)
            .map(|_| Mutex::new(Shard::new(bytes_max, config.item_bytes_max, config.evicts)))
            .collect();
        Self {
            shards,
            evicts: config.evicts,
            seed: OnceLock::new(),
            versions: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            retired: AtomicBool::new(false),
            resize: Resize::default(),
            notify,
        }
    }

    /// Marks that another store has the items from now on. A writer checks
    /// [`is_retired`](Self::is_retired) first, because a write to this store would be lost.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Returns true if another store has the items.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Reads an item: `get` and `gets`.
    pub fn get(&self, key: &[u8], now: Seconds) -> Option<Item> {
        self.call(key, now, |shard, call| shard.get(None, call))
    }

    /// Reads an item and gives it a new expiry: `gat` and `gats`.
    pub fn get_and_touch(&self, key: &[u8], expiry: Expiry, now: Seconds) -> Option<Item> {
        self.call(key, now, |shard, call| shard.get(Some(expiry), call))
    }

    /// Reads an item for a caller that copies its bytes elsewhere: `get`, and with `expiry` `gat`.
    ///
    /// Shape: what `visit` returns, or `None` if there is no item. A small item is read in place,
    /// with its shard locked: `visit` is to be short, and must not use the store, or it waits for
    /// itself. If it panics, the item has been read and the store goes on.
    ///
    /// ```
    /// use dwell_store::{Expiry, Store, StoreConfig};
    ///
    /// let store = Store::new(&StoreConfig::default(), Box::new(()));
    /// store.set(b"greeting", 0, Expiry::NEVER, b"hello", 1);
    /// let mut reply = Vec::new();
    /// store.read(b"greeting", None, 1, |item| reply.extend_from_slice(item.value));
    /// assert_eq!(reply, b"hello");
    /// ```
    pub fn read<R>(
        &self,
        key: &[u8],
        expiry: Option<Expiry>,
        now: Seconds,
        visit: impl FnOnce(ItemRef<'_>) -> R,
    ) -> Option<R> {
        let read = self.call(key, now, |shard, call| shard.read(expiry, visit, call))?;
        Some(read.unwrap_or_else(|(item, visit)| visit(item.borrowed())))
    }

    /// Reads an item, of which only a large one is given out: `get`.
    ///
    /// Shape: `Ok` with what `visit` returns for a small item, which is read in place as by
    /// [`Store::read`]; `Err` with a large one, whose value is shared instead; `None` if there is
    /// no item. So nothing is allocated and nothing large is copied.
    ///
    /// ```
    /// use dwell_store::{Expiry, Store, StoreConfig};
    ///
    /// let store = Store::new(&StoreConfig::default(), Box::new(()));
    /// let read = |key| store.read_or_share(key, 1, |item| item.value.to_vec());
    /// store.set(b"small", 0, Expiry::NEVER, b"hello", 1);
    /// assert_eq!(read(b"small"), Some(Ok(b"hello".to_vec())));
    /// store.set(b"large", 0, Expiry::NEVER, &[b'x'; 100_000], 1);
    /// let Some(Err(item)) = read(b"large") else { panic!("it is shared") };
    /// assert_eq!(item.value.len(), 100_000);
    /// ```
    pub fn read_or_share<R>(
        &self,
        key: &[u8],
        now: Seconds,
        visit: impl FnOnce(ItemRef<'_>) -> R,
    ) -> Option<Result<R, Item>> {
        let read = self.call(key, now, |shard, call| shard.read(None, visit, call))?;
        Some(read.map_err(|(item, _)| item))
    }

    /// Stores a value whatever is there: `set`. See [`Store::store`] for the other modes.
    pub fn set(
        &self,
        key: &[u8],
        flags: u32,
        expiry: Expiry,
        value: &[u8],
        now: Seconds,
    ) -> StoreOutcome {
        self.store(
            key,
            value,
            &StoreOptions {
                flags,
                expiry,
                ..StoreOptions::default()
            },
            now,
        )
    }

    /// Stores a value: `set add replace append prepend cas`, and `ms` except for its counter.
    pub fn store(
        &self,
        key: &[u8],
        value: &[u8],
        options: &StoreOptions,
        now: Seconds,
    ) -> StoreOutcome {
        self.store_counting(key, value, options, 0, now)
    }

    /// Removes what is under a key that could not be set, uncounted.
    ///
    /// A server calls this for a `set` whose value it refused to receive: the client meant to
    /// replace the old value, so it must not be served on.
    pub fn discard(&self, key: &[u8], now: Seconds) {
        self.call(key, now, |shard, call| {
            shard.statistics.store_too_large += 1;
            if let Some(index) = shard.find(call) {
                shard.remove(index, call);
            }
        });
    }

    /// Deletes an item: `delete`.
    pub fn delete(&self, key: &[u8], now: Seconds) -> bool {
        let options = DeleteOptions::default();
        self.call(key, now, |shard, call| shard.delete(&options, call)) == DeleteOutcome::Deleted
    }

    /// Deletes an item under conditions; the binary protocol's `delete` names a version.
    pub fn delete_with(&self, key: &[u8], options: &DeleteOptions, now: Seconds) -> DeleteOutcome {
        self.call(key, now, |shard, call| shard.delete(options, call))
    }

    /// Changes a number: `incr` and `decr`.
    pub fn arithmetic(
        &self,
        key: &[u8],
        options: &ArithmeticOptions,
        now: Seconds,
    ) -> ArithmeticOutcome {
        self.call(key, now, |shard, call| shard.arithmetic(options, call))
    }

    /// Gives an item a new expiry: `touch`.
    pub fn touch(&self, key: &[u8], expiry: Expiry, now: Seconds) -> bool {
        self.call(key, now, |shard, call| shard.touch(expiry, call))
    }

    /// Reads an item as `mg` does.
    pub fn meta_get(&self, key: &[u8], options: &MetaGet, now: Seconds) -> Option<MetaHit> {
        self.call(key, now, |shard, call| {
            shard.statistics.cmd_meta += 1;
            shard.meta_get(options, |hit| hit.map(|entry| entry.item()), call)
        })
    }

    /// Reads an item as `mg` does, for a caller that copies its bytes elsewhere.
    ///
    /// Shape: as that of [`Store::read`].
    ///
    /// ```
    /// use dwell_store::{Expiry, MetaGet, Store, StoreConfig};
    ///
    /// let store = Store::new(&StoreConfig::default(), Box::new(()));
    /// store.set(b"greeting", 0, Expiry::NEVER, b"hello", 1);
    /// let len_and_age = store.meta_read(b"greeting", &MetaGet::default(), 4, |hit| {
    ///     (hit.item.value.len(), hit.unused_seconds)
    /// });
    /// assert_eq!(len_and_age, Some((5, 3)));
    /// ```
    pub fn meta_read<R>(
        &self,
        key: &[u8],
        options: &MetaGet,
        now: Seconds,
        visit: impl FnOnce(MetaHit<ItemRef<'_>>) -> R,
    ) -> Option<R> {
        let read = self.call(key, now, |shard, call| {
            shard.statistics.cmd_meta += 1;
            let look = |hit: MetaHit<Entry<'_>>| {
                if hit.item.is_large() {
                    return Err((hit.item.item(), hit.map(drop), visit));
                }
                Ok(visit(hit.map(|entry| entry.item_ref())))
            };
            shard.meta_get(options, look, call)
        })?;
        Some(read.unwrap_or_else(|(item, hit, visit)| visit(hit.map(|()| item.borrowed()))))
    }

    /// Stores a value as `ms` does.
    pub fn meta_set(
        &self,
        key: &[u8],
        value: &[u8],
        options: &StoreOptions,
        now: Seconds,
    ) -> StoreOutcome {
        self.store_counting(key, value, options, 1, now)
    }

    /// Deletes or invalidates an item as `md` does.
    pub fn meta_delete(&self, key: &[u8], options: &DeleteOptions, now: Seconds) -> DeleteOutcome {
        self.call(key, now, |shard, call| {
            shard.statistics.cmd_meta += 1;
            shard.delete(options, call)
        })
    }

    /// Changes a number as `ma` does.
    pub fn meta_arithmetic(
        &self,
        key: &[u8],
        options: &ArithmeticOptions,
        now: Seconds,
    ) -> ArithmeticOutcome {
        self.call(key, now, |shard, call| {
            shard.statistics.cmd_meta += 1;
            shard.arithmetic(options, call)
        })
    }

    /// Describes an item as `me` does, without counting as a use of it.
    pub fn meta_debug(&self, key: &[u8], now: Seconds) -> Option<MetaDebug> {
        self.call(key, now, |shard, call| {
            shard.statistics.cmd_meta += 1;
            shard.meta_debug(call)
        })
    }

    /// Removes everything: `flush_all`.
    ///
    /// Shape: `delay` as on the wire; 0 and negative numbers mean now, others when everything
    /// stored by then goes. A later call replaces a delayed one. All shards are locked for the
    /// moment of an immediate flush, so it is one point in time for every key. Much memory is given
    /// back by a thread, as that takes its time.
    pub fn flush_all(&self, delay: i64, now: Seconds) {
        // Relaxed: only a count.
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let at = Expiry::from_exptime(delay.max(0), now);
        if let Some(time) = at.time().filter(|_| !at.is_past(now)) {
            for index in 0..self.shards.len() {
                self.on_shard(index, now, |shard, _| shard.flush_at(time));
            }
            return;
        }
        let mut changes = Changes::default();
        // Always in the order of the index, and no other command holds two locks.
        let mut guards: Vec<_> = (0..self.shards.len())
            .map(|index| self.lock(index))
            .collect();
        let flushed: Vec<_> = guards
            .iter_mut()
            .map(|shard| shard.flush(&mut changes))
            .collect();
        drop(guards);
        Flushed::discard(flushed);
        changes.deliver(&*self.notify);
    }

    /// Registers a watcher of a key and reads the item, as one step.
    ///
    /// Shape: from here until [`Store::unwatch`] the watcher is notified of every change, once per
    /// [`Store::reread`]. Registering again changes nothing. The key may be missing, and may be
    /// longer than the protocol allows. A registered key takes about 70 bytes and its length, which
    /// the bound of the store does not include: the caller limits its watches.
    pub fn watch(&self, key: &[u8], watcher: WatcherId, now: Seconds) -> Option<Item> {
        let shared = || SharedKey::from(key);
        self.call(key, now, |shard, call| shard.watch(shared, watcher, call))
    }

    /// Watches as [`Store::watch`] does, for a caller that keeps the key as well: both keep the
    /// same bytes.
    pub fn watch_shared(&self, key: &SharedKey, watcher: WatcherId, now: Seconds) -> Option<Item> {
        let shared = || key.clone();
        self.call(key, now, |shard, call| shard.watch(shared, watcher, call))
    }

    /// Reads the item after a notification, as one step with asking for the next one.
    pub fn reread(&self, key: &[u8], watcher: WatcherId, now: Seconds) -> Option<Item> {
        self.call(key, now, |shard, call| shard.reread(watcher, call))
    }

    /// Ends a watcher's interest in a key; whether it had any.
    ///
    /// A notification on its way may still arrive.
    pub fn unwatch(&self, key: &[u8], watcher: WatcherId) -> bool {
        let hash = self.seed().hash(key);
        self.lock(self.shard_of(hash))
            .watches
            .remove(hash as u32, key, watcher)
    }

    /// Does what time alone makes due; to be called about once a second.
    ///
    /// Shape: every watched key whose item has expired is noticed. Besides, up to `budget` items
    /// are examined, from where the last sweep ended, and the expired ones are removed. Returns the
    /// number of items removed.
    pub fn sweep(&self, now: Seconds, budget: usize) -> usize {
        let share = budget.div_ceil(self.shards.len());
        (0..self.shards.len())
            .map(|index| {
                self.on_shard(index, now, |shard, changes| {
                    shard.sweep(now, share, changes)
                })
            })
            .sum()
    }

    /// The number of shards, each with a lock of its own.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The items of one shard, to be kept while the process does not run.
    ///
    /// Shape: those first that would be evicted first. The shard is locked for some of them at a
    /// time, so that they do not take its memory twice; those that are stored or used meanwhile,
    /// or moved to make room, may come twice, or not at all.
    ///
    /// # Panics
    /// When there is no such shard.
    pub fn kept_items(&self, shard: usize) -> impl Iterator<Item = KeptItem> {
        let segments = self.lock(shard).items.records.in_order().collect();
        self.kept_in(shard, segments)
    }

    /// The items of all shards as [`Store::kept_items`] gives them, to be put back into a store
    /// that may have less room or other shards.
    ///
    /// Shape: in this order those can be missed first that come first: all that were used before
    /// all others, and of both the oldest first.
    pub fn kept_items_in_order(&self) -> impl Iterator<Item = KeptItem> {
        [Place::Main, Place::Small]
            .into_iter()
            .flat_map(move |place| {
                merged((0..self.shards()).map(move |shard| {
                    let segments = self.lock(shard).items.records.in_queue(place).collect();
                    self.kept_in(shard, segments)
                }))
            })
    }

    fn kept_in(&self, shard: usize, segments: Vec<u32>) -> impl Iterator<Item = KeptItem> {
        let kept = move |segment| self.lock(shard).kept_items(segment);
        segments.into_iter().flat_map(kept)
    }

    /// Puts an item back as it was when it was kept, into the queue that it was in.
    ///
    /// Shape: to be called in the order of [`Store::kept_items_in_order`]. If there is not room for
    /// all, the newest stay: what has to go for them counts as evicted.
    ///
    /// Versions given out from now on are larger than the item's.
    pub fn restore(
        &self,
        key: &[u8],
        value: &[u8],
        state: &KeptState,
        now: Seconds,
    ) -> RestoreOutcome {
        self.continue_versions(state.cas);
        self.call(key, now, |shard, call| shard.restore(value, state, call))
    }

    /// The seed of the hashes, to be kept with the items.
    pub fn seed(&self) -> &HashSeed {
        self.seed.get_or_init(HashSeed::random)
    }

    /// Takes the seed over that the store had whose items are put back; `false` if a key has been
    /// used here.
    ///
    /// Shape: so every item comes into the shard that it was in. By another seed some shards would
    /// get more than fits into them.
    pub fn continue_seed(&self, seed: HashSeed) -> bool {
        self.seed.set(seed).is_ok()
    }

    /// The largest version (cas unique) that was given out, to whatever item.
    pub fn last_version(&self) -> u64 {
        // Relaxed, here and below: the number only has to be unique.
        self.versions.load(Ordering::Relaxed)
    }

    /// Versions given out from now on are larger than `version`: an item of a store whose items
    /// were taken over may have had it, and be gone.
    pub fn continue_versions(&self, version: u64) {
        self.versions.fetch_max(version, Ordering::Relaxed);
    }

    /// The bytes of the largest item that is stored now, as memcached counts them: those that were
    /// configured, and at most half of a shard.
    pub fn item_bytes_max(&self) -> usize {
        self.lock(0).item_bytes_max()
    }

    /// Returns true if room is made by evicting; see [`StoreConfig::evicts`].
    pub fn evicts(&self) -> bool {
        self.evicts
    }

    /// Sums the counters of all shards.
    pub fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        self.each_shard(|shard| {
            sum.add(&Statistics {
                bytes: shard.bytes() as u64,
                curr_items: shard.items.len() as u64,
                limit_maxbytes: shard.bytes_max() as u64,
                hash_bytes: shard.items.table.bytes() as u64,
                small_items: shard.items.small().items as u64,
                watched_keys: shard.watches.len() as u64,
                watch_notifications: shard.watches.notifications,
                ..shard.statistics
            });
        });
        sum.cmd_flush = self.flushes.load(Ordering::Relaxed);
        let buckets = sum.hash_bytes / Table::ITEM_BYTES as u64;
        sum.hash_power_level = u64::from(buckets.checked_ilog2().unwrap_or(0));
        sum
    }

    /// Sets the counters to 0, not the gauges: `stats reset`.
    pub fn reset_statistics(&self) {
        self.flushes.store(0, Ordering::Relaxed);
        self.each_shard(|shard| {
            shard.statistics = Statistics::default();
            shard.watches.notifications = 0;
        });
    }

    /// Runs one command on the shard of its key, and afterwards makes the calls it owes.
    fn call<R>(
        &self,
        key: &[u8],
        now: Seconds,
        command: impl FnOnce(&mut Shard, &mut Call<'_>) -> R,
    ) -> R {
        let hash = self.seed().hash(key);
        self.on_shard(self.shard_of(hash), now, |shard, changes| {
            // The low half of the hash is kept with the item, the high half chose the shard.
            let hash = hash as u32;
            command(
                shard,
                &mut Call {
                    key,
                    hash,
                    now,
                    versions: &self.versions,
                    changes,
                },
            )
        })
    }

    /// Runs a command on one shard, after what time has made due, and makes the calls it owes.
    pub(crate) fn on_shard<R>(
        &self,
        index: usize,
        now: Seconds,
        command: impl FnOnce(&mut Shard, &mut Changes) -> R,
    ) -> R {
        let mut changes = Changes::default();
        let mut shard = self.lock(index);
        let flushed = shard.advance(now, &mut changes);
        let result = command(&mut shard, &mut changes);
        drop(shard);
        if let Some(flushed) = flushed {
            Flushed::discard(vec![flushed]);
        }
        changes.deliver(&*self.notify);
        result
    }

    fn store_counting(
        &self,
        key: &[u8],
        value: &[u8],
        options: &StoreOptions,
        meta_commands: u64,
        now: Seconds,
    ) -> StoreOutcome {
        let mut ready = None;
        if value.len() >= FILL_OUTSIDE_BYTES {
            let run = self.call(key, now, |shard, call| shard.run_for(value, options, call));
            ready = run.map(|run| run.filled(&[key, value]));
        }
        self.call(key, now, |shard, call| {
            shard.statistics.cmd_meta += meta_commands;
            shard.store(value, ready, options, call)
        })
    }

    fn each_shard(&self, mut visit: impl FnMut(&mut Shard)) {
        for index in 0..self.shards.len() {
            visit(&mut self.lock(index));
        }
    }

    fn shard_of(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    fn lock(&self, index: usize) -> MutexGuard<'_, Shard> {
        // A poisoned lock is taken all the same: a store that refuses every command after one
        // panic would be the worse failure.
        self.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
