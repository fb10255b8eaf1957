//! The bound of memory, and what stays when it is reached.

use dwell_store::{Expiry, Store, StoreConfig, StoreOutcome};
use proptest::prelude::*;

use crate::NOW;

fn sized(bytes_max: usize, shards: usize) -> Store {
    Store::new(
        &StoreConfig {
            bytes_max,
            shards,
            ..StoreConfig::default()
        },
        Box::new(()),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Stores of all sizes, overwrites and deletions: the bound holds after each.
    #[test]
    fn the_bound_is_never_exceeded(
        bytes_max in 16_usize << 10..256 << 10,
        commands in prop::collection::vec((0_u16..600, 0_usize..6, 0_usize..1000), 1..1500),
    ) {
        let store = sized(bytes_max, 1);
        let mut live = std::collections::BTreeMap::new();
        for (key, kind, size) in commands {
            let key = key.to_string();
            let value = match kind {
                0 => { store.delete(key.as_bytes(), NOW); live.remove(&key); continue }
                1 | 2 => vec![0; size / 50],
                3 | 4 => vec![0; size],
                _ => vec![0; size * 10],
            };
            let outcome = store.set(key.as_bytes(), 0, Expiry::NEVER, &value, NOW);
            if outcome == StoreOutcome::TooLarge {
                live.remove(&key);
            } else {
                live.insert(key.clone(), value.len());
            }
            let counted = store.statistics();
            prop_assert!(counted.bytes as usize <= bytes_max);
            if outcome != StoreOutcome::TooLarge {
                // Room was made for this item, not by dropping it.
                prop_assert_eq!(store.get(key.as_bytes(), NOW).unwrap().value.len(), value.len());
            }
        }
        // What is there is what was stored last, and the account covers at least its bytes.
        let mut bytes = 0;
        let mut items = 0;
        for (key, len) in &live {
            if let Some(item) = store.get(key.as_bytes(), NOW) {
                prop_assert_eq!(item.value.len(), *len);
                bytes += key.len() + len + 32 + 8;
                items += 1;
            }
        }
        let counted = store.statistics();
        prop_assert_eq!(counted.curr_items, items);
        prop_assert!(counted.bytes as usize >= bytes);
        store.flush_all(0, NOW);
        prop_assert_eq!(store.statistics().bytes, 0);
    }
}

#[test]
fn a_full_store_is_mostly_values() {
    let store = sized(4 << 20, 1);
    for index in 0..100_000_u32 {
        store.set(
            format!("key-{index:016}").as_bytes(),
            0,
            Expiry::NEVER,
            &[b'v'; 100],
            NOW,
        );
    }
    let counted = store.statistics();
    let payload = counted.curr_items * 120;
    let overhead = (counted.bytes - payload) / counted.curr_items;
    assert!(overhead <= 50, "{overhead} bytes an item");
    assert!(counted.bytes > 4 << 19, "the store uses its room");
}

#[test]
fn a_scan_does_not_push_out_what_is_used() {
    let store = sized(1 << 20, 1);
    let hot = |index: u32| format!("hot-{index}").into_bytes();
    let mut misses = 0;
    for round in 0..60_u32 {
        for index in 0..1000 {
            if store.get(&hot(index), NOW).is_none() {
                misses += u32::from(round >= 20);
                store.set(&hot(index), 0, Expiry::NEVER, &[b'h'; 200], NOW);
            }
        }
        // Once the hot set has settled, each round scans twice what the store can hold.
        for index in 0..if round < 10 { 0 } else { 8000 } {
            let key = format!("scan-{round}-{index}");
            store.set(key.as_bytes(), 0, Expiry::NEVER, &[b's'; 200], NOW);
        }
    }
    assert!(store.statistics().evictions > 300_000);
    assert!(
        misses <= 180 * 1000 / 100,
        "{misses} of 180000 hot reads missed"
    );
}

#[test]
fn room_taken_by_small_items_is_given_to_large_ones() {
    let store = sized(1 << 20, 1);
    for index in 0..100_000_u32 {
        store.set(&index.to_be_bytes(), 0, Expiry::NEVER, b"", NOW);
    }
    assert!(store.statistics().curr_items > 8000);
    for index in 0..100_u32 {
        let key = format!("large-{index}");
        store.set(key.as_bytes(), 0, Expiry::NEVER, &vec![0; 100_000], NOW);
    }
    let large = (0..100).filter(|index| {
        store
            .get(format!("large-{index}").as_bytes(), NOW)
            .is_some()
    });
    assert!(
        large.count() >= 9,
        "the slots of the small items still take the room"
    );
}

#[test]
fn a_smaller_bound_takes_effect_at_once() {
    let store = sized(1 << 20, 1);
    for index in 0..10_000_u32 {
        store.set(&index.to_be_bytes(), 0, Expiry::NEVER, &[0; 50], NOW);
    }
    store.set_bytes_max(64 << 10, NOW);
    let counted = store.statistics();
    assert!(counted.bytes <= 64 << 10);
    assert!(counted.curr_items > 100);
    assert_eq!(counted.limit_maxbytes, 64 << 10);
}

#[test]
fn a_smaller_bound_is_approached_in_steps_between_which_the_store_is_used() {
    let store = sized(8 << 20, 4);
    for index in 0..40_000_u32 {
        store.set(&index.to_be_bytes(), 0, Expiry::NEVER, &[0; 50], NOW);
    }
    let items = || store.statistics().curr_items;
    store.begin_resize(256 << 10);
    let (mut before, mut steps) = (items(), 0);
    while store.resize_step(NOW) {
        assert!(store.is_resizing());
        let after = items();
        assert!(before - after <= 1024, "{} in one step", before - after);
        before = after;
        steps += 1;
        let outcome = store.set(b"between", 0, Expiry::NEVER, &[1; 50], NOW);
        assert!(matches!(outcome, StoreOutcome::Stored { .. }));
    }
    assert!(steps > 20, "{steps}");
    let counted = store.statistics();
    assert!(counted.bytes <= 256 << 10 && !store.is_resizing());
    assert_eq!(counted.limit_maxbytes, 256 << 10);

    // Of two changes the later one counts, for all shards.
    store.set_bytes_max(8 << 20, NOW);
    for index in 0..40_000_u32 {
        store.set(&index.to_be_bytes(), 0, Expiry::NEVER, &[0; 50], NOW);
    }
    store.begin_resize(256 << 10);
    assert!((0..12).all(|_| store.resize_step(NOW)));
    store.begin_resize(4 << 20);
    while store.resize_step(NOW) {}
    assert_eq!(store.statistics().limit_maxbytes, 4 << 20);
    assert!(!store.resize_step(NOW));
}

#[test]
fn a_far_smaller_bound_holds_and_leaves_a_store_that_works() {
    for value_len in [900, 20, 5000] {
        let store = sized(64 << 20, 1);
        let value = vec![7; value_len];
        let count = (64 << 20) / (value_len as u32 + 60);
        for index in 0..count {
            store.set(&index.to_be_bytes(), 0, Expiry::NEVER, &value, NOW);
        }
        // Less than the tables of the full store took.
        store.set_bytes_max(64 << 10, NOW);
        let counted = store.statistics();
        assert!(
            counted.bytes <= 64 << 10,
            "{} bytes of values of {value_len}",
            counted.bytes
        );
        assert!(counted.curr_items > 0);
        let kept = (0..count).filter(|index| {
            let item = store.get(&index.to_be_bytes(), NOW);
            item.is_some_and(|item| *item.value == *value)
        });
        assert_eq!(kept.count() as u64, counted.curr_items);
        for index in 0..1000_u32 {
            let key = index.to_be_bytes();
            let outcome = store.set(&key, 0, Expiry::NEVER, &[0; 50], NOW);
            assert!(matches!(outcome, StoreOutcome::Stored { .. }));
            assert!(store.get(&key, NOW).is_some());
            assert!(store.statistics().bytes <= 64 << 10);
        }
        assert!(store.statistics().curr_items > 100);
    }
}

#[test]
fn without_eviction_what_has_expired_makes_room() {
    let config = StoreConfig {
        bytes_max: 1 << 20,
        shards: 1,
        evicts: false,
        ..StoreConfig::default()
    };
    let store = Store::new(&config, Box::new(()));
    for index in 0..10_000_u32 {
        store.set(&index.to_be_bytes(), 0, Expiry::at(NOW + 1), &[0; 100], NOW);
    }
    let stored = store.statistics().curr_items as u32;
    let refused = (20_000..20_000 + stored).filter(|index| {
        let outcome = store.set(&index.to_be_bytes(), 0, Expiry::NEVER, &[0; 100], NOW + 1);
        outcome == StoreOutcome::OutOfMemory
    });
    assert_eq!(refused.count(), 0);
    let counted = store.statistics();
    assert_eq!(
        (counted.curr_items, counted.evictions),
        (u64::from(stored), 0)
    );
    assert_eq!(counted.reclaimed, u64::from(stored));
}

#[test]
fn without_eviction_what_is_deleted_makes_room() {
    let config = StoreConfig {
        bytes_max: 1 << 20,
        shards: 1,
        evicts: false,
        ..StoreConfig::default()
    };
    let store = Store::new(&config, Box::new(()));
    let set = |number: u32| store.set(&number.to_be_bytes(), 0, Expiry::NEVER, &[0; 100], NOW);
    let refused = (0..10_000).find(|&number| set(number) == StoreOutcome::OutOfMemory);
    let stored = refused.unwrap();
    assert!(stored > 6500, "{stored} items");
    // Gaps everywhere, none of which is larger than an item.
    let deleted = (0..stored).step_by(7);
    let deleted = deleted.filter(|number| store.delete(&number.to_be_bytes(), NOW));
    let deleted = deleted.count() as u32;
    let again = (stored + 1..stored + 1 + deleted)
        .filter(|&number| matches!(set(number), StoreOutcome::Stored { .. }))
        .count();
    assert!(
        again as u32 >= deleted * 9 / 10,
        "{again} of {deleted} items came into the gaps"
    );
    assert_eq!(store.statistics().evictions, 0);
    assert!(store.statistics().bytes <= 1 << 20);
}

#[test]
fn expired_items_go_before_live_ones() {
    let store = sized(256 << 10, 1);
    for index in 0..500_u32 {
        store.set(&index.to_be_bytes(), 0, Expiry::at(NOW + 1), &[0; 100], NOW);
    }
    for index in 1000..1500_u32 {
        store.set(&index.to_be_bytes(), 0, Expiry::NEVER, &[0; 300], NOW + 1);
    }
    assert_eq!(store.statistics().evictions, 0);
}

#[test]
fn shards_hold_four_of_the_largest_items() {
    // 10 MiB in shards of a power of two, at least 4 MiB each: two.
    let store = Store::new(
        &StoreConfig {
            bytes_max: 10 << 20,
            ..StoreConfig::default()
        },
        Box::new(()),
    );
    assert_eq!(store.statistics().limit_maxbytes, 10 << 20);
    let largest = vec![0; (1 << 20) - 60];
    for key in b'a'..=b'z' {
        let outcome = store.set(&[key], 0, Expiry::NEVER, &largest, NOW);
        assert!(matches!(outcome, StoreOutcome::Stored { .. }));
    }
    assert!(store.statistics().bytes <= 10 << 20);
    // However much or little it is given, a store works, and takes nothing ahead of need.
    let vast = sized(usize::MAX, 16);
    vast.set(b"k", 0, Expiry::NEVER, b"v", NOW);
    assert!(vast.get(b"k", NOW).is_some());
    assert!(vast.shards() <= 4096);
    let tiny = sized(0, 16);
    tiny.set(b"k", 0, Expiry::NEVER, b"v", NOW);
    assert!(tiny.get(b"k", NOW).is_some());
}

#[test]
fn an_overwrite_that_evicts_its_own_old_value_is_accounted_for() {
    let store = sized(64 << 10, 1);
    for index in 0..1000_u32 {
        store.set(&index.to_be_bytes(), 0, Expiry::NEVER, &[0; 100], NOW);
    }
    for index in 0..1000_u32 {
        // The oldest items, which are the next to go, grow.
        if store.meta_debug(&index.to_be_bytes(), NOW).is_some() {
            store.set(&index.to_be_bytes(), 0, Expiry::NEVER, &[0; 5000], NOW);
            assert!(store.statistics().bytes <= 64 << 10);
            assert_eq!(
                store.get(&index.to_be_bytes(), NOW).unwrap().value.len(),
                5000
            );
        }
    }
}
