//! Watchers by key, and the notifications of a change.
//!
//! A watched key has an entry of its own beside the items, so a missing key can be watched. A write
//! to a key without a watcher costs one comparison with an empty table.
//!
//! # Why no wake-up is lost
//!
//! Everything below happens under the lock of the key's shard, except the call of
//! [`Notify::changed`]:
//!
//! 1. `watch` adds the watcher and reads the item, in one hold of the lock.
//! 2. A write changes the item and then sets the watcher's pending mark; if the mark was not set
//!    before, the writer owes one call, which it makes after it has released the lock.
//! 3. `reread` clears the pending mark and reads the item, in one hold of the lock.
//!
//! A write is either before the read of step 1, and the reader has its value, or after it, and
//! finds the watcher registered. A write that finds the mark set owes nothing, because the call
//! owed for the mark has not been answered by a `reread` yet, and that `reread` will see the write.
//! A write after the `reread` finds the mark clear and owes a call of its own. So whenever a
//! watcher's last read differs from the item, a call is owed or has been made and awaits its
//! `reread`. A call may arrive for a change that an earlier read has already seen: that costs one
//! comparison.
//!
//! The call is made outside of the lock so that a notified loop can use the store at once and a
//! slow receiver holds up no other command.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use hashbrown::HashTable;
use triomphe::ThinArc;

use crate::item::{Expiry, Seconds};

/// A loop that waits for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatcherId(u8);

impl WatcherId {
    /// The number of watchers there can be.
    pub const COUNT: u8 = 64;

    /// The watcher of this index, or `None` if the index is not below [`WatcherId::COUNT`].
    pub fn new(index: u8) -> Option<Self> {
        (index < Self::COUNT).then_some(Self(index))
    }

    /// The index.
    pub fn index(self) -> u8 {
        self.0
    }

    fn bit(self) -> u64 {
        1 << self.0
    }
}

/// A key in one allocation that the store shares with its watchers.
///
/// ```
/// use dwell_store::{SharedKey, Store, StoreConfig, WatcherId};
///
/// let store = Store::new(&StoreConfig::default(), Box::new(()));
/// let (key, watcher) = (SharedKey::from(&b"news"[..]), WatcherId::new(0).unwrap());
/// assert!(store.watch_shared(&key, watcher, 1).is_none());
/// assert!(store.unwatch(&key, watcher));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SharedKey(ThinArc<(), u8>);

impl From<&[u8]> for SharedKey {
    fn from(key: &[u8]) -> Self {
        Self(ThinArc::from_header_and_slice((), key))
    }
}

impl Deref for SharedKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.slice
    }
}

/// As its bytes, for tables that are asked with those.
impl Hash for SharedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self[..].hash(state);
    }
}

impl Borrow<[u8]> for SharedKey {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "b\"{}\"", self.escape_ascii())
    }
}

/// Receives word of changes, on the thread that made them.
pub trait Notify: Send + Sync {
    /// The item under `key` is no longer what `watcher` last read.
    ///
    /// Shape: called once per key and watcher until the watcher's `reread`, by whichever thread
    /// made the change, with no lock of the store held. It should hand the key to the watcher's
    /// inbox and return.
    fn changed(&self, watcher: WatcherId, key: &[u8]);
}

/// A receiver for stores without watchers.
impl Notify for () {
    fn changed(&self, _watcher: WatcherId, _key: &[u8]) {}
}

/// The calls a command owes when it has released its lock.
#[derive(Debug, Default)]
pub(crate) struct Changes(Vec<(SharedKey, u64)>);

impl Changes {
    /// Takes back the call to a watcher that is reading the change itself.
    pub(crate) fn withdraw(&mut self, key: &[u8], watcher: WatcherId) {
        for (changed, watchers) in &mut self.0 {
            if **changed == *key {
                *watchers &= !watcher.bit();
            }
        }
    }

    /// Makes the calls.
    pub(crate) fn deliver(self, notify: &dyn Notify) {
        for (key, mut watchers) in self.0 {
            while watchers != 0 {
                notify.changed(WatcherId(watchers.trailing_zeros() as u8), &key);
                watchers &= watchers - 1;
            }
        }
    }
}

#[derive(Debug)]
struct Watch {
    key: SharedKey,
    watchers: u64,
    /// The watchers that are owed a `reread`; a subset of `watchers`.
    pending: u64,
    hash: u32,
    /// The time at which the item's expiry is checked: never later than it.
    alarm: Expiry,
}

/// The watched keys of one shard.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    slots: Slots,
    free: Vec<u32>,
    table: HashTable<u32>,
    /// The alarms of all watches.
    alarms: BTreeSet<(Seconds, u32)>,
    pub(crate) notifications: u64,
}

/// Watches by slot, in blocks: none is moved for another, which would leave holes of memory among
/// the keys, and a shard has few slots that are not used.
#[derive(Debug, Default)]
struct Slots {
    #[expect(
        clippy::vec_box,
        reason = "blocks stay where they are when there are more"
    )]
    blocks: Vec<Box<[Option<Watch>; BLOCK_SLOTS]>>,
    /// Slots that were used.
    len: usize,
}

const BLOCK_SLOTS: usize = 16;

impl Slots {
    fn get(&self, slot: u32) -> Option<&Watch> {
        let block = self.blocks.get(slot as usize / BLOCK_SLOTS)?;
        block[slot as usize % BLOCK_SLOTS].as_ref()
    }

    fn get_mut(&mut self, slot: u32) -> Option<&mut Watch> {
        self.place(slot)?.as_mut()
    }

    /// The place of a slot that was used.
    fn place(&mut self, slot: u32) -> Option<&mut Option<Watch>> {
        let block = self.blocks.get_mut(slot as usize / BLOCK_SLOTS)?;
        Some(&mut block[slot as usize % BLOCK_SLOTS])
    }

    /// Takes the next slot that was never used.
    fn push(&mut self, watch: Watch) -> u32 {
        let slot = self.len as u32;
        if self.len.is_multiple_of(BLOCK_SLOTS) {
            self.blocks.push(Box::new([const { None }; BLOCK_SLOTS]));
        }
        self.len += 1;
        if let Some(place) = self.place(slot) {
            *place = Some(watch);
        }
        slot
    }
}

impl Watches {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Adds a watcher of a key.
    ///
    /// Shape: `shared` makes the kept form of `key`; it is called if the key has no watcher yet.
    pub(crate) fn add(
        &mut self,
        hash: u32,
        key: &[u8],
        shared: impl FnOnce() -> SharedKey,
        watcher: WatcherId,
    ) {
        if let Some(watch) = self.find(hash, key).and_then(|slot| self.slot(slot)) {
            watch.watchers |= watcher.bit();
            return;
        }
        let watch = Watch {
            key: shared(),
            watchers: watcher.bit(),
            pending: 0,
            hash,
            alarm: Expiry::NEVER,
        };
        let reused = self.free.pop();
        let slot = match reused.and_then(|slot| Some((slot, self.slots.place(slot)?))) {
            Some((slot, place)) => {
                *place = Some(watch);
                slot
            }
            None => self.slots.push(watch),
        };
        let slots = &self.slots;
        self.table.insert_unique(spread(hash), slot, |&slot| {
            slots.get(slot).map_or(0, |watch| spread(watch.hash))
        });
    }

    /// Removes a watcher of a key; whether it was one.
    pub(crate) fn remove(&mut self, hash: u32, key: &[u8], watcher: WatcherId) -> bool {
        let Some(slot) = self.find(hash, key) else {
            return false;
        };
        let Some(watch) = self.slot(slot) else {
            return false;
        };
        let was_watching = watch.watchers & watcher.bit() != 0;
        watch.watchers &= !watcher.bit();
        watch.pending &= !watcher.bit();
        if watch.watchers != 0 {
            return was_watching;
        }
        if let Some(alarm) = watch.alarm.time() {
            self.alarms.remove(&(alarm, slot));
        }
        if let Ok(occupied) = self.table.find_entry(spread(hash), |&other| other == slot) {
            occupied.remove();
        }
        if let Some(place) = self.slots.place(slot) {
            *place = None;
        }
        self.free.push(slot);
        self.release_slack();
        was_watching
    }

    /// Clears the pending mark of a watcher, before it reads.
    pub(crate) fn acknowledge(&mut self, hash: u32, key: &[u8], watcher: WatcherId) {
        if let Some(watch) = self.find(hash, key).and_then(|slot| self.slot(slot)) {
            watch.pending &= !watcher.bit();
        }
    }

    /// Marks the watchers of a changed key; `expiry` is that of the item now there.
    pub(crate) fn changed(&mut self, hash: u32, key: &[u8], expiry: Expiry, to: &mut Changes) {
        let Some(slot) = self.find(hash, key) else {
            return;
        };
        self.mark(slot, to);
        self.set_alarm(slot, expiry);
    }

    /// Notes that the item of a key has a new expiry.
    pub(crate) fn expiry_moved(&mut self, hash: u32, key: &[u8], expiry: Expiry) {
        if let Some(slot) = self.find(hash, key) {
            self.set_alarm(slot, expiry);
        }
    }

    /// Marks the watchers of every key whose item is gone now: `was_there` returns true for those
    /// that had one.
    pub(crate) fn flushed(&mut self, was_there: impl Fn(u32, &[u8]) -> bool, to: &mut Changes) {
        for slot in 0..self.slots.len as u32 {
            let watch = self.slots.get(slot);
            if watch.is_some_and(|watch| was_there(watch.hash, &watch.key)) {
                self.mark(slot, to);
            }
        }
    }

    /// Takes one alarm that is due, as the hash and key to check.
    pub(crate) fn pop_alarm(&mut self, now: Seconds) -> Option<(u32, SharedKey)> {
        let &(alarm, slot) = self.alarms.first()?;
        if alarm > now {
            return None;
        }
        self.alarms.pop_first();
        let watch = self.slot(slot)?;
        watch.alarm = Expiry::NEVER;
        Some((watch.hash, watch.key.clone()))
    }

    fn find(&self, hash: u32, key: &[u8]) -> Option<u32> {
        if self.table.is_empty() {
            return None;
        }
        let is_key = |&slot: &u32| {
            let watch = self.slots.get(slot);
            watch.is_some_and(|watch| *watch.key == *key)
        };
        self.table.find(spread(hash), is_key).copied()
    }

    fn slot(&mut self, slot: u32) -> Option<&mut Watch> {
        self.slots.get_mut(slot)
    }

    fn mark(&mut self, slot: u32, to: &mut Changes) {
        let Some(watch) = self.slot(slot) else { return };
        let fresh = watch.watchers & !watch.pending;
        if fresh == 0 {
            return;
        }
        watch.pending |= fresh;
        let key = watch.key.clone();
        self.notifications += u64::from(fresh.count_ones());
        to.0.push((key, fresh));
    }

    /// Makes sure that the watch has an alarm no later than `expiry`.
    ///
    /// An alarm that is too early stays: when it rings, the expiry is checked and the alarm set
    /// again. So moving an expiry ahead again and again costs nothing.
    fn set_alarm(&mut self, slot: u32, expiry: Expiry) {
        let Some(time) = expiry.time() else { return };
        let Some(watch) = self.slot(slot) else { return };
        let before = watch.alarm.time();
        if before.is_some_and(|alarm| alarm <= time) {
            return;
        }
        watch.alarm = Expiry::at(time);
        if let Some(alarm) = before {
            self.alarms.remove(&(alarm, slot));
        }
        self.alarms.insert((time, slot));
    }

    /// Gives memory back when the last of many watches is gone.
    fn release_slack(&mut self) {
        if self.table.is_empty() {
            *self = Self {
                notifications: self.notifications,
                ..Self::default()
            };
        }
    }
}

/// Widens a hash for a table that uses the top bits.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_small() {
        assert_eq!(size_of::<SharedKey>(), 8);
        assert_eq!(size_of::<Option<Watch>>(), 32);
    }

    #[test]
    fn a_key_is_found_by_its_bytes() {
        let names = std::collections::HashSet::from([SharedKey::from(&b"news"[..])]);
        assert!(names.contains(&b"news"[..]) && !names.contains(&b"new"[..]));
    }

    #[test]
    fn slots_are_used_again_and_need_not_be_in_order() {
        let mut watches = Watches::default();
        let of_loop = WatcherId(3);
        let name = |number: u32| number.to_string().into_bytes();
        let add = |watches: &mut Watches, number: u32| {
            let key = name(number);
            watches.add(number, &key, || SharedKey::from(&key[..]), of_loop);
        };
        for number in 0..100 {
            add(&mut watches, number);
        }
        for number in (0..100).step_by(3) {
            assert!(watches.remove(number, &name(number), of_loop));
        }
        for number in 100..134 {
            add(&mut watches, number);
        }
        assert_eq!((watches.len(), watches.slots.len), (100, 100));
        for number in 0..134 {
            let is_there = number % 3 != 0 || number >= 100;
            assert_eq!(watches.find(number, &name(number)).is_some(), is_there);
            assert_eq!(watches.remove(number, &name(number), of_loop), is_there);
        }
        assert_eq!((watches.len(), watches.slots.blocks.len()), (0, 0));
    }
}
