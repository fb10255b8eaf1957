//! Which item goes when room is needed: S3-FIFO.
//!
//! New items enter a small queue of a tenth of the bytes. What nobody used by the time it reaches
//! the end of it is dropped and leaves a fingerprint; what somebody used, or what comes back while
//! its fingerprint is remembered, lives in the main queue, where every use earns one more round.
//! A scan passes through the small queue and touches nothing else.
//!
//! Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.

use crate::item::allocation_bytes;
use crate::slab::{Entry, NIL, Place, Slab};

/// The uses an entry can have saved up.
const USES_MAX: u8 = 3;

/// The entries passed over before one is evicted whatever its uses, to bound the time of a store.
const PASSES_MAX: usize = 128;

/// A queue of entries, linked through the slab.
#[derive(Debug)]
struct Queue {
    newest: u32,
    oldest: u32,
    bytes: usize,
    items: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            newest: NIL,
            oldest: NIL,
            bytes: 0,
            items: 0,
        }
    }
}

/// The two queues and the memory of what was dropped.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    small: Queue,
    main: Queue,
    /// Hashes of dropped items, each at the place its low bits name; 0 is empty.
    ghosts: Vec<u32>,
}

impl Queues {
    /// The bytes of the fingerprints.
    pub(crate) fn bytes(&self) -> usize {
        self.ghosts.len() * size_of::<u32>()
    }

    /// The bytes of all items, their slots aside.
    pub(crate) fn item_bytes(&self) -> usize {
        self.small.bytes + self.main.bytes
    }

    /// All entries from the oldest of the small queue to the newest of the main queue.
    pub(crate) fn eviction_order(&self, slab: &Slab) -> impl Iterator<Item = (u32, bool)> {
        [(self.small.oldest, false), (self.main.oldest, true)]
            .into_iter()
            .flat_map(move |(oldest, is_main)| {
                let index = |index: u32| (index != NIL).then_some(index);
                std::iter::successors(index(oldest), move |&last| index(slab.entry(last).newer))
                    .map(move |index| (index, is_main))
            })
    }

    /// Items that are in the small queue.
    pub(crate) fn small_items(&self) -> usize {
        self.small.items
    }

    /// The bytes that remembering `buckets` fingerprints would add.
    pub(crate) fn growth_bytes(&self, buckets: usize) -> usize {
        buckets.saturating_sub(self.ghosts.len()) * size_of::<u32>()
    }

    /// Remembers as many fingerprints as there are buckets; the old ones are forgotten.
    pub(crate) fn resize(&mut self, buckets: usize) {
        if buckets != self.ghosts.len() {
            self.ghosts = vec![0; buckets];
        }
    }

    /// Notes a use of the item.
    pub(crate) fn bump(entry: &mut Entry) {
        entry.uses = (entry.uses + 1).min(USES_MAX);
    }

    /// Queues a new entry.
    pub(crate) fn enter(&mut self, slab: &mut Slab, index: u32) {
        let hash = slab.entry(index).hash;
        let place = if self.forget(hash) {
            Place::Main
        } else {
            Place::Small
        };
        self.push(slab, index, place);
    }

    /// Takes an entry out of its queue.
    pub(crate) fn leave(&mut self, slab: &mut Slab, index: u32) {
        let entry = slab.entry(index);
        let (newer, older, place) = (entry.newer, entry.older, entry.place);
        let bytes = allocation_bytes(entry.data.len());
        if newer != NIL {
            slab.entry_mut(newer).older = older;
        }
        if older != NIL {
            slab.entry_mut(older).newer = newer;
        }
        let queue = self.queue(place);
        if queue.newest == index {
            queue.newest = older;
        }
        if queue.oldest == index {
            queue.oldest = newer;
        }
        queue.bytes -= bytes;
        queue.items -= 1;
    }

    /// Accounts for an entry whose bytes were replaced.
    pub(crate) fn resized(&mut self, place: Place, before: usize, after: usize) {
        let queue = self.queue(place);
        queue.bytes = queue.bytes - allocation_bytes(before) + allocation_bytes(after);
    }

    /// Chooses the entry to evict, moving others on the way; `None` when there is none.
    ///
    /// `is_gone` names entries that go first because they have expired.
    pub(crate) fn victim(
        &mut self,
        slab: &mut Slab,
        small_bytes_max: usize,
        is_gone: impl Fn(&Entry) -> bool,
    ) -> Option<u32> {
        let mut passes = 0;
        loop {
            let from_small = self.main.oldest == NIL || self.small.bytes > small_bytes_max;
            let from_small = from_small && self.small.oldest != NIL;
            let index = if from_small {
                self.small.oldest
            } else {
                self.main.oldest
            };
            if index == NIL {
                return None;
            }
            let entry = slab.entry_mut(index);
            if is_gone(entry) {
                return Some(index);
            }
            if entry.uses == 0 || passes >= PASSES_MAX {
                if from_small {
                    let hash = entry.hash;
                    self.remember(hash);
                }
                return Some(index);
            }
            passes += 1;
            // A promoted entry has to earn its next round in the main queue.
            entry.uses = if from_small { 0 } else { entry.uses - 1 };
            self.leave(slab, index);
            self.push(slab, index, Place::Main);
        }
    }

    /// Moves every entry into a slab with little more room than they need.
    pub(crate) fn compact(&mut self, slab: &mut Slab) {
        let mut target = Slab::with_room_for(slab.len());
        let old = std::mem::take(self);
        for (queue, place) in [(old.small, Place::Small), (old.main, Place::Main)] {
            let mut index = queue.oldest;
            while index != NIL {
                let newer = slab.entry(index).newer;
                let moved = target.adopt(slab, index);
                self.push(&mut target, moved, place);
                index = newer;
            }
        }
        self.resize(target.buckets());
        *slab = target;
    }

    fn push(&mut self, slab: &mut Slab, index: u32, place: Place) {
        let queue = self.queue(place);
        let older = std::mem::replace(&mut queue.newest, index);
        if queue.oldest == NIL {
            queue.oldest = index;
        }
        let entry = slab.entry_mut(index);
        entry.place = place;
        entry.older = older;
        entry.newer = NIL;
        queue.bytes += allocation_bytes(entry.data.len());
        queue.items += 1;
        if older != NIL {
            slab.entry_mut(older).newer = index;
        }
    }

    fn queue(&mut self, place: Place) -> &mut Queue {
        if place == Place::Main {
            &mut self.main
        } else {
            &mut self.small
        }
    }

    fn remember(&mut self, hash: u32) {
        if let Some(place) = self.ghost(hash) {
            *place = hash;
        }
    }

    /// Whether an item of this hash was dropped from the small queue lately.
    fn forget(&mut self, hash: u32) -> bool {
        match self.ghost(hash) {
            Some(place) if *place == hash && hash != 0 => {
                *place = 0;
                true
            }
            _ => false,
        }
    }

    fn ghost(&mut self, hash: u32) -> Option<&mut u32> {
        let last = self.ghosts.len().checked_sub(1)?;
        self.ghosts.get_mut(hash as usize & last)
    }
}
