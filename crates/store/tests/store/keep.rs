//! Items that outlive the process.

use super::NOW;
use dwell_store::{Expiry, HashSeed, KeptItem, RestoreOutcome, Seconds, Store, StoreConfig};

fn all_items(store: &Store) -> Vec<KeptItem> {
    store.kept_items_in_order().collect()
}

fn moved(from: &Store, now: Seconds) -> Store {
    let store = Store::new(&StoreConfig::default(), Box::new(()));
    for item in all_items(from) {
        store.restore(item.value.key(), &item.value, &item.state, now);
    }
    store
}

#[test]
fn what_is_kept_comes_back_as_it_was() {
    let store = Store::new(&StoreConfig::default(), Box::new(()));
    for number in 0..1000_u32 {
        let expiry = if number.is_multiple_of(2) {
            Expiry::NEVER
        } else {
            Expiry::at(NOW + number)
        };
        let key = format!("key-{number}");
        store.set(key.as_bytes(), number, expiry, &number.to_le_bytes(), NOW);
    }
    store.get(b"key-7", NOW);
    let after = moved(&store, NOW + 500);
    for number in 0..1000_u32 {
        let key = format!("key-{number}");
        let item = after.get(key.as_bytes(), NOW + 500);
        if number % 2 == 1 && number <= 500 {
            assert_eq!(item, None, "{key} has expired");
            continue;
        }
        assert_eq!(item, store.get(key.as_bytes(), NOW + 500), "{key}");
    }
}

#[test]
fn versions_go_on_where_they_were() {
    let store = Store::new(&StoreConfig::default(), Box::new(()));
    for _ in 0..100 {
        store.set(b"a", 0, Expiry::NEVER, b"1", NOW);
    }
    let before = store.get(b"a", NOW).unwrap().cas;
    let after = moved(&store, NOW);
    assert_eq!(after.get(b"a", NOW).unwrap().cas, before);
    after.set(b"b", 0, Expiry::NEVER, b"1", NOW);
    assert!(after.get(b"b", NOW).unwrap().cas > before);
}

#[test]
fn a_smaller_store_keeps_what_was_used() {
    let config = StoreConfig {
        bytes_max: 1 << 20,
        shards: 1,
        ..StoreConfig::default()
    };
    let store = Store::new(&config, Box::new(()));
    let used = |number: u32| number.is_multiple_of(10);
    for number in 0..3000_u32 {
        let key = number.to_le_bytes();
        store.set(&key, 0, Expiry::NEVER, &[0; 100], NOW);
        if used(number) {
            store.get(&key, NOW);
        }
    }
    let half = StoreConfig {
        bytes_max: 1 << 19,
        item_bytes_max: 1 << 16,
        ..config
    };
    let smaller = Store::new(&half, Box::new(()));
    for item in all_items(&store) {
        smaller.restore(item.value.key(), &item.value, &item.state, NOW);
    }
    let kept = |number: &u32| smaller.get(&number.to_le_bytes(), NOW).is_some();
    let hot = (0..3000)
        .filter(|number| used(*number))
        .filter(kept)
        .count();
    assert!(smaller.statistics().bytes <= 1 << 19);
    assert!(hot >= 250, "{hot} of the 300 used items are left");
}

/// A store of which every byte is in use, by items of all sizes, some of which were read.
fn full(config: &StoreConfig) -> Store {
    let store = Store::new(config, Box::new(()));
    for number in 0_u32..6000 {
        let key = format!("key-{number}");
        let random = number.wrapping_mul(0x9e37_79b1) >> 7;
        let len = random as usize % (4 << (random % 5 * 3));
        store.set(key.as_bytes(), 0, Expiry::NEVER, &vec![b'v'; len], NOW);
        if number % 4 == 0 {
            store.get(key.as_bytes(), NOW);
        }
    }
    assert!(store.statistics().evictions > 1000);
    store
}

#[test]
fn what_fitted_fits_again_in_its_queue_and_order() {
    for shards in [1, 8] {
        let config = StoreConfig {
            bytes_max: 2 << 20,
            item_bytes_max: 64 << 10,
            shards,
            ..StoreConfig::default()
        };
        let store = full(&config);
        let items = all_items(&store);
        let again = Store::new(&config, Box::new(()));
        assert!(again.continue_seed(HashSeed::from_bytes(store.seed().to_bytes())));
        for item in &items {
            let restored = again.restore(item.value.key(), &item.value, &item.state, NOW);
            assert_eq!(restored, RestoreOutcome::Restored);
        }
        assert_eq!(again.statistics().evictions, 0);
        assert!(again.statistics().bytes <= 2 << 20);
        assert_eq!(all_items(&again), items);
        assert!(items.iter().any(|item| item.state.is_frequent));
        assert!(items.iter().any(|item| item.state.uses > 0));
        assert!(!again.continue_seed(HashSeed::from_bytes([1; 16])));
    }
}

#[test]
fn the_newest_items_stay_where_there_is_less_room() {
    let config = StoreConfig {
        bytes_max: 2 << 20,
        item_bytes_max: 64 << 10,
        shards: 8,
        ..StoreConfig::default()
    };
    let store = full(&config);
    let items = all_items(&store);
    let smaller = StoreConfig {
        bytes_max: 1 << 20,
        ..config
    };
    let smaller = Store::new(&smaller, Box::new(()));
    smaller.continue_seed(store.seed().clone());
    for item in &items {
        smaller.restore(item.value.key(), &item.value, &item.state, NOW);
    }
    let kept = all_items(&smaller);
    assert!(kept.len() * 3 > items.len());
    for (is_frequent, last) in [(true, 20), (false, 3)] {
        let of_queue = items
            .iter()
            .filter(|item| item.state.is_frequent == is_frequent);
        let newest: Vec<_> = of_queue.rev().take(last).collect();
        assert!(
            newest.iter().all(|item| kept.contains(item)),
            "{is_frequent}"
        );
    }
}
