//! Copies of what can be had again, which are evicted first.

use dwell_store::{
    ArithmeticOptions, Expiry, RestoreOutcome, Store, StoreConfig, StoreMode, StoreOptions,
    StoreOutcome,
};

use crate::NOW;

const BYTES_MAX: usize = 2 << 20;
/// The mark of a copy.
const FILLED: u8 = 8;
const VALUE: [u8; 4000] = [b'v'; 4000];

fn store() -> Store {
    let config = StoreConfig {
        bytes_max: BYTES_MAX,
        shards: 1,
        ..StoreConfig::default()
    };
    Store::new(&config, Box::new(()))
}

fn put(store: &Store, key: &str, value: &[u8], filled: bool) {
    let options = StoreOptions {
        mode: StoreMode::Add,
        filled,
        ..StoreOptions::default()
    };
    let outcome = store.store(key.as_bytes(), value, &options, NOW);
    assert!(
        matches!(outcome, StoreOutcome::Stored { .. }),
        "{outcome:?}"
    );
}

/// Fills with what nobody asks for again, twice as much as there is room for.
fn flood(store: &Store, name: &str) {
    for number in 0..1000 {
        put(store, &format!("{name}{number}"), &VALUE, true);
    }
}

fn publish(store: &Store, count: u32) {
    for number in 0..count {
        put(store, &format!("published{number}"), b"value", false);
    }
}

fn left(store: &Store, count: u32) -> usize {
    let found = (0..count)
        .filter(|number| {
            let key = format!("published{number}");
            store.meta_debug(key.as_bytes(), NOW).is_some()
        })
        .count();
    assert!(store.statistics().bytes <= BYTES_MAX as u64);
    found
}

#[test]
fn what_was_published_stays_though_nobody_has_read_it() {
    let store = store();
    flood(&store, "before");
    publish(&store, 100);
    flood(&store, "while");
    flood(&store, "after");
    assert_eq!(left(&store, 100), 100);
    // Large ones too, and publishing makes room by what is filled.
    for number in 100..200 {
        put(&store, &format!("published{number}"), &VALUE, false);
    }
    flood(&store, "further");
    assert_eq!(left(&store, 200), 200);
}

#[test]
fn a_store_that_is_full_of_published_values_gives_a_tenth_to_filled_ones() {
    let store = store();
    for number in 0..2000 {
        put(&store, &format!("published{number}"), &[b'p'; 900], false);
    }
    let before = left(&store, 2000);
    for name in ["first", "second", "third"] {
        flood(&store, name);
    }
    let (after, filled) = (left(&store, 2000), store.statistics().curr_items);
    assert!(after * 100 >= before * 85, "{after} of {before}");
    assert!(filled as usize - after > 20, "{filled} with {after}");
}

#[test]
fn what_is_published_over_a_filled_value_is_published() {
    let store = store();
    let overwritten: [fn(&Store, &[u8]); 3] = [
        |store, key| {
            store.set(key, 0, Expiry::NEVER, b"2", NOW);
        },
        |store, key| {
            let options = StoreOptions {
                mode: StoreMode::Append,
                ..StoreOptions::default()
            };
            store.store(key, b"2", &options, NOW);
        },
        |store, key| {
            store.meta_arithmetic(key, &ArithmeticOptions::default(), NOW);
        },
    ];
    for number in 0..100_usize {
        let key = format!("published{number}");
        put(&store, &key, b"1", true);
        overwritten[number % overwritten.len()](&store, key.as_bytes());
    }
    let filled = |store: &Store| {
        let kept = store.kept_items(0);
        kept.filter(|item| item.state.marks & FILLED != 0).count()
    };
    assert_eq!(filled(&store), 0);
    put(&store, "filled", b"1", true);
    assert_eq!(filled(&store), 1);
}

#[test]
fn a_restart_keeps_what_is_filled_apart() {
    let (before, store) = (store(), store());
    flood(&before, "filled");
    publish(&before, 100);
    before.delete(b"filled999", NOW);
    for item in before.kept_items(0) {
        let outcome = store.restore(item.value.key(), &item.value, &item.state, NOW);
        assert_eq!(outcome, RestoreOutcome::Restored);
    }
    flood(&store, "after");
    assert_eq!(left(&store, 100), 100);
}

#[test]
fn among_themselves_filled_values_go_as_others_do() {
    // Popular keys and scans, with a store of either kind.
    let hits = [false, true].map(|filled| {
        let store = store();
        let (mut state, mut hits) = (2009_u64, 0);
        for turn in 0..60_000_u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let random = (state >> 33) % 1_000_000;
            let key = if turn % 5 == 0 {
                format!("scan{turn}")
            } else {
                format!("key{}", random * random / 100_000_000)
            };
            if store.get(key.as_bytes(), NOW).is_some() {
                hits += 1;
            } else {
                put(&store, &key, &[b'v'; 900], filled);
            }
        }
        hits
    });
    // The store's hashes are random, and so is a collision in what it remembers.
    let [others, filled] = hits;
    assert!(others > 10_000, "{others}");
    assert!(filled * 100 > others * 98, "{filled} {others}");
}
