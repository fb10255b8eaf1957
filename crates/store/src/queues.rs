//! The choice of the item that goes when room is needed: S3-FIFO.
//!
//! New items enter a small queue of a tenth of the bytes. An item that is unused when it reaches
//! the end of that queue is dropped and leaves a fingerprint. An item that was used, or that comes
//! back while its fingerprint is remembered, lives in the main queue, where every use earns one
//! more round. A scan passes through the small queue and touches nothing else.
//!
//! Filled items are copies of what can be had again, and a client decides by its requests how many
//! there are. While they take more than a tenth of the bytes, no other item goes for want of uses.
//!
//! Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.

use crate::item::Seconds;
use crate::items::Items;
use crate::record::{Place, mark, word, word_at};

/// The items passed over before one is evicted whatever its uses, to bound the time of a store.
const PASSES_MAX: usize = 128;

/// The items that one command passes over, however many it evicts.
pub(crate) const PASSES_OF_COMMAND_MAX: usize = 1024;

/// The part of the bytes that the small queue may take.
const SMALL_SHARE: usize = 10;

/// The part of the bytes that filled items may take at the cost of others.
const FILLED_SHARE: usize = 10;

impl Items {
    /// Chooses the item to evict, moving others on the way; `None` when no item is left.
    ///
    /// An item that has expired goes first. An item that would be moved goes, too, if it cannot be.
    /// Every move is one of the `passes` that the command has left.
    pub(crate) fn victim(&mut self, now: Seconds, passes: &mut usize) -> Option<u32> {
        let small_bytes_max = self.bytes_max() / SMALL_SHARE;
        let filled_bytes_max = self.bytes_max() / FILLED_SHARE;
        let passes_least = passes.saturating_sub(PASSES_MAX);
        loop {
            let is_over = self.small().bytes > small_bytes_max;
            let (at, from_small) = match self.records.oldest(Place::Main) {
                Some(at) if !is_over => (at, false),
                main => match self.records.oldest(Place::Small) {
                    Some(at) => (at, true),
                    None => (main?, false),
                },
            };
            let entry = self.entry(at);
            if entry.expiry.is_past(now) {
                return Some(at);
            }
            let uses = entry.tag.uses();
            // A promoted item has to earn its next round in the main queue.
            let uses_left = if from_small {
                0
            } else {
                uses.saturating_sub(1)
            };
            let is_spared = self.filled_bytes() > filled_bytes_max && !entry.has(mark::FILLED);
            let stays = (uses > 0 || is_spared) && *passes > passes_least;
            if !stays || !self.relocate(at, Place::Main, uses_left) {
                if from_small {
                    let hash = word_at(self.records.record(at), word::HASH);
                    self.table.remember(hash);
                }
                return Some(at);
            }
            *passes -= 1;
        }
    }
}
