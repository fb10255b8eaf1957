//! The text commands, one test each; expectations were probed on memcached 1.6.18.

use dwell_store::{
    ArithmeticOptions, ArithmeticOutcome, Direction, Expiry, MetaGet, Store, StoreConfig,
    StoreMode, StoreOptions, StoreOutcome,
};

use crate::{NOW, store, stored, value};

fn put(store: &Store, mode: StoreMode, key: &[u8], bytes: &[u8]) -> StoreOutcome {
    store.store(
        key,
        bytes,
        &StoreOptions {
            mode,
            ..StoreOptions::default()
        },
        NOW,
    )
}

fn set(store: &Store, key: &[u8], bytes: &[u8]) -> u64 {
    stored(put(store, StoreMode::Set, key, bytes))
}

fn change(store: &Store, key: &[u8], direction: Direction, delta: u64) -> ArithmeticOutcome {
    let options = ArithmeticOptions {
        direction,
        delta,
        ..ArithmeticOptions::default()
    };
    store.arithmetic(key, &options, NOW)
}

fn number(outcome: ArithmeticOutcome) -> u64 {
    match outcome {
        ArithmeticOutcome::Done { number, .. } => number,
        other => panic!("no number: {other:?}"),
    }
}

#[test]
fn get_returns_what_set_stored_with_its_flags_and_version() {
    let store = store();
    let cas = stored(store.set(b"k", 7, Expiry::NEVER, b"bytes", NOW));
    let item = store.get(b"k", NOW).unwrap();
    assert_eq!(
        (&*item.value, item.flags, item.cas),
        (&b"bytes"[..], 7, cas)
    );
    assert_eq!(item.value.key(), b"k");
    assert_eq!(format!("{:?}", item.value), "b\"bytes\"");
    assert_eq!(store.get(b"other", NOW), None);
}

#[test]
fn a_value_in_a_readers_hand_never_changes() {
    let store = store();
    set(&store, b"k", b"one");
    let item = store.get(b"k", NOW).unwrap();
    set(&store, b"k", b"two");
    assert_eq!(&*item.value, b"one");
    assert_eq!(value(&store, b"k").unwrap(), b"two");
    store.delete(b"k", NOW);
    assert_eq!(&*item.value, b"one");
}

#[test]
fn any_bytes_are_keys_and_values() {
    let store = store();
    let key: Vec<u8> = (0..250).collect();
    set(&store, &key, b"\0\r\n\xff");
    assert_eq!(value(&store, &key).unwrap(), b"\0\r\n\xff");
    set(&store, b"empty", b"");
    assert_eq!(value(&store, b"empty").unwrap(), b"");
}

#[test]
fn a_key_too_long_for_the_store_is_refused_not_cut() {
    let store = store();
    let key = [b'k'; 300];
    assert_eq!(
        put(&store, StoreMode::Set, &key, b"v"),
        StoreOutcome::TooLarge
    );
    assert_eq!(store.get(&key, NOW), None);
}

#[test]
fn add_stores_only_where_nothing_is() {
    let store = store();
    stored(put(&store, StoreMode::Add, b"k", b"one"));
    assert_eq!(
        put(&store, StoreMode::Add, b"k", b"two"),
        StoreOutcome::NotStored
    );
    assert_eq!(value(&store, b"k").unwrap(), b"one");
}

#[test]
fn replace_stores_only_where_something_is() {
    let store = store();
    assert_eq!(
        put(&store, StoreMode::Replace, b"k", b"one"),
        StoreOutcome::NotStored
    );
    set(&store, b"k", b"one");
    stored(put(&store, StoreMode::Replace, b"k", b"two"));
    assert_eq!(value(&store, b"k").unwrap(), b"two");
}

#[test]
fn append_and_prepend_keep_flags_and_expiry() {
    let store = store();
    for mode in [StoreMode::Append, StoreMode::Prepend] {
        assert_eq!(put(&store, mode, b"k", b"x"), StoreOutcome::NotStored);
    }
    store.set(b"k", 5, Expiry::at(NOW + 10), b"1", NOW);
    let options = |mode| StoreOptions {
        mode,
        flags: 9,
        ..StoreOptions::default()
    };
    stored(store.store(b"k", b"2", &options(StoreMode::Append), NOW));
    stored(store.store(b"k", b"0", &options(StoreMode::Prepend), NOW));
    let item = store.get(b"k", NOW).unwrap();
    assert_eq!((&*item.value, item.flags), (&b"012"[..], 5));
    assert_eq!(store.get(b"k", NOW + 10), None);
}

#[test]
fn cas_stores_over_its_version_only() {
    let store = store();
    let cas = |cas| StoreOptions {
        cas: Some(cas),
        ..StoreOptions::default()
    };
    assert_eq!(
        store.store(b"k", b"x", &cas(1), NOW),
        StoreOutcome::NotFound
    );
    let first = set(&store, b"k", b"one");
    let second = stored(store.store(b"k", b"two", &cas(first), NOW));
    assert_ne!(first, second);
    assert_eq!(
        store.store(b"k", b"three", &cas(first), NOW),
        StoreOutcome::Exists
    );
    assert_eq!(
        store.store(b"k", b"three", &cas(0), NOW),
        StoreOutcome::Exists
    );
    assert_eq!(value(&store, b"k").unwrap(), b"two");
    let counted = store.statistics();
    assert_eq!(
        (counted.cas_hits, counted.cas_misses, counted.cas_badval),
        (1, 1, 2)
    );
}

#[test]
fn versions_move_with_the_bytes_and_not_with_the_expiry() {
    let store = store();
    let cas = |store: &Store| store.get(b"k", NOW).unwrap().cas;
    let mut last = set(&store, b"k", b"1");
    assert!(store.touch(b"k", Expiry::at(NOW + 50), NOW));
    store.get_and_touch(b"k", Expiry::at(NOW + 60), NOW);
    assert_eq!(cas(&store), last);
    change(&store, b"k", Direction::Increment, 1);
    assert!(cas(&store) > last);
    last = cas(&store);
    put(&store, StoreMode::Append, b"k", b"1");
    assert!(cas(&store) > last);
}

#[test]
fn delete_removes_once() {
    let store = store();
    set(&store, b"k", b"v");
    assert!(store.delete(b"k", NOW));
    assert!(!store.delete(b"k", NOW));
    assert_eq!(value(&store, b"k"), None);
    let counted = store.statistics();
    assert_eq!(
        (
            counted.delete_hits,
            counted.delete_misses,
            counted.curr_items
        ),
        (1, 1, 0)
    );
}

#[test]
fn incr_wraps_and_decr_stops_at_zero() {
    let store = store();
    set(&store, b"n", b"18446744073709551615");
    assert_eq!(number(change(&store, b"n", Direction::Increment, 1)), 0);
    assert_eq!(value(&store, b"n").unwrap(), b"0                   ");
    set(&store, b"n", b"5");
    assert_eq!(number(change(&store, b"n", Direction::Decrement, 6)), 0);
    assert_eq!(
        change(&store, b"none", Direction::Increment, 1),
        ArithmeticOutcome::NotFound
    );
}

#[test]
fn decr_keeps_the_length_and_incr_grows_it() {
    let store = store();
    set(&store, b"n", b"100");
    assert_eq!(number(change(&store, b"n", Direction::Decrement, 1)), 99);
    assert_eq!(value(&store, b"n").unwrap(), b"99 ");
    assert_eq!(number(change(&store, b"n", Direction::Decrement, 95)), 4);
    assert_eq!(value(&store, b"n").unwrap(), b"4  ");
    assert_eq!(
        number(change(&store, b"n", Direction::Increment, 1000)),
        1004
    );
    assert_eq!(value(&store, b"n").unwrap(), b"1004");
}

#[test]
fn what_counts_as_a_number() {
    let store = store();
    let cases: [(&[u8], Option<u64>); 11] = [
        (b" 9", Some(10)),
        (b"5  ", Some(6)),
        (b"5 x", Some(6)),
        (b"+5", Some(6)),
        (b"05", Some(6)),
        (b"9x", None),
        (b"-5", None),
        (b"", None),
        (b"  ", None),
        (b"x", None),
        (b"184467440737095516150", None),
    ];
    for (bytes, expected) in cases {
        set(&store, b"n", bytes);
        let outcome = change(&store, b"n", Direction::Increment, 1);
        match expected {
            Some(expected) => assert_eq!(number(outcome), expected, "{bytes:?}"),
            None => assert_eq!(outcome, ArithmeticOutcome::NotNumeric, "{bytes:?}"),
        }
    }
}

#[test]
fn the_largest_value_is_memcacheds() {
    let config = StoreConfig {
        bytes_max: 64 << 20,
        ..StoreConfig::default()
    };
    let store = Store::new(&config, Box::new(()));
    let bytes = vec![b'x'; 1_048_517];
    set(&store, b"k", &bytes[..1_048_516]);
    assert_eq!(value(&store, b"k").unwrap().len(), 1_048_516);
    assert_eq!(
        put(&store, StoreMode::Add, b"l", &bytes),
        StoreOutcome::TooLarge
    );
    assert_eq!(store.statistics().store_too_large, 1);
}

#[test]
fn only_a_plain_set_that_fails_removes_the_old_value() {
    let store = store();
    let large = vec![b'x'; 2 << 20];
    let refused = |options: StoreOptions| {
        set(&store, b"k", b"old");
        let outcome = store.store(b"k", &large, &options, NOW);
        assert_eq!(outcome, StoreOutcome::TooLarge);
        value(&store, b"k")
    };
    assert_eq!(refused(StoreOptions::default()), None);
    let kept = [
        StoreOptions {
            cas: Some(1),
            ..StoreOptions::default()
        },
        StoreOptions {
            mode: StoreMode::Add,
            ..StoreOptions::default()
        },
        StoreOptions {
            mode: StoreMode::Replace,
            ..StoreOptions::default()
        },
        StoreOptions {
            mode: StoreMode::Append,
            ..StoreOptions::default()
        },
    ];
    for options in kept {
        assert_eq!(refused(options).unwrap(), b"old", "{options:?}");
    }
    store.discard(b"k", NOW);
    assert_eq!(value(&store, b"k"), None);
    assert_eq!(store.statistics().delete_hits, 0);
}

#[test]
fn flush_all_is_a_point_in_the_order_of_commands() {
    let store = store();
    set(&store, b"before", b"v");
    store.flush_all(0, NOW);
    set(&store, b"after", b"v");
    assert_eq!(value(&store, b"before"), None);
    assert_eq!(
        put(&store, StoreMode::Append, b"before", b"v"),
        StoreOutcome::NotStored
    );
    assert_eq!(value(&store, b"after").unwrap(), b"v");
    store.flush_all(-1, NOW);
    assert_eq!(value(&store, b"after"), None);
    assert_eq!(store.statistics().cmd_flush, 2);
}

#[test]
fn statistics_carry_memcacheds_names_and_reset_keeps_the_gauges() {
    let store = store();
    set(&store, b"k", b"v");
    value(&store, b"k");
    value(&store, b"none");
    let counted = store.statistics();
    assert_eq!(
        (counted.cmd_get, counted.get_hits, counted.get_misses),
        (2, 1, 1)
    );
    assert_eq!(
        (counted.cmd_set, counted.curr_items, counted.total_items),
        (1, 1, 1)
    );
    assert_eq!(counted.limit_maxbytes, 8 << 20);
    assert!(
        counted
            .iter()
            .any(|(name, value)| name == "get_hits" && value == 1)
    );
    store.reset_statistics();
    let reset = store.statistics();
    assert_eq!(
        (reset.cmd_get, reset.curr_items, reset.bytes),
        (0, 1, counted.bytes)
    );
}

#[test]
fn a_reader_that_panics_leaves_the_store_working() {
    let store = store();
    for len in [5, 5000] {
        store.set(b"k", 0, Expiry::NEVER, &vec![b'v'; len], NOW);
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.read(b"k", Some(Expiry::at(NOW + 9)), NOW, |_| {
                panic!("of the reader")
            })
        }));
        assert!(read.is_err());
        let recache = MetaGet {
            recache: Some(100),
            expiry: Some(Expiry::at(NOW + 5)),
            ..MetaGet::default()
        };
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.meta_read(b"k", &recache, NOW, |_| panic!("of the reader"))
        }));
        assert!(read.is_err());
        assert_eq!(value(&store, b"k").unwrap().len(), len);
        store.set(b"k", 0, Expiry::NEVER, b"after", NOW);
        assert_eq!(value(&store, b"k").unwrap(), b"after");
    }
}
