//! Counters under memcached's names.

macro_rules! statistics {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Counters since the start or the last reset, and gauges, under memcached's names.
        ///
        /// Source: memcached `doc/protocol.txt`, "General-purpose statistics".
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Statistics {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Statistics {
            /// Every name with its value, in the order `stats` prints them.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }

            /// Adds the figures of another shard.
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

statistics! {
    /// Retrievals, one per key.
    cmd_get,
    /// Store commands that came with their data.
    cmd_set,
    /// `flush_all` commands.
    cmd_flush,
    /// `touch`, `gat` and `mg` with `T`.
    cmd_touch,
    /// Meta commands.
    cmd_meta,
    /// Retrievals that found an item.
    get_hits,
    /// Retrievals that found none.
    get_misses,
    /// Misses because the item had expired.
    get_expired,
    /// Deletions of a missing item.
    delete_misses,
    /// Deletions of an item.
    delete_hits,
    /// Increments of a missing item.
    incr_misses,
    /// Increments.
    incr_hits,
    /// Decrements of a missing item.
    decr_misses,
    /// Decrements.
    decr_hits,
    /// Stores over a version of a missing item.
    cas_misses,
    /// Stores over the version that was there.
    cas_hits,
    /// Stores over a version that was not there.
    cas_badval,
    /// Touches of an item.
    touch_hits,
    /// Touches of a missing item.
    touch_misses,
    /// Stores refused for their size.
    store_too_large,
    /// Stores refused because no room could be made.
    store_no_memory,
    /// Bytes allocated for items and whatever is needed to find them (gauge).
    bytes,
    /// Items stored now (gauge).
    curr_items,
    /// Items that were not used since they came: those of the small queue (gauge).
    small_items,
    /// Items ever stored.
    total_items,
    /// Bytes allowed (gauge).
    limit_maxbytes,
    /// Bytes of the hash tables, part of `bytes` (gauge).
    hash_bytes,
    /// The power of two of the buckets of all hash tables (gauge).
    hash_power_level,
    /// Items removed after their expiry that were never read.
    expired_unfetched,
    /// Items evicted that were never read.
    evicted_unfetched,
    /// Items removed to make room.
    evictions,
    /// Items removed after their expiry.
    reclaimed,
    /// Slots visited by the sweep.
    crawler_items_checked,
    /// Keys with a watcher (gauge).
    watched_keys,
    /// Notifications sent to loops with waiters.
    watch_notifications,
}
