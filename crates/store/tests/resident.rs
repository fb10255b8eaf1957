//! The bound of memory against what the process takes, in pages.
//!
//! One test, because the pages are the process's.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;

use dwell_store::{Expiry, Item, Store, StoreConfig};

const NOW: u32 = 1_700_000_000;
const BYTES_MAX: usize = 64 << 20;
const MIB: usize = 1 << 20;

/// The bytes beside the store: the test, its values, and what the allocator keeps for them.
const SLACK: usize = 4 * MIB;

/// The most looks until what was flushed is the system's again: for many seconds.
const LOOKS_MAX: usize = 2_000_000;

/// The bytes of the process that are in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// The pages that the process has taken in so far.
fn paged_in() -> usize {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, words) = stat.rsplit_once(") ").unwrap();
    words.split(' ').nth(7).unwrap().parse().unwrap()
}

struct Measured {
    store: Store,
    base: usize,
    random: u64,
    value: Vec<u8>,
}

impl Measured {
    fn random(&mut self) -> usize {
        // xorshift64.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random as usize >> 1
    }

    /// From 1 byte to 1 MiB, as likely to be short by a factor as to be long by it.
    fn any_len(&mut self) -> usize {
        let bits = self.random() % 20;
        (1 << bits) + self.random() % (1 << bits)
    }

    fn set(&self, key: &str, len: usize) {
        let value = &self.value[..len.min(MIB - 200)];
        self.store.set(key.as_bytes(), 0, Expiry::NEVER, value, NOW);
    }

    fn check(&mut self, what: &str) {
        let more = resident().saturating_sub(self.base);
        assert!(
            more <= BYTES_MAX / 100 * 115 + SLACK,
            "{what}: {} KiB for a bound of {} KiB",
            more >> 10,
            BYTES_MAX >> 10,
        );
        assert!(self.store.statistics().bytes as usize <= BYTES_MAX);
    }

    fn flush(&mut self, what: &str) {
        self.store.flush_all(0, NOW);
        // A thread gives the memory back.
        let mut more = usize::MAX;
        for _ in 0..LOOKS_MAX {
            more = resident().saturating_sub(self.base);
            if more <= SLACK {
                return;
            }
            std::thread::yield_now();
        }
        panic!("{what}: {} KiB stay", more >> 10);
    }

    /// So many sets of lengths that are drawn, under fewer keys.
    fn churn(&mut self, what: &str, sets: usize, len: impl Fn(&mut Self) -> usize) {
        for count in 0..sets {
            let len = len(self);
            let key = format!("key-{}", self.random() % (sets / 2));
            self.set(&key, len);
            if count % 16 == 0 {
                let key = format!("key-{}", self.random() % (sets / 2));
                self.store.get(key.as_bytes(), NOW);
                self.store.delete(key.as_bytes(), NOW);
            }
            if count % 256 == 0 {
                self.check(what);
            }
        }
        self.check(what);
    }
}

#[test]
fn the_process_stays_within_the_bound_whatever_the_sizes() {
    let config = StoreConfig {
        bytes_max: BYTES_MAX,
        ..StoreConfig::default()
    };
    let mut measured = Measured {
        store: Store::new(&config, Box::new(())),
        base: 0,
        random: 2009,
        value: vec![b'v'; MIB],
    };
    measured.base = resident();
    mixed_sizes(&mut measured);
    one_page_of_many(&mut measured);
    values_that_are_held(&mut measured);
    values_that_outlive_flushes(&mut measured);
    values_in_place_of_others(&mut measured);
}

/// Sizes that change as a whole, and those of every kind at once, with nothing flushed between.
fn mixed_sizes(measured: &mut Measured) {
    measured.churn("all sizes", 60_000, Measured::any_len);
    measured.churn("uniform", 2_000, |measured| measured.random() % MIB);
    measured.churn("small", 100_000, |measured| measured.random() % 900);
    measured.churn("a page or two", 60_000, |measured| {
        1000 + measured.random() % 6000
    });
    measured.churn("large", 600, |_| MIB);
    measured.churn(
        "one byte",
        if cfg!(debug_assertions) {
            200_000
        } else {
            1_500_000
        },
        |_| 1,
    );
    measured.churn("all sizes again", 60_000, Measured::any_len);
    assert!(measured.store.statistics().evictions > 10_000);
    measured.flush("mixed sizes");
}

/// Values of a part of a page, of which one a page is left, and then larger ones.
fn one_page_of_many(measured: &mut Measured) {
    let count = BYTES_MAX / 1200;
    for number in 0..count {
        measured.set(&format!("part-{number}"), 1050);
    }
    for number in (0..count).filter(|number| number % 4 > 0) {
        let key = format!("part-{number}");
        measured.store.delete(key.as_bytes(), NOW);
        if number % 4 == 1 {
            // What is read stays longer.
            let key = format!("part-{}", number - 1);
            measured.store.get(key.as_bytes(), NOW);
        }
    }
    measured.check("parts of pages");
    for number in 0..300 {
        measured.set(&format!("whole-{number}"), 900_000);
        measured.check("whole ones between parts");
    }
    measured.flush("parts of pages");
}

/// Readers have values that have been replaced meanwhile: it is theirs, and no other comes to it.
fn values_that_are_held(measured: &mut Measured) {
    let mut held: VecDeque<Item> = VecDeque::new();
    for count in 0..20_000_usize {
        let key = format!("held-{}", measured.random() % 100);
        let len = measured.any_len();
        measured.set(&key, len);
        if count % 64 == 0
            && let Some(item) = measured.store.get(key.as_bytes(), NOW)
        {
            held.push_back(item);
        }
        let bytes: usize = held.iter().map(|item| item.value.len()).sum();
        if bytes > MIB || held.len() > 100 {
            held.pop_front();
        }
        if count % 64 == 0 {
            measured.check("held");
        }
    }
    assert!(
        held.iter()
            .all(|item| item.value.iter().all(|&byte| byte == b'v'))
    );
    drop(held);
    measured.flush("held");
}

/// Readers of a few values that were flushed do not keep the others in memory.
fn values_that_outlive_flushes(measured: &mut Measured) {
    let mut held: VecDeque<Item> = VecDeque::new();
    for round in 0..4 {
        for number in 0..BYTES_MAX / 3000 {
            measured.set(&format!("flushed-{number}"), 2000);
            if number % 2000 == 1999 {
                held.extend(
                    measured
                        .store
                        .get(format!("flushed-{number}").as_bytes(), NOW),
                );
            }
        }
        measured.check(&format!("flushed {round} times"));
        measured.flush("readers of what was flushed");
    }
    assert!(held.len() > 30);
    while held.len() > 1 {
        held.pop_front();
    }
    measured.flush("one of its readers");
    assert!(held[0].value.iter().all(|&byte| byte == b'v'));
}

/// A value has most of the memory that those had which it displaces.
fn values_in_place_of_others(measured: &mut Measured) {
    let len = |measured: &mut Measured| 200_000 + measured.random() % 100_000;
    measured.churn("filled", 1000, len);
    let before = paged_in();
    measured.churn("full", 2000, len);
    let pages = (paged_in() - before) / 2000;
    assert!(pages <= 8, "{pages} of 61 pages are taken in for a value");
    measured.flush("full");
}
