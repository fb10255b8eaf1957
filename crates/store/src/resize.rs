//! A change of the bound, which goes on over many steps while the store is used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::shard_bytes;
use crate::item::Seconds;
use crate::store::Store;

/// The rest of a change.
#[derive(Clone, Copy, Debug)]
struct Pending {
    shard_bytes_max: usize,
    /// The shard that comes next.
    shard: usize,
}

/// The change of the bound that has not come to its end, of which there is one at most.
#[derive(Debug, Default)]
pub(crate) struct Resize {
    pending: Mutex<Option<Pending>>,
    is_pending: AtomicBool,
}

impl Resize {
    /// Begins a change, in the place of one that has not come to its end.
    pub(crate) fn begin(&self, shard_bytes_max: usize) {
        let mut pending = self.pending();
        let shard = 0;
        *pending = Some(Pending {
            shard_bytes_max,
            shard,
        });
        self.is_pending.store(true, Ordering::Release);
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.is_pending.load(Ordering::Acquire)
    }

    /// Goes on with one of the shards; whether there is more to do.
    ///
    /// Shape: `approach` gets the shard and its bound, and tells whether it is met. One step runs
    /// at a time, so that of two changes the later one is what all shards end with.
    pub(crate) fn step(&self, shards: usize, approach: impl FnOnce(usize, usize) -> bool) -> bool {
        let mut guard = self.pending();
        let Some(pending) = &mut *guard else {
            return false;
        };
        if approach(pending.shard, pending.shard_bytes_max) {
            pending.shard += 1;
        }
        if pending.shard < shards {
            return true;
        }
        *guard = None;
        self.is_pending.store(false, Ordering::Release);
        false
    }

    fn pending(&self) -> MutexGuard<'_, Option<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Changes the bound of the store and evicts what no longer fits: `cache_memlimit`.
    ///
    /// Shape: returns when all shards are within their new bounds. Each is locked for some
    /// evictions at a time.
    pub fn set_bytes_max(&self, bytes_max: usize, now: Seconds) {
        self.begin_resize(bytes_max);
        while self.resize_step(now) {}
    }

    /// Begins to change the bound, which [`Store::resize_step`] goes on with; a change that has not
    /// come to its end is given up.
    pub fn begin_resize(&self, bytes_max: usize) {
        self.resize.begin(shard_bytes(bytes_max, self.shards()));
    }

    /// True until a change of the bound has come to its end.
    pub fn is_resizing(&self) -> bool {
        self.resize.is_pending()
    }

    /// Goes on with a change of the bound, by some evictions; whether there is more to do.
    pub fn resize_step(&self, now: Seconds) -> bool {
        self.resize.step(self.shards(), |index, bytes_max| {
            self.on_shard(index, now, |shard, changes| {
                shard.approach_bytes_max(bytes_max, now, changes)
            })
        })
    }
}
