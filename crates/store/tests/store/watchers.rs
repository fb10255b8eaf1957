//! Watching keys, without concurrency: what is told to whom, and how often.

use dwell_store::{
    ArithmeticOptions, DeleteOptions, Expiry, MetaGet, Store, StoreConfig, StoreMode, StoreOptions,
    WatcherId,
};
use proptest::prelude::*;

use crate::{Calls, NOW, watched_store, watcher};

fn watched() -> (Store, Calls) {
    watched_store(&StoreConfig {
        bytes_max: 4 << 20,
        ..StoreConfig::default()
    })
}

#[test]
fn every_kind_of_change_is_told() {
    type Change = (&'static str, fn(&Store));
    let changes: [Change; 13] = [
        ("set", |store| {
            store.set(b"k", 0, Expiry::NEVER, b"2", NOW);
        }),
        ("set expired", |store| {
            store.set(b"k", 0, Expiry::IMMEDIATE, b"2", NOW);
        }),
        ("delete", |store| assert!(store.delete(b"k", NOW))),
        ("discard", |store| store.discard(b"k", NOW)),
        ("touch to the past", |store| {
            assert!(store.touch(b"k", Expiry::IMMEDIATE, NOW));
        }),
        ("incr", |store| {
            store.arithmetic(b"k", &ArithmeticOptions::default(), NOW);
        }),
        ("append", |store| {
            let options = StoreOptions {
                mode: StoreMode::Append,
                ..StoreOptions::default()
            };
            store.store(b"k", b"x", &options, NOW);
        }),
        ("invalidate", |store| {
            let options = DeleteOptions {
                invalidate: true,
                ..DeleteOptions::default()
            };
            store.meta_delete(b"k", &options, NOW);
        }),
        ("flush", |store| store.flush_all(0, NOW)),
        ("delayed flush, command", |store| {
            store.flush_all(5, NOW);
            store.get(b"k", NOW + 5);
        }),
        ("delayed flush, sweep", |store| {
            store.flush_all(5, NOW);
            store.sweep(NOW + 5, 0);
        }),
        ("expiry, command", |store| {
            assert_eq!(store.get(b"k", NOW + 100), None);
        }),
        ("expiry, sweep", |store| {
            assert_eq!(store.sweep(NOW + 100, 0), 1);
        }),
    ];
    for (name, change) in changes {
        let (store, calls) = watched();
        store.set(b"k", 0, Expiry::at(NOW + 100), b"1", NOW);
        assert_eq!(&*store.watch(b"k", watcher(3), NOW).unwrap().value, b"1");
        change(&store);
        assert_eq!(calls.take(), [(3, b"k".to_vec())], "{name}");
    }
}

#[test]
fn a_missing_key_can_be_watched() {
    let (store, calls) = watched();
    assert_eq!(store.watch(b"k", watcher(0), NOW), None);
    store.delete(b"k", NOW);
    store.flush_all(0, NOW);
    store.sweep(NOW + 1000, 100);
    assert_eq!(calls.take(), []);
    let vivify = MetaGet {
        vivify: Some(Expiry::NEVER),
        ..MetaGet::default()
    };
    store.meta_get(b"k", &vivify, NOW);
    assert_eq!(calls.take().len(), 1);
}

#[test]
fn reads_and_refusals_tell_nobody() {
    let (store, calls) = watched();
    store.set(b"k", 0, Expiry::NEVER, b"x", NOW);
    store.watch(b"k", watcher(0), NOW);
    store.get(b"k", NOW);
    store.touch(b"k", Expiry::at(NOW + 5), NOW);
    store.meta_get(b"k", &MetaGet::default(), NOW);
    store.arithmetic(b"k", &ArithmeticOptions::default(), NOW);
    let add = StoreOptions {
        mode: StoreMode::Add,
        ..StoreOptions::default()
    };
    store.store(b"k", b"y", &add, NOW);
    store.set(b"other", 0, Expiry::NEVER, b"x", NOW);
    assert_eq!(calls.take(), []);
}

#[test]
fn once_until_the_reread() {
    let (store, calls) = watched();
    store.watch(b"k", watcher(1), NOW);
    store.watch(b"k", watcher(63), NOW);
    for _ in 0..5 {
        store.set(b"k", 0, Expiry::NEVER, b"v", NOW);
    }
    assert_eq!(calls.take(), [(1, b"k".to_vec()), (63, b"k".to_vec())]);
    assert!(store.reread(b"k", watcher(63), NOW).is_some());
    store.delete(b"k", NOW);
    assert_eq!(calls.take(), [(63, b"k".to_vec())]);
    assert_eq!(store.reread(b"k", watcher(1), NOW), None);
    assert_eq!(store.statistics().watch_notifications, 3);
}

#[test]
fn nobody_is_told_after_unwatch() {
    let (store, calls) = watched();
    store.watch(b"k", watcher(1), NOW);
    store.watch(b"k", watcher(1), NOW);
    store.watch(b"k", watcher(2), NOW);
    assert_eq!(store.statistics().watched_keys, 1);
    assert!(store.unwatch(b"k", watcher(1)));
    assert!(!store.unwatch(b"k", watcher(1)));
    store.set(b"k", 0, Expiry::NEVER, b"v", NOW);
    assert_eq!(calls.take(), [(2, b"k".to_vec())]);
    assert!(store.unwatch(b"k", watcher(2)));
    store.set(b"k", 0, Expiry::NEVER, b"w", NOW);
    assert_eq!(calls.take(), []);
    assert_eq!(store.statistics().watched_keys, 0);
}

#[test]
fn a_watch_begins_with_a_clean_slate() {
    let (store, calls) = watched();
    store.watch(b"k", watcher(1), NOW);
    store.set(b"k", 0, Expiry::NEVER, b"v", NOW);
    store.unwatch(b"k", watcher(1));
    store.watch(b"k", watcher(1), NOW);
    store.set(b"k", 0, Expiry::NEVER, b"w", NOW);
    assert_eq!(calls.take().len(), 2);
}

#[test]
fn the_sweep_notices_expiry_whatever_happened_to_it_before() {
    let (store, calls) = watched();
    store.watch(b"k", watcher(0), NOW);
    let heard = |now| {
        store.sweep(now, 0);
        let heard = !calls.take().is_empty();
        store.reread(b"k", watcher(0), now);
        heard
    };
    store.set(b"k", 0, Expiry::at(NOW + 50), b"v", NOW);
    assert!(heard(NOW));
    // Later and later: the alarm set first rings for nothing and moves on.
    store.touch(b"k", Expiry::at(NOW + 60), NOW);
    assert!(!heard(NOW + 50));
    store.touch(b"k", Expiry::at(NOW + 70), NOW + 50);
    assert!(!heard(NOW + 60));
    assert!(!heard(NOW + 69));
    assert!(heard(NOW + 70));
    // Earlier than the alarm.
    store.set(b"k", 0, Expiry::at(NOW + 100), b"v", NOW + 70);
    assert!(heard(NOW + 70));
    store.touch(b"k", Expiry::at(NOW + 80), NOW + 70);
    assert!(!heard(NOW + 79));
    assert!(heard(NOW + 80));
    assert!(!heard(NOW + 100));
    // Watched only after it was stored.
    store.set(b"k", 0, Expiry::at(NOW + 120), b"v", NOW + 100);
    store.unwatch(b"k", watcher(0));
    calls.take();
    store.watch(b"k", watcher(0), NOW + 100);
    assert!(!heard(NOW + 119));
    assert!(heard(NOW + 120));
}

#[test]
fn an_eviction_is_told() {
    let config = StoreConfig {
        bytes_max: 64 << 10,
        shards: 1,
        ..StoreConfig::default()
    };
    let (store, calls) = watched_store(&config);
    store.set(b"k", 0, Expiry::NEVER, b"v", NOW);
    store.watch(b"k", watcher(7), NOW);
    for index in 0..5000_u32 {
        // Items that are used push out others that are not; a mere scan would not.
        store.set(&index.to_be_bytes(), 0, Expiry::NEVER, &[b'x'; 100], NOW);
        store.get(&index.to_be_bytes(), NOW);
    }
    assert_eq!(calls.take(), [(7, b"k".to_vec())]);
    assert_eq!(store.reread(b"k", watcher(7), NOW), None);
}

#[test]
fn keys_longer_than_the_protocols_can_be_watched() {
    let (store, _) = watched();
    let key = [b'k'; 4000];
    assert_eq!(store.watch(&key, watcher(0), NOW), None);
    assert!(store.unwatch(&key, watcher(0)));
}

#[test]
fn many_watches_come_and_go() {
    let (store, calls) = watched();
    for round in 0..3 {
        for index in 0..2000_u32 {
            store.watch(&index.to_be_bytes(), watcher(0), NOW);
        }
        for index in 0..1000_u32 {
            store.unwatch(&index.to_be_bytes(), watcher(0));
        }
        assert_eq!(store.statistics().watched_keys, 1000, "{round}");
        for index in 0..2000_u32 {
            store.set(&index.to_be_bytes(), 0, Expiry::NEVER, b"v", NOW);
        }
        assert_eq!(calls.take().len(), 1000);
        for index in 1000..2000_u32 {
            store.unwatch(&index.to_be_bytes(), watcher(0));
        }
    }
    assert_eq!(store.statistics().watched_keys, 0);
}

#[test]
fn there_are_64_watchers() {
    assert_eq!(WatcherId::new(63).unwrap().index(), 63);
    assert_eq!(WatcherId::new(64), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever takes an item away to make room, its watcher is told once, and of nothing else.
    #[test]
    fn whoever_watches_a_full_store_is_told_of_every_loss_once(
        evicts in any::<bool>(),
        commands in prop::collection::vec((0_u16..400, 0_u8..24, 0_usize..1500), 100..1500),
    ) {
        let config = StoreConfig {
            bytes_max: 48 << 10,
            shards: 1,
            evicts,
            ..StoreConfig::default()
        };
        let (store, calls) = watched_store(&config);
        let mut known = vec![None; 400];
        for key in 0..400_u16 {
            store.watch(&key.to_be_bytes(), watcher(0), NOW);
        }
        for (count, (key, kind, size)) in commands.into_iter().enumerate() {
            let name = key.to_be_bytes();
            match kind {
                0..3 => drop(store.delete(&name, NOW)),
                3..6 => drop(store.get(&name, NOW)),
                6 => store.set_bytes_max((20 << 10) + size * 20, NOW),
                7 => drop(store.sweep(NOW, size)),
                8 if size < 100 => store.flush_all(0, NOW),
                _ => {
                    let value = vec![0; if kind < 20 { size / 12 } else { size * 2 }];
                    store.set(&name, 0, Expiry::NEVER, &value, NOW);
                }
            }
            let mut told = calls.take();
            let all = told.len();
            told.sort_unstable();
            told.dedup();
            prop_assert_eq!(told.len(), all, "told twice");
            for (_, name) in told {
                let key = u16::from_be_bytes([name[0], name[1]]);
                let item = store.reread(&name, watcher(0), NOW);
                let version = item.map(|item| item.cas);
                // A value that came and went within one command is no news, but never wrong.
                prop_assert!(version != known[usize::from(key)] || version.is_none());
                known[usize::from(key)] = version;
            }
            if count % 16 == 0 {
                for (key, version) in (0_u16..).zip(&known) {
                    let there = store.meta_debug(&key.to_be_bytes(), NOW);
                    prop_assert_eq!(there.map(|item| item.cas), *version, "key {}", key);
                }
            }
        }
    }
}
