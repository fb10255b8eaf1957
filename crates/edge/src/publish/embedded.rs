//! Requests of publishers that the embedded store carries out.

use super::{Operation, Precondition, PublishRequest, PublishResult};
use crate::cursor::Cursor;
use bytes::Bytes;
use dwell_store::{
    DeleteOptions, DeleteOutcome, Expiry, Item, Seconds, Store, StoreMode, StoreOptions,
    StoreOutcome,
};

/// Carries out a request. The store itself notifies the clients that wait for the key.
pub(crate) fn carry_out(
    store: &Store,
    request: PublishRequest,
    key: &[u8],
    value: &[u8],
    now: Seconds,
) -> PublishResult {
    if store.is_retired() {
        return PublishResult::Moved;
    }
    match request.act {
        Operation::Put { ttl } => put(store, request.condition, ttl, key, value, now),
        Operation::Delete => delete(store, request.condition, key, now),
        Operation::Read => match store.get(key, now) {
            Some(item) => PublishResult::Value(Bytes::from_owner(item.value.clone()), item.flags),
            None => PublishResult::Missing,
        },
    }
}

fn put(
    store: &Store,
    condition: Precondition,
    ttl: Option<u32>,
    key: &[u8],
    value: &[u8],
    now: Seconds,
) -> PublishResult {
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
        Precondition::None => match with(StoreMode::Add, None) {
            StoreOutcome::NotStored => (with(StoreMode::Set, None), false),
            outcome => (outcome, true),
        },
        Precondition::Missing => (with(StoreMode::Add, None), true),
        Precondition::Present => (with(StoreMode::Replace, None), false),
        Precondition::Is(_) => match current(store, condition, key, now) {
            Some(item) => (with(StoreMode::Set, Some(item.cas)), false),
            None => return PublishResult::Unmet,
        },
        Precondition::Never => return PublishResult::Unmet,
    };
    match outcome {
        StoreOutcome::Stored { .. } if is_new => PublishResult::Created,
        StoreOutcome::Stored { .. } => PublishResult::Replaced,
        StoreOutcome::NotStored | StoreOutcome::Exists | StoreOutcome::NotFound => {
            PublishResult::Unmet
        }
        StoreOutcome::TooLarge => PublishResult::TooLarge,
        StoreOutcome::OutOfMemory => PublishResult::NoRoom("the store has no room"),
    }
}

fn delete(store: &Store, condition: Precondition, key: &[u8], now: Seconds) -> PublishResult {
    let cas = match condition {
        Precondition::None => None,
        _ => match current(store, condition, key, now) {
            Some(item) => Some(item.cas),
            None => return PublishResult::Unmet,
        },
    };
    let options = DeleteOptions {
        cas,
        ..DeleteOptions::default()
    };
    match store.delete_with(key, &options, now) {
        DeleteOutcome::Deleted => PublishResult::Deleted,
        _ if condition != Precondition::None => PublishResult::Unmet,
        _ => PublishResult::Missing,
    }
}

/// The current item, if it meets the condition.
fn current(store: &Store, condition: Precondition, key: &[u8], now: Seconds) -> Option<Item> {
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

    fn put(store: &Store, condition: Precondition, value: &[u8]) -> PublishResult {
        let act = Operation::Put { ttl: None };
        carry_out(store, PublishRequest::new(act, condition), b"k", value, NOW)
    }

    fn delete(store: &Store, condition: Precondition) -> PublishResult {
        let act = Operation::Delete;
        carry_out(store, PublishRequest::new(act, condition), b"k", b"", NOW)
    }

    #[test]
    fn a_value_is_created_then_replaced_then_deleted() {
        let store = store();
        assert_eq!(
            put(&store, Precondition::None, b"one"),
            PublishResult::Created
        );
        assert_eq!(
            put(&store, Precondition::None, b"two"),
            PublishResult::Replaced
        );
        assert_eq!(&*store.get(b"k", NOW).unwrap().value, b"two");
        assert_eq!(delete(&store, Precondition::None), PublishResult::Deleted);
        assert_eq!(delete(&store, Precondition::None), PublishResult::Missing);
    }

    #[test]
    fn conditions_are_kept() {
        let store = store();
        let is = |value: &[u8]| Precondition::Is(Cursor::of(value, 0));
        assert_eq!(
            put(&store, Precondition::Present, b"one"),
            PublishResult::Unmet
        );
        assert_eq!(put(&store, is(b"one"), b"one"), PublishResult::Unmet);
        assert_eq!(delete(&store, Precondition::Present), PublishResult::Unmet);
        assert_eq!(
            put(&store, Precondition::Missing, b"one"),
            PublishResult::Created
        );
        assert_eq!(
            put(&store, Precondition::Missing, b"one"),
            PublishResult::Unmet
        );
        assert_eq!(put(&store, is(b"two"), b"two"), PublishResult::Unmet);
        assert_eq!(put(&store, is(b"one"), b"two"), PublishResult::Replaced);
        assert_eq!(put(&store, Precondition::Never, b"x"), PublishResult::Unmet);
        assert_eq!(delete(&store, Precondition::Missing), PublishResult::Unmet);
        assert_eq!(delete(&store, is(b"one")), PublishResult::Unmet);
        assert_eq!(delete(&store, is(b"two")), PublishResult::Deleted);
    }

    #[test]
    fn a_lifetime_ends() {
        let store = store();
        let act = Operation::Put { ttl: Some(60) };
        let condition = Precondition::None;
        let request = PublishRequest::new(act, condition);
        assert_eq!(
            carry_out(&store, request, b"k", b"v", NOW),
            PublishResult::Created
        );
        assert!(store.get(b"k", NOW + 59).is_some());
        assert!(store.get(b"k", NOW + 60).is_none());
    }

    #[test]
    fn a_value_that_is_too_large_leaves_the_old_one_only_under_a_condition() {
        let store = store();
        assert_eq!(
            put(&store, Precondition::None, b"one"),
            PublishResult::Created
        );
        let large = vec![0; 2 << 20];
        assert_eq!(
            put(&store, Precondition::Present, &large),
            PublishResult::TooLarge
        );
        assert!(store.get(b"k", NOW).is_some());
    }
}
