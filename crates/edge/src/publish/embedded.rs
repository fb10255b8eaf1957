//! Requests of publishers that the embedded store carries out.

use super::{Act, Condition, Order, Published};
use crate::cursor::Cursor;
use bytes::Bytes;
use dwell_store::{
    DeleteOptions, DeleteOutcome, Expiry, Item, Seconds, Store, StoreMode, StoreOptions,
    StoreOutcome,
};

/// Carries out a request. The store itself notifies the clients that wait for the key.
pub(crate) fn carry_out(
    store: &Store,
    order: Order,
    key: &[u8],
    value: &[u8],
    now: Seconds,
) -> Published {
    if store.is_retired() {
        return Published::Moved;
    }
    match order.act {
        Act::Put { ttl } => put(store, order.condition, ttl, key, value, now),
        Act::Delete => delete(store, order.condition, key, now),
        Act::Read => match store.get(key, now) {
            Some(item) => Published::Value(Bytes::from_owner(item.value.clone()), item.flags),
            None => Published::Missing,
        },
    }
}

fn put(
    store: &Store,
    condition: Condition,
    ttl: Option<u32>,
    key: &[u8],
    value: &[u8],
    now: Seconds,
) -> Published {
    let expiry = ttl.map_or(Expiry::NEVER, |ttl| Expiry::at(now.saturating_add(ttl)));
    let options = StoreOptions {
        expiry,
        ..StoreOptions::default()
    };
    let with = |mode, cas| {
        let options = StoreOptions {
            mode,
            cas,
            ..options
        };
        store.store(key, value, &options, now)
    };
    let (outcome, is_new) = match condition {
        Condition::None => match with(StoreMode::Add, None) {
            StoreOutcome::NotStored => (with(StoreMode::Set, None), false),
            outcome => (outcome, true),
        },
        Condition::Missing => (with(StoreMode::Add, None), true),
        Condition::Present => (with(StoreMode::Replace, None), false),
        Condition::Is(_) => match current(store, condition, key, now) {
            Some(item) => (with(StoreMode::Set, Some(item.cas)), false),
            None => return Published::Unmet,
        },
        Condition::Never => return Published::Unmet,
    };
    match outcome {
        StoreOutcome::Stored { .. } if is_new => Published::Created,
        StoreOutcome::Stored { .. } => Published::Replaced,
        StoreOutcome::NotStored | StoreOutcome::Exists | StoreOutcome::NotFound => Published::Unmet,
        StoreOutcome::TooLarge => Published::TooLarge,
        StoreOutcome::OutOfMemory => Published::NoRoom("the store has no room"),
    }
}

fn delete(store: &Store, condition: Condition, key: &[u8], now: Seconds) -> Published {
    let cas = match condition {
        Condition::None => None,
        _ => match current(store, condition, key, now) {
            Some(item) => Some(item.cas),
            None => return Published::Unmet,
        },
    };
    let options = DeleteOptions {
        cas,
        ..DeleteOptions::default()
    };
    match store.delete_with(key, &options, now) {
        DeleteOutcome::Deleted => Published::Deleted,
        _ if condition != Condition::None => Published::Unmet,
        _ => Published::Missing,
    }
}

/// The current item, if it meets the condition.
fn current(store: &Store, condition: Condition, key: &[u8], now: Seconds) -> Option<Item> {
    let item = store.get(key, now)?;
    let cursor = Cursor::of(&item.value, item.flags);
    condition.is_met(Some(cursor)).then_some(item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_store::{Notify, StoreConfig, WatcherId};

    struct Nobody;

    impl Notify for Nobody {
        fn changed(&self, _: WatcherId, _: &[u8]) {}
    }

    const NOW: Seconds = 1_700_000_000;

    fn store() -> Store {
        Store::new(&StoreConfig::default(), Box::new(Nobody))
    }

    fn put(store: &Store, condition: Condition, value: &[u8]) -> Published {
        let act = Act::Put { ttl: None };
        carry_out(store, Order { act, condition }, b"k", value, NOW)
    }

    fn delete(store: &Store, condition: Condition) -> Published {
        let act = Act::Delete;
        carry_out(store, Order { act, condition }, b"k", b"", NOW)
    }

    #[test]
    fn a_value_is_created_then_replaced_then_deleted() {
        let store = store();
        assert_eq!(put(&store, Condition::None, b"one"), Published::Created);
        assert_eq!(put(&store, Condition::None, b"two"), Published::Replaced);
        assert_eq!(&*store.get(b"k", NOW).unwrap().value, b"two");
        assert_eq!(delete(&store, Condition::None), Published::Deleted);
        assert_eq!(delete(&store, Condition::None), Published::Missing);
    }

    #[test]
    fn conditions_are_kept() {
        let store = store();
        let is = |value: &[u8]| Condition::Is(Cursor::of(value, 0));
        assert_eq!(put(&store, Condition::Present, b"one"), Published::Unmet);
        assert_eq!(put(&store, is(b"one"), b"one"), Published::Unmet);
        assert_eq!(delete(&store, Condition::Present), Published::Unmet);
        assert_eq!(put(&store, Condition::Missing, b"one"), Published::Created);
        assert_eq!(put(&store, Condition::Missing, b"one"), Published::Unmet);
        assert_eq!(put(&store, is(b"two"), b"two"), Published::Unmet);
        assert_eq!(put(&store, is(b"one"), b"two"), Published::Replaced);
        assert_eq!(put(&store, Condition::Never, b"x"), Published::Unmet);
        assert_eq!(delete(&store, Condition::Missing), Published::Unmet);
        assert_eq!(delete(&store, is(b"one")), Published::Unmet);
        assert_eq!(delete(&store, is(b"two")), Published::Deleted);
    }

    #[test]
    fn a_lifetime_ends() {
        let store = store();
        let act = Act::Put { ttl: Some(60) };
        let condition = Condition::None;
        let order = Order { act, condition };
        assert_eq!(
            carry_out(&store, order, b"k", b"v", NOW),
            Published::Created
        );
        assert!(store.get(b"k", NOW + 59).is_some());
        assert!(store.get(b"k", NOW + 60).is_none());
    }

    #[test]
    fn a_value_that_is_too_large_leaves_the_old_one_only_under_a_condition() {
        let store = store();
        assert_eq!(put(&store, Condition::None, b"one"), Published::Created);
        let large = vec![0; 2 << 20];
        assert_eq!(put(&store, Condition::Present, &large), Published::TooLarge);
        assert!(store.get(b"k", NOW).is_some());
    }
}
