//! Going through all items while others come and go.

use std::collections::HashMap;

use dwell_store::{Expiry, Store, Walk};

use crate::{NOW, store};

fn set(store: &Store, name: &str, number: usize) {
    let key = format!("{name}-{number}");
    store.set(key.as_bytes(), 0, Expiry::NEVER, key.as_bytes(), NOW);
}

fn delete(store: &Store, name: &str, number: usize) {
    assert!(store.delete(format!("{name}-{number}").as_bytes(), NOW));
}

/// Goes through a store, and does something between any two steps; how often each key was met.
fn met(store: &Store, budget: usize, mut between: impl FnMut()) -> HashMap<String, usize> {
    let mut walk = Walk::default();
    let mut met = HashMap::new();
    while !walk.is_over(store) {
        let mut longest = 0;
        let used = walk.step(store, budget, NOW, |item| {
            let key = String::from_utf8(item.key.to_vec()).unwrap();
            assert_eq!(item.value_len, key.len());
            *met.entry(key).or_insert(0) += 1;
            longest += 1;
        });
        assert!(used >= longest);
        assert!(
            used < budget + 64,
            "a slice of {used} for a budget of {budget}"
        );
        between();
    }
    met
}

#[test]
fn an_empty_store_has_nothing_to_meet() {
    assert!(met(&store(), 10, || {}).is_empty());
}

#[test]
fn every_item_is_met_once_whatever_the_budget() {
    let store = store();
    for number in 0..5000 {
        set(&store, "key", number);
    }
    for budget in [1, 7, 100, usize::MAX - 64] {
        let met = met(&store, budget, || {});
        assert_eq!(met.len(), 5000, "{budget}");
        assert!(met.values().all(|count| *count == 1));
    }
}

#[test]
fn items_that_stay_are_met_once_while_the_table_grows() {
    let store = store();
    for number in 0..3000 {
        set(&store, "stays", number);
    }
    let mut next = 0;
    let met = met(&store, 20, || {
        for _ in 0..40.min(20_000 - next) {
            set(&store, "comes", next);
            next += 1;
        }
    });
    assert_eq!(store.statistics().evictions, 0);
    assert!(next > 6000, "the table has grown: {next}");
    assert!((0..3000).all(|number| met[&format!("stays-{number}")] == 1));
    assert!(met.values().all(|count| *count == 1));
}

#[test]
fn items_that_stay_are_met_once_while_the_table_shrinks() {
    let store = store();
    for number in 0..3000 {
        set(&store, "stays", number);
    }
    for number in 0..20_000 {
        set(&store, "goes", number);
    }
    let mut next = 0;
    let met = met(&store, 50, || {
        for _ in 0..40.min(20_000 - next) {
            delete(&store, "goes", next);
            next += 1;
        }
    });
    assert!(next > 15_000, "the table has shrunk: {next}");
    assert!((0..3000).all(|number| met[&format!("stays-{number}")] == 1));
    assert!(met.values().all(|count| *count == 1));
}

#[test]
fn what_is_over_is_not_met_and_nothing_is_used_by_it() {
    let store = store();
    store.set(b"stays", 0, Expiry::at(NOW + 9), b"stays", NOW - 20);
    store.set(b"over", 0, Expiry::at(NOW), b"over", NOW - 20);
    let mut walk = Walk::default();
    let mut seen = Vec::new();
    while !walk.is_over(&store) {
        walk.step(&store, 64, NOW, |item| {
            seen.push((item.key.to_vec(), item.debug));
        });
    }
    let [(key, debug)] = &seen[..] else {
        panic!("{seen:?}");
    };
    assert_eq!(key, b"stays");
    assert_eq!(
        (debug.expiry.remaining(NOW), debug.unused_seconds),
        (Some(9), 20)
    );
    assert!(!debug.fetched);
    assert_eq!(store.meta_debug(b"stays", NOW), Some(*debug));
    assert_eq!(store.statistics().cmd_get, 0);
}
