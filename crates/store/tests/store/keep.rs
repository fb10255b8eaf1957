//! Items that outlive the process.

use super::NOW;
use dwell_store::{Expiry, KeptItem, Seconds, Store, StoreConfig};

fn all_items(store: &Store) -> Vec<KeptItem> {
    (0..store.shards())
        .flat_map(|shard| store.kept_items(shard))
        .collect()
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
