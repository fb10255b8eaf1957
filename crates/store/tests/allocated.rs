//! The account of memory against what the allocator has really given: lists, and nothing of items.
//!
//! The memory of the process as a whole is in `resident.rs`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    unsafe_code,
    reason = "an allocator that counts can only be written so"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use dwell_store::{ArithmeticOptions, Expiry, Store, StoreConfig, StoreMode, StoreOptions};

const NOW: u32 = 1_700_000_000;
const BYTES_MAX: usize = 4 << 20;

struct Counting;

/// Bytes that were allocated and not freed, as they lie in memory.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// What the system's allocator takes for a request: a word more, in steps of 16, at least 32.
fn taken(layout: Layout) -> usize {
    (layout.size() + size_of::<usize>())
        .next_multiple_of(16)
        .max(32)
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(taken(layout), Ordering::SeqCst);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(taken(layout), Ordering::SeqCst);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A store, and what was allocated before there was one.
struct Measured {
    store: Store,
    before: usize,
    random: u64,
}

impl Measured {
    fn new(shards: usize) -> Self {
        let before = HELD.load(Ordering::SeqCst);
        let config = StoreConfig {
            bytes_max: BYTES_MAX,
            item_bytes_max: 64 << 10,
            shards,
            ..StoreConfig::default()
        };
        Self {
            store: Store::new(&config, Box::new(())),
            before,
            random: 2009,
        }
    }

    fn random(&mut self) -> u64 {
        // xorshift64.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Compares what is allocated with the bound and with the account, after a command.
    fn check(&self) {
        let held = HELD.load(Ordering::SeqCst) - self.before;
        // Beside the shards: the store itself, and the bitmaps of its arenas.
        let fixed = 16 << 10;
        let counted = self.store.statistics().bytes as usize;
        assert!(counted <= BYTES_MAX);
        assert!(
            held <= counted + fixed,
            "{held} allocated, {counted} counted"
        );
        // Keys, values and the hash table are not the allocator's.
        assert!(held <= BYTES_MAX / 64 + fixed, "{held} are allocated");
    }

    /// One command on one of many keys, with a value of at most so many bytes.
    fn command(&mut self, keys: u64, value_len_max: usize) {
        let random = self.random();
        let key = (random >> 8) % keys;
        let key = format!("key-{key}");
        let key = key.as_bytes();
        let len = self.random() as usize % (value_len_max + 1);
        let value = vec![b'1'; len];
        let store = &self.store;
        match random % 16 {
            0..9 => drop(store.set(key, 0, Expiry::at(NOW + 5), &value, NOW)),
            9 => {
                let options = StoreOptions {
                    mode: StoreMode::Append,
                    ..StoreOptions::default()
                };
                store.store(key, &value[..len.min(200)], &options, NOW);
            }
            10 => drop(store.arithmetic(key, &ArithmeticOptions::default(), NOW)),
            11 => drop(store.delete(key, NOW)),
            12 => drop(store.touch(key, Expiry::at(NOW + 10), NOW)),
            _ => drop(store.get(key, NOW)),
        }
    }

    /// The bytes of keys and values that are there.
    fn payload(&self) -> usize {
        let items = (0..self.store.shards()).flat_map(|shard| self.store.kept_items(shard));
        items
            .map(|item| item.value.key().len() + item.value.len())
            .sum()
    }
}

/// All in one test, because the allocator counts for the process.
#[test]
fn what_is_allocated_stays_within_the_bound() {
    the_soak();
    sizes_that_change();
    everything_is_given_back();
}

/// Values of all sizes, under keys that come and go.
fn the_soak() {
    for shards in [1, 4] {
        let mut measured = Measured::new(shards);
        for count in 0..60_000 {
            let value_len_max = match count % 64 {
                0 => 30_000,
                1..8 => 3_000,
                _ => 200,
            };
            measured.command(20_000, value_len_max);
            if count % 6000 == 0 {
                let bytes_max = BYTES_MAX / [1, 40, 3][count / 6000 % 3];
                measured.store.set_bytes_max(bytes_max, NOW);
            }
            measured.check();
        }
        assert!(measured.store.statistics().evictions > 1000);
    }
}

/// A full store whose values become larger and smaller again, by overwrites and by new keys: the
/// room that the values of one size had is there for those of another.
fn sizes_that_change() {
    let mut measured = Measured::new(1);
    for (phase, len) in [40, 900, 12_000, 300, 40, 12_000, 40, 500]
        .into_iter()
        .enumerate()
    {
        // As many commands as it takes to fill the store three times.
        let commands = 3 * BYTES_MAX / len.max(100);
        let value = vec![b'v'; len];
        for count in 0..commands {
            // Half of the keys are those of the phases before.
            let number = measured.random() % (commands as u64 / 2);
            let key = match count % 2 {
                0 => format!("key-{number}"),
                _ => format!("key-{phase}-{number}"),
            };
            measured
                .store
                .set(key.as_bytes(), 0, Expiry::NEVER, &value, NOW);
            if count % 16 == 0 {
                measured.check();
            }
        }
        let overhead = 70 * measured.store.statistics().curr_items as usize;
        let filled = measured.payload() + overhead;
        assert!(
            filled > BYTES_MAX * 85 / 100,
            "with values of {len} bytes only {filled} are in use"
        );
    }
}

fn everything_is_given_back() {
    let mut measured = Measured::new(4);
    for _ in 0..20_000 {
        measured.command(5_000, 2_000);
    }
    let store = &measured.store;
    store.set_bytes_max(BYTES_MAX / 16, NOW);
    let held = HELD.load(Ordering::SeqCst) - measured.before;
    assert!(held <= BYTES_MAX / 16 + (16 << 10), "{held}");
    store.flush_all(0, NOW);
    assert_eq!(store.statistics().bytes, 0);
    let held = HELD.load(Ordering::SeqCst) - measured.before;
    assert!(held <= 16 << 10, "{held}");
    store.set(b"k", 0, Expiry::NEVER, b"v", NOW);
    assert_eq!(&*store.get(b"k", NOW).unwrap().value, b"v");
}
