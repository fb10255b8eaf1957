//! The loops that wait for a key, as the loop with the feed can tell without a lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Keys that the loops have in progress: a counting filter for each, which that loop alone writes.
///
/// A key that is in a filter is there from before it is read to after its last poll has gone, so a
/// change after the read finds it here. A filter may say yes to other keys as well: then a loop
/// gets a key that it does not have, and ignores it.
pub struct WaitedKeys {
    filters: Box<[KeyFilter]>,
    /// Keys are chosen by clients, so their places are not to be foreseen.
    seed: u64,
    /// True while requests wait and the feed has seen it.
    is_awake: AtomicBool,
}

struct KeyFilter {
    counts: Box<[AtomicU8]>,
    /// Keys that polls wait for.
    waiting: AtomicUsize,
}

/// One loop's part.
#[derive(Clone, Debug)]
pub struct WaitedByLoop {
    all: Arc<WaitedKeys>,
    of_loop: usize,
}

impl WaitedKeys {
    /// Empty filters for so many loops.
    pub fn new(loops: usize) -> Arc<Self> {
        let filter = |_| KeyFilter {
            counts: (0..SLOTS).map(|_| AtomicU8::new(0)).collect(),
            waiting: AtomicUsize::new(0),
        };
        Arc::new(Self {
            filters: (0..loops).map(filter).collect(),
            seed: dwell_evloop::seed(),
            is_awake: AtomicBool::new(false),
        })
    }

    /// The part of one loop.
    pub fn of_loop(self: &Arc<Self>, of_loop: usize) -> WaitedByLoop {
        WaitedByLoop {
            all: Arc::clone(self),
            of_loop,
        }
    }

    /// The loops that may have something in progress for `key`.
    pub(super) fn loops_of(&self, key: &[u8]) -> impl Iterator<Item = usize> {
        let slot = self.slot(key);
        let has = move |filter: &KeyFilter| filter.counts[slot].load(Ordering::Acquire) > 0;
        let filters = self.filters.iter().enumerate();
        filters.filter_map(move |(index, filter)| has(filter).then_some(index))
    }

    /// Tells whether the feed is wanted.
    pub(super) fn is_awake(&self) -> bool {
        self.is_awake.load(Ordering::SeqCst)
    }

    /// The feed is wanted; true if it was not.
    pub fn wake(&self) -> bool {
        !self.is_awake() && !self.is_awake.swap(true, Ordering::SeqCst)
    }

    /// Tells whether polls wait for any key.
    pub(super) fn is_anybody_waiting(&self) -> bool {
        let waits = |filter: &KeyFilter| filter.waiting.load(Ordering::SeqCst) > 0;
        self.filters.iter().any(waits)
    }

    /// The feed is not wanted any more, unless somebody has begun to wait; true if it is not.
    pub(super) fn sleep(&self) -> bool {
        self.is_awake.store(false, Ordering::SeqCst);
        // Whoever begins to wait says so first and then looks whether the feed is awake.
        let sleeps = !self.is_anybody_waiting();
        if !sleeps {
            self.is_awake.store(true, Ordering::SeqCst);
        }
        sleeps
    }

    fn slot(&self, key: &[u8]) -> usize {
        xxh3_64_with_seed(key, self.seed) as usize % SLOTS
    }
}

impl fmt::Debug for WaitedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitedKeys")
            .field("loops", &self.filters.len())
            .field("is_awake", &self.is_awake)
            .finish_non_exhaustive()
    }
}

impl WaitedByLoop {
    /// Something is in progress for `key` from now on.
    pub fn enter(&self, key: &[u8]) {
        self.count(key, |count| count.saturating_add(1));
    }

    /// Nothing is any more.
    pub fn leave(&self, key: &[u8]) {
        // A count that has reached its limit is not known any more, and stays.
        self.count(key, |count| {
            if count == u8::MAX {
                count
            } else {
                count.saturating_sub(1)
            }
        });
    }

    /// Polls of this loop wait for so many keys.
    pub fn set_waiting(&self, keys: usize) {
        let waiting = &self.all.filters[self.of_loop].waiting;
        waiting.store(keys, Ordering::SeqCst);
    }

    fn count(&self, key: &[u8], change: impl Fn(u8) -> u8) {
        let cell = &self.all.filters[self.of_loop].counts[self.all.slot(key)];
        // Nobody else writes it.
        cell.store(change(cell.load(Ordering::Relaxed)), Ordering::Release);
    }
}

/// Places of a filter, a byte each. With 10,000 keys it says yes to 4 % of all others.
const SLOTS: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    fn loops_of(waited: &WaitedKeys, key: &[u8]) -> Vec<usize> {
        waited.loops_of(key).collect()
    }

    #[test]
    fn a_key_is_known_to_the_loops_that_have_entered_it() {
        let waited = WaitedKeys::new(3);
        let (first, last) = (waited.of_loop(0), waited.of_loop(2));
        assert_eq!(loops_of(&waited, b"a"), [0_usize; 0]);
        first.enter(b"a");
        last.enter(b"a");
        last.enter(b"a");
        assert_eq!(loops_of(&waited, b"a"), [0, 2]);
        first.leave(b"a");
        last.leave(b"a");
        assert_eq!(loops_of(&waited, b"a"), [2]);
        last.leave(b"a");
        assert_eq!(loops_of(&waited, b"a"), [0_usize; 0]);
    }

    #[test]
    fn a_place_of_very_many_keys_says_yes_for_ever() {
        let waited = WaitedKeys::new(1);
        let only = waited.of_loop(0);
        for _ in 0..300 {
            only.enter(b"a");
        }
        for _ in 0..300 {
            only.leave(b"a");
        }
        assert_eq!(loops_of(&waited, b"a"), [0]);
    }

    #[test]
    fn few_other_keys_are_taken_for_waited_ones() {
        let waited = WaitedKeys::new(1);
        let only = waited.of_loop(0);
        let key = |number: u32| format!("/poll/{number}").into_bytes();
        for number in 0..10_000 {
            only.enter(&key(number));
        }
        assert!((0..10_000).all(|number| loops_of(&waited, &key(number)) == [0]));
        let others = (10_000..20_000).filter(|number| !loops_of(&waited, &key(*number)).is_empty());
        assert!(others.count() < 700, "about 374 of 10,000");
    }

    #[test]
    fn it_sleeps_only_while_nobody_waits() {
        let waited = WaitedKeys::new(2);
        let second = waited.of_loop(1);
        second.set_waiting(1);
        assert!(waited.wake());
        assert!(!waited.wake(), "told once");
        assert!(!waited.sleep());
        assert!(waited.is_awake());
        second.set_waiting(0);
        assert!(waited.sleep());
        assert!(waited.wake());
    }
}
