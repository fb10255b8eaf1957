//! The table of what clients have read, and its bound.

use std::collections::{BTreeMap, BTreeSet};

/// For each key, the connections that are told of its next change: they have read it, whether it
/// was there or not.
#[derive(Debug, Default)]
pub(super) struct TrackingTable {
    readers: BTreeMap<String, BTreeSet<u32>>,
}

impl TrackingTable {
    /// A connection has read a key.
    pub(super) fn register(&mut self, key: &str, connection: u32) {
        let readers = self.readers.entry(key.to_owned()).or_default();
        readers.insert(connection);
    }

    /// Takes those that are told of a change of a key: each is told once.
    pub(super) fn take(&mut self, key: &str) -> BTreeSet<u32> {
        self.readers.remove(key).unwrap_or_default()
    }

    /// Everything has changed.
    pub(super) fn clear(&mut self) {
        self.readers.clear();
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, connection: u32) {
        self.readers.retain(|_, readers| {
            readers.remove(&connection);
            !readers.is_empty()
        });
    }

    /// Keys in it.
    pub(super) fn len(&self) -> usize {
        self.readers.len()
    }

    /// The name of a key by its place.
    pub(super) fn name(&self, place: usize) -> Option<String> {
        self.readers.keys().nth(place).cloned()
    }
}
