//! What the meta commands add; expectations were probed on memcached 1.6.18.

use dwell_store::{
    ArithmeticOptions, ArithmeticOutcome, DeleteOptions, DeleteOutcome, Direction, Expiry, MetaGet,
    MetaHit, Store, StoreMode, StoreOptions, StoreOutcome,
};

use crate::{NOW, store, stored, value};

fn read(store: &Store, options: MetaGet) -> Option<MetaHit> {
    store.meta_get(b"k", &options, NOW)
}

/// The flags W, X and Z of a hit.
fn flags(hit: &MetaHit) -> (bool, bool, bool) {
    (hit.won, hit.stale, hit.win_sent)
}

const INVALIDATE: DeleteOptions = DeleteOptions {
    cas: None,
    invalidate: true,
    expiry: None,
    remove_value: false,
    cas_new: None,
};

#[test]
fn a_read_tells_about_the_time_before_it() {
    let store = store();
    store.set(b"k", 3, Expiry::at(NOW + 100), b"v", NOW);
    let first = store.meta_get(b"k", &MetaGet::default(), NOW + 7).unwrap();
    assert!(!first.fetched);
    assert_eq!(
        (first.unused_seconds, first.expiry),
        (7, Expiry::at(NOW + 100))
    );
    let second = store.meta_get(b"k", &MetaGet::default(), NOW + 9).unwrap();
    assert!(second.fetched);
    assert_eq!(second.unused_seconds, 2);
}

#[test]
fn no_bump_leaves_no_trace() {
    let store = store();
    store.set(b"k", 0, Expiry::NEVER, b"v", NOW);
    let quiet = MetaGet {
        no_bump: true,
        ..MetaGet::default()
    };
    read(&store, quiet);
    let hit = store.meta_get(b"k", &quiet, NOW + 5).unwrap();
    assert!(!hit.fetched);
    assert_eq!(hit.unused_seconds, 5);
}

#[test]
fn a_read_with_an_expiry_shows_the_one_before_and_the_one_after() {
    let store = store();
    store.set(b"k", 0, Expiry::at(NOW + 10), b"v", NOW);
    let touch = MetaGet {
        expiry: Some(Expiry::at(NOW + 100)),
        ..MetaGet::default()
    };
    let hit = read(&store, touch).unwrap();
    assert_eq!(hit.expiry_before.remaining(NOW), Some(10));
    assert_eq!(hit.expiry.remaining(NOW), Some(100));
    assert_eq!(
        read(&store, MetaGet::default()).unwrap().expiry,
        Expiry::at(NOW + 100)
    );
}

#[test]
fn vivify_makes_one_winner() {
    let store = store();
    let vivify = MetaGet {
        vivify: Some(Expiry::at(NOW + 30)),
        ..MetaGet::default()
    };
    let first = read(&store, vivify).unwrap();
    assert!(first.created);
    assert_eq!(
        (flags(&first), &*first.item.value),
        ((true, false, false), &b""[..])
    );
    let second = read(&store, vivify).unwrap();
    assert_eq!(
        (flags(&second), second.created),
        ((false, false, true), false)
    );
    assert_eq!(second.expiry.remaining(NOW), Some(30));
    store.set(b"k", 0, Expiry::NEVER, b"fresh", NOW);
    assert_eq!(flags(&read(&store, vivify).unwrap()), (false, false, false));
}

#[test]
fn recache_makes_one_winner_when_time_runs_out() {
    let store = store();
    store.set(b"k", 0, Expiry::at(NOW + 10), b"v", NOW);
    let recache = |seconds| MetaGet {
        recache: Some(seconds),
        ..MetaGet::default()
    };
    assert_eq!(
        flags(&read(&store, recache(10)).unwrap()),
        (false, false, false)
    );
    assert_eq!(
        flags(&read(&store, recache(11)).unwrap()),
        (true, false, false)
    );
    assert_eq!(
        flags(&read(&store, recache(11)).unwrap()),
        (false, false, true)
    );
    store.set(b"k", 0, Expiry::NEVER, b"v", NOW);
    assert_eq!(
        flags(&read(&store, recache(11)).unwrap()),
        (false, false, false)
    );
}

#[test]
fn an_invalidated_item_is_served_stale_to_one_winner() {
    let store = store();
    let cas = stored(store.set(b"k", 0, Expiry::NEVER, b"v", NOW));
    let options = DeleteOptions {
        expiry: Some(Expiry::at(NOW + 30)),
        ..INVALIDATE
    };
    assert_eq!(
        store.meta_delete(b"k", &options, NOW),
        DeleteOutcome::Deleted
    );
    let first = read(&store, MetaGet::default()).unwrap();
    assert_eq!(
        (flags(&first), &*first.item.value),
        ((true, true, false), &b"v"[..])
    );
    assert!(first.item.cas > cas);
    assert_eq!(first.expiry.remaining(NOW), Some(30));
    let second = read(&store, MetaGet::default()).unwrap();
    assert_eq!(flags(&second), (false, true, true));

    // The winner's value for that version makes it fresh again.
    let fresh = StoreOptions {
        cas: Some(first.item.cas),
        invalidate: true,
        ..Default::default()
    };
    stored(store.meta_set(b"k", b"new", &fresh, NOW));
    assert_eq!(
        flags(&read(&store, MetaGet::default()).unwrap()),
        (false, false, false)
    );
}

#[test]
fn a_late_value_is_taken_as_stale_and_keeps_the_old_time() {
    let store = store();
    let cas = stored(store.set(b"k", 0, Expiry::at(NOW + 9), b"v", NOW));
    store.meta_delete(b"k", &INVALIDATE, NOW);
    let late = StoreOptions {
        cas: Some(cas),
        ..StoreOptions::default()
    };
    assert_eq!(
        store.meta_set(b"k", b"late", &late, NOW),
        StoreOutcome::Exists
    );
    let late = StoreOptions {
        invalidate: true,
        expiry: Expiry::NEVER,
        ..late
    };
    stored(store.meta_set(b"k", b"late", &late, NOW));
    let hit = read(&store, MetaGet::default()).unwrap();
    assert_eq!(
        (flags(&hit), &*hit.item.value),
        ((true, true, false), &b"late"[..])
    );
    assert_eq!(hit.expiry.remaining(NOW), Some(9));

    // Won before the late value came: the mark is carried over.
    let late = StoreOptions {
        cas: Some(cas),
        invalidate: true,
        ..StoreOptions::default()
    };
    stored(store.meta_set(b"k", b"later", &late, NOW));
    assert_eq!(
        flags(&read(&store, MetaGet::default()).unwrap()),
        (false, true, true)
    );

    let early = StoreOptions {
        cas: Some(u64::MAX),
        invalidate: true,
        ..StoreOptions::default()
    };
    assert_eq!(
        store.meta_set(b"k", b"early", &early, NOW),
        StoreOutcome::Exists
    );
}

#[test]
fn modes_with_a_version() {
    let store = store();
    let options = |mode| StoreOptions {
        mode,
        cas: Some(77),
        ..StoreOptions::default()
    };
    let set = |mode| store.meta_set(b"k", b"z", &options(mode), NOW);
    assert_eq!(set(StoreMode::Set), StoreOutcome::NotFound);
    assert_eq!(set(StoreMode::Replace), StoreOutcome::NotFound);
    assert_eq!(set(StoreMode::Append), StoreOutcome::NotStored);
    stored(set(StoreMode::Add));
    assert_eq!(set(StoreMode::Add), StoreOutcome::NotStored);
    for mode in [
        StoreMode::Set,
        StoreMode::Replace,
        StoreMode::Append,
        StoreMode::Prepend,
    ] {
        assert_eq!(set(mode), StoreOutcome::Exists, "{mode:?}");
    }
}

#[test]
fn append_may_create() {
    let store = store();
    let vivify = Some(Expiry::at(NOW + 20));
    let options = StoreOptions {
        mode: StoreMode::Append,
        vivify,
        ..StoreOptions::default()
    };
    stored(store.meta_set(b"k", b"a", &options, NOW));
    stored(store.meta_set(b"k", b"b", &options, NOW));
    assert_eq!(value(&store, b"k").unwrap(), b"ab");
    assert_eq!(store.get(b"k", NOW + 20), None);
}

#[test]
fn delete_respects_a_version() {
    let store = store();
    let options = |cas| DeleteOptions {
        cas: Some(cas),
        ..DeleteOptions::default()
    };
    assert_eq!(
        store.meta_delete(b"k", &options(1), NOW),
        DeleteOutcome::NotFound
    );
    let cas = stored(store.set(b"k", 0, Expiry::NEVER, b"v", NOW));
    assert_eq!(
        store.meta_delete(b"k", &options(cas + 1), NOW),
        DeleteOutcome::Exists
    );
    assert_eq!(
        store.meta_delete(b"k", &options(cas), NOW),
        DeleteOutcome::Deleted
    );
    assert_eq!(value(&store, b"k"), None);
}

#[test]
fn delete_may_leave_an_empty_item() {
    let store = store();
    store.set(b"k", 5, Expiry::at(NOW + 9), b"v", NOW);
    let options = DeleteOptions {
        remove_value: true,
        ..DeleteOptions::default()
    };
    assert_eq!(
        store.meta_delete(b"k", &options, NOW),
        DeleteOutcome::Deleted
    );
    let hit = read(&store, MetaGet::default()).unwrap();
    assert_eq!((&*hit.item.value, hit.item.flags), (&b""[..], 0));
    assert_eq!(
        (flags(&hit), hit.expiry),
        ((false, false, false), Expiry::at(NOW + 9))
    );
    store.meta_delete(
        b"k",
        &DeleteOptions {
            remove_value: true,
            ..INVALIDATE
        },
        NOW,
    );
    assert_eq!(
        flags(&read(&store, MetaGet::default()).unwrap()),
        (true, true, false)
    );
}

#[test]
fn arithmetic_may_create_and_respects_a_version() {
    let store = store();
    let vivify = ArithmeticOptions {
        vivify: Some(Expiry::NEVER),
        initial: 13,
        ..ArithmeticOptions::default()
    };
    let run = |options: ArithmeticOptions| store.meta_arithmetic(b"k", &options, NOW);
    let number = |outcome| match outcome {
        ArithmeticOutcome::Done { number, expiry, .. } => (number, expiry),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        run(ArithmeticOptions::default()),
        ArithmeticOutcome::NotFound
    );
    assert_eq!(number(run(vivify)), (13, Expiry::NEVER));
    assert_eq!(number(run(vivify)), (14, Expiry::NEVER));
    let later = Expiry::at(NOW + 50);
    let down = ArithmeticOptions {
        direction: Direction::Decrement,
        delta: 10,
        expiry: Some(later),
        ..ArithmeticOptions::default()
    };
    assert_eq!(number(run(down)), (4, later));
    assert_eq!(value(&store, b"k").unwrap(), b"4 ");
    let wrong = ArithmeticOptions {
        cas: Some(0),
        ..ArithmeticOptions::default()
    };
    assert_eq!(run(wrong), ArithmeticOutcome::Exists);
    let named = ArithmeticOptions {
        cas_new: Some(1 << 40),
        ..ArithmeticOptions::default()
    };
    run(named);
    assert_eq!(store.get(b"k", NOW).unwrap().cas, 1 << 40);
}

#[test]
fn a_version_can_be_named() {
    let store = store();
    let options = StoreOptions {
        cas_new: Some(500),
        ..StoreOptions::default()
    };
    assert_eq!(
        store.meta_set(b"k", b"v", &options, NOW),
        StoreOutcome::Stored { cas: 500 }
    );
    assert_eq!(store.get(b"k", NOW).unwrap().cas, 500);
    store.meta_delete(
        b"k",
        &DeleteOptions {
            cas_new: Some(501),
            ..INVALIDATE
        },
        NOW,
    );
    assert_eq!(store.get(b"k", NOW).unwrap().cas, 501);
    let vivify = MetaGet {
        vivify: Some(Expiry::NEVER),
        cas_new: Some(9),
        ..MetaGet::default()
    };
    assert_eq!(store.meta_get(b"new", &vivify, NOW).unwrap().item.cas, 9);
    // A named version has nothing to do with what a flush removes.
    store.flush_all(0, NOW);
    assert_eq!(value(&store, b"k"), None);
    store.meta_set(
        b"k",
        b"v",
        &StoreOptions {
            cas_new: Some(1),
            ..options
        },
        NOW,
    );
    assert_eq!(value(&store, b"k").unwrap(), b"v");
}

#[test]
fn debug_describes_without_using() {
    let store = store();
    assert_eq!(store.meta_debug(b"k", NOW), None);
    let cas = stored(store.set(b"k", 0, Expiry::NEVER, b"v", NOW));
    let seen = store.meta_debug(b"k", NOW + 3).unwrap();
    assert_eq!(
        (seen.cas, seen.unused_seconds, seen.fetched),
        (cas, 3, false)
    );
    assert!(seen.bytes >= 34);
    assert_eq!(store.meta_debug(b"k", NOW + 3), Some(seen));
}
