//! The store from outside: commands, time, memory, watchers and their interleavings.
#![expect(
    clippy::unwrap_used,
    reason = "clippy sees only `#[test]` functions as tests"
)]

mod commands;
mod filled;
mod interleavings;
mod keep;
mod memory;
mod meta;
mod model;
mod threads;
mod time;
mod walk;
mod watchers;

use std::sync::{Arc, Mutex};

use dwell_store::{Notify, Store, StoreConfig, StoreOutcome, WatcherId};

/// A moment that is neither small nor near the end of the range.
pub(crate) const NOW: u32 = 1_700_000_000;

/// A small store that nobody watches.
pub(crate) fn store() -> Store {
    Store::new(
        &StoreConfig {
            bytes_max: 8 << 20,
            ..StoreConfig::default()
        },
        Box::new(()),
    )
}

/// A watcher's index and the key it was told of.
pub(crate) type Told = (u8, Vec<u8>);

/// The calls a store has made, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<Told>>>);

impl Calls {
    /// Takes the calls made since the last time.
    pub(crate) fn take(&self) -> Vec<Told> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Notify for Calls {
    fn changed(&self, watcher: WatcherId, key: &[u8]) {
        self.0.lock().unwrap().push((watcher.index(), key.to_vec()));
    }
}

/// A small store with a record of its calls.
pub(crate) fn watched_store(config: &StoreConfig) -> (Store, Calls) {
    let calls = Calls::default();
    (Store::new(config, Box::new(calls.clone())), calls)
}

/// The watcher of this index.
pub(crate) fn watcher(index: u8) -> WatcherId {
    WatcherId::new(index).unwrap()
}

/// The bytes stored under a key.
pub(crate) fn value(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key, NOW).map(|item| item.value.to_vec())
}

/// The version of a successful store.
pub(crate) fn stored(outcome: StoreOutcome) -> u64 {
    match outcome {
        StoreOutcome::Stored { cas } => cas,
        other => panic!("not stored: {other:?}"),
    }
}
