//! Expiry, touches, delayed flushes and the sweep.

use dwell_store::{Expiry, StoreConfig};

use crate::{NOW, store, value, watched_store};

#[test]
fn exptimes_on_the_wire() {
    let month = 60 * 60 * 24 * 30;
    let remaining = |exptime| Expiry::from_exptime(exptime, NOW).remaining(NOW);
    assert_eq!(remaining(0), None);
    assert_eq!(remaining(1), Some(1));
    assert_eq!(remaining(month), Some(2_592_000));
    assert_eq!(remaining(i64::from(NOW) + 5), Some(5));
    for gone in [
        -1,
        i64::MIN,
        month + 1,
        i64::from(NOW),
        1 << 31,
        1 << 40,
        i64::MAX,
    ] {
        assert!(Expiry::from_exptime(gone, NOW).is_past(NOW), "{gone}");
    }
    assert!(!Expiry::NEVER.is_past(u32::MAX));
    assert_eq!(Expiry::at(0), Expiry::IMMEDIATE);
    assert_eq!(
        Expiry::from_exptime(100, u32::MAX - 5).time(),
        Some(u32::MAX)
    );
}

#[test]
fn an_item_is_gone_from_its_second_on() {
    let store = store();
    store.set(b"k", 0, Expiry::at(NOW + 2), b"v", NOW);
    assert!(store.get(b"k", NOW + 1).is_some());
    assert!(store.get(b"k", NOW + 2).is_none());
    let counted = store.statistics();
    assert_eq!(
        (counted.get_expired, counted.reclaimed, counted.curr_items),
        (1, 1, 0)
    );
}

#[test]
fn a_negative_exptime_stores_nothing_that_can_be_seen() {
    let store = store();
    store.set(b"k", 0, Expiry::NEVER, b"old", NOW);
    store.set(b"k", 0, Expiry::from_exptime(-1, NOW), b"new", NOW);
    assert_eq!(value(&store, b"k"), None);
}

#[test]
fn touch_moves_the_expiry_either_way() {
    let store = store();
    store.set(b"k", 0, Expiry::at(NOW + 2), b"v", NOW);
    assert!(store.touch(b"k", Expiry::at(NOW + 9), NOW));
    assert!(store.get(b"k", NOW + 8).is_some());
    assert!(store.get_and_touch(b"k", Expiry::NEVER, NOW + 8).is_some());
    assert!(store.get(b"k", NOW + 1000).is_some());
    assert!(store.touch(b"k", Expiry::IMMEDIATE, NOW));
    assert!(!store.touch(b"k", Expiry::NEVER, NOW));
    let counted = store.statistics();
    assert_eq!(
        (counted.cmd_touch, counted.touch_hits, counted.touch_misses),
        (4, 3, 1)
    );
}

#[test]
fn a_delayed_flush_takes_what_was_stored_by_then() {
    let store = store();
    store.set(b"early", 0, Expiry::NEVER, b"v", NOW);
    store.flush_all(2, NOW);
    store.set(b"late", 0, Expiry::NEVER, b"v", NOW + 1);
    assert!(store.get(b"early", NOW + 1).is_some());
    store.set(b"after", 0, Expiry::NEVER, b"v", NOW + 2);
    assert!(store.get(b"early", NOW + 2).is_none());
    assert!(store.get(b"late", NOW + 2).is_none());
    assert!(store.get(b"after", NOW + 2).is_some());
}

#[test]
fn a_later_flush_replaces_a_delayed_one() {
    let store = store();
    store.flush_all(i64::from(NOW) + 5, NOW);
    store.flush_all(0, NOW);
    store.set(b"k", 0, Expiry::NEVER, b"v", NOW);
    assert!(store.get(b"k", NOW + 5).is_some());
}

#[test]
fn the_sweep_finds_everything_within_its_budget() {
    let (store, _) = watched_store(&StoreConfig {
        shards: 1,
        ..StoreConfig::default()
    });
    for index in 0..100_u32 {
        store.set(
            &index.to_be_bytes(),
            0,
            Expiry::at(NOW + 1 + index % 2),
            b"v",
            NOW,
        );
    }
    assert_eq!(store.sweep(NOW, 1000), 0);
    let mut removed = 0;
    for _ in 0..10 {
        let now = store.sweep(NOW + 1, 10);
        assert!(now <= 10);
        removed += now;
    }
    assert_eq!(removed, 50);
    assert_eq!(store.statistics().curr_items, 50);
    assert_eq!(store.sweep(NOW + 2, 1000), 50);
    let counted = store.statistics();
    assert_eq!((counted.reclaimed, counted.expired_unfetched), (100, 100));
}

#[test]
fn a_delayed_flush_that_is_due_is_not_replaced() {
    let store = store();
    store.set(b"k", 0, Expiry::NEVER, b"v", NOW);
    store.flush_all(2, NOW);
    // Nobody has touched the key's shard since; the first flush happened all the same.
    store.flush_all(10, NOW + 3);
    assert!(store.get(b"k", NOW + 3).is_none());
}
