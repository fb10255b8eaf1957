//! The sizes of a store, and of its shards.

/// Below this a shard could not hold its own tables.
const SHARD_BYTES_MIN: usize = 16 * 1024;

/// Above this a shard could not name all places in its segments.
const SHARD_BYTES_MAX: usize = 8 << 30;

/// The most shards, for more memory than any machine has.
const SHARDS_MAX: usize = 4096;

/// The sizes of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The bytes the store may take for items and everything it needs to find them.
    pub bytes_max: usize,
    /// The bytes of one item as memcached counts them: key, value and a header of 59 bytes.
    ///
    /// An item of 2 GiB, or larger than half of a shard, is refused too, see
    /// [`Store::item_bytes_max`].
    ///
    /// [`Store::item_bytes_max`]: crate::Store::item_bytes_max
    pub item_bytes_max: usize,
    /// Items are evicted to make room; without it, a store for which there is no room is
    /// refused ([`StoreOutcome::OutOfMemory`](crate::StoreOutcome::OutOfMemory)).
    pub evicts: bool,
    /// The number of shards wanted; fewer if four of the largest items would not fit into one, and
    /// more above 8 GiB each. There are at most 4096.
    pub shards: usize,
}

impl Default for StoreConfig {
    /// 64 MiB in 16 shards, with items of up to 1 MiB.
    fn default() -> Self {
        Self {
            bytes_max: 64 << 20,
            item_bytes_max: 1 << 20,
            evicts: true,
            shards: 16,
        }
    }
}

impl StoreConfig {
    /// The number of shards that the sizes allow: a power of two.
    pub(crate) fn shard_count(&self) -> usize {
        let largest = self.item_bytes_max.saturating_mul(4).max(SHARD_BYTES_MIN);
        let room_for = (self.bytes_max / largest).max(1);
        let count = self.shards.clamp(1, room_for);
        let count = count.max(self.bytes_max.div_ceil(SHARD_BYTES_MAX));
        let count = count.min(SHARDS_MAX);
        // The next lower power of two: in a shard of twice the size all can still be named.
        1 << count.ilog2()
    }
}

/// The bound of each shard.
pub(crate) fn shard_bytes(bytes_max: usize, shards: usize) -> usize {
    (bytes_max / shards).max(SHARD_BYTES_MIN)
}
