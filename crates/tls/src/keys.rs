//! The keys of the sessions that were used last.

use crate::TlsError;
use crate::session::Direction;
use crate::suite::{Key, Suite};
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys that were derived from secrets, for the sessions of one thread that were used last.
///
/// Shape: at most as many as it is made for, one for each direction of a session, of about 700
/// bytes. A session whose key is not here has it derived again, which takes about a microsecond.
#[derive(Debug)]
pub struct Keys {
    entries: Vec<Entry>,
    /// The entry that is considered first for its place.
    hand: usize,
    capacity: usize,
}

#[derive(Debug)]
struct Entry {
    /// The number that its direction knows it by; 0 for none.
    stamp: u64,
    /// It was used since the hand has passed.
    was_used: bool,
    key: Option<Key>,
}

/// The place of the key of one direction; it may have another key by now.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Place {
    stamp: u64,
    index: u32,
}

/// Stamps are never used again, also by other threads: a session may change its thread.
static STAMP_NEXT: AtomicU64 = AtomicU64::new(1);

impl Keys {
    /// Has room for so many keys, and for one at least.
    pub fn new(capacity: usize) -> Self {
        Self {
            entries: Vec::new(),
            hand: 0,
            capacity: capacity.max(1),
        }
    }

    /// Keys that are here.
    pub fn len(&self) -> usize {
        let is_key = |entry: &&Entry| entry.key.is_some();
        self.entries.iter().filter(is_key).count()
    }

    /// Returns true if there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key of a direction, derived now if it is not here.
    pub(crate) fn of(&mut self, direction: &mut Direction, suite: Suite) -> Result<&Key, TlsError> {
        let Place { stamp, index } = direction.place;
        let known = self.entries.get(index as usize);
        let is_here = stamp != 0 && known.is_some_and(|entry| entry.stamp == stamp);
        if !is_here {
            let key = direction.secret.key(suite)?;
            direction.place = self.insert(key);
        }
        let entry = &mut self.entries[direction.place.index as usize];
        entry.was_used = true;
        entry.key.as_ref().ok_or(TlsError::Keys)
    }

    /// Drops the key of a direction, which erases it.
    pub(crate) fn forget(&mut self, direction: &mut Direction) {
        let Place { stamp, index } = std::mem::take(&mut direction.place);
        if let Some(entry) = self.entries.get_mut(index as usize)
            && entry.stamp == stamp
        {
            entry.stamp = 0;
            entry.key = None;
            entry.was_used = false;
        }
    }

    fn insert(&mut self, key: Key) -> Place {
        let stamp = STAMP_NEXT.fetch_add(1, Ordering::Relaxed);
        let entry = Entry {
            stamp,
            was_used: true,
            key: Some(key),
        };
        let index = if self.entries.len() < self.capacity {
            self.entries.push(entry);
            self.entries.len() - 1
        } else {
            let index = self.victim();
            self.entries[index] = entry;
            index
        };
        let index = index as u32;
        Place { stamp, index }
    }

    /// The first entry from the hand on that was not used since the hand has passed it.
    fn victim(&mut self) -> usize {
        loop {
            let index = self.hand;
            self.hand = (index + 1) % self.entries.len();
            if !std::mem::take(&mut self.entries[index].was_used) {
                return index;
            }
        }
    }
}
