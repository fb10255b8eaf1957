//! The meta commands and their flags.

use std::time::Duration;

use dwell_memcache::{
    ArithmeticMode, Client, Exptime, Lease, Leased, MetaArithmetic, MetaCounted, MetaDelete,
    MetaDeleted, MetaGet, MetaSet, MetaSetMode, StoreOutcome, Ttl,
};
use dwell_testkit::Memcached;

use crate::support::{client, patient};

fn started() -> (Memcached, Client) {
    let memcached = Memcached::start();
    let client = client(&[memcached.address()], patient());
    (memcached, client)
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_get_shows_what_it_is_asked_for() {
    let (_memcached, client) = started();
    assert_eq!(client.meta_get("a", MetaGet::default()).unwrap(), None);
    let options = MetaSet {
        flags: 7,
        exptime: MINUTE.into(),
        ..MetaSet::default()
    };
    let stored = client.meta_set("a", "value", options).unwrap();
    assert_eq!(stored.outcome, StoreOutcome::Stored);
    let everything = MetaGet {
        value: true,
        cas_unique: true,
        size: true,
        ttl: true,
        last_access: true,
        was_read: true,
        no_bump: true,
        ..MetaGet::default()
    };
    let item = client.meta_get("a", everything).unwrap().unwrap();
    assert_eq!(item.data.as_deref(), Some(&b"value"[..]));
    assert_eq!((item.flags, item.size), (Some(7), Some(5)));
    assert_eq!(item.cas_unique, stored.cas_unique);
    assert!(matches!(item.ttl, Some(Ttl::Left(left)) if left <= MINUTE));
    assert_eq!(item.was_read, Some(false));
    assert!(item.last_access.unwrap() < MINUTE);
    let nothing = MetaGet {
        value: false,
        exptime: Some(Exptime::Never),
        ttl: true,
        ..MetaGet::default()
    };
    let item = client.meta_get("a", nothing).unwrap().unwrap();
    assert_eq!((item.data, item.ttl.is_some()), (None, true));
    let item = client.meta_get("a", nothing).unwrap().unwrap();
    assert_eq!(item.ttl, Some(Ttl::Unlimited));
}

#[test]
fn a_set_has_modes_and_conditions() {
    let (_memcached, client) = started();
    let set = |value: &str, options| client.meta_set("a", value, options).unwrap();
    let mode = |mode| MetaSet {
        mode,
        ..MetaSet::default()
    };
    assert_eq!(
        set("1", mode(MetaSetMode::Replace)).outcome,
        StoreOutcome::NotStored
    );
    assert_eq!(
        set("1", mode(MetaSetMode::Add)).outcome,
        StoreOutcome::Stored
    );
    assert_eq!(
        set("1", mode(MetaSetMode::Add)).outcome,
        StoreOutcome::NotStored
    );
    assert_eq!(
        set("2", mode(MetaSetMode::Append)).outcome,
        StoreOutcome::Stored
    );
    assert_eq!(
        set("0", mode(MetaSetMode::Prepend)).outcome,
        StoreOutcome::Stored
    );
    assert_eq!(client.get("a").unwrap().unwrap().data, b"012");
    let unique = client.gets("a").unwrap().unwrap().cas_unique;
    let if_same = MetaSet {
        cas_unique: unique,
        ..MetaSet::default()
    };
    assert_eq!(set("x", if_same).outcome, StoreOutcome::Stored);
    assert_eq!(set("y", if_same).outcome, StoreOutcome::Exists);
    assert_eq!(set("y", if_same).cas_unique, None);
    let missing = client.meta_set("none", "y", if_same).unwrap();
    assert_eq!(missing.outcome, StoreOutcome::NotFound);
}

#[test]
fn numbers_are_counted() {
    let (_memcached, client) = started();
    let count = |options| client.meta_arithmetic("n", options).unwrap();
    assert_eq!(count(MetaArithmetic::default()), MetaCounted::NotFound);
    let vivify = MetaArithmetic {
        vivify: Some((10, Exptime::Never)),
        ..MetaArithmetic::default()
    };
    assert!(matches!(
        count(vivify),
        MetaCounted::Number { number: 10, .. }
    ));
    let MetaCounted::Number {
        number: 11,
        cas_unique,
    } = count(vivify)
    else {
        panic!("not counted")
    };
    let down = MetaArithmetic {
        mode: ArithmeticMode::Decrement,
        delta: 2,
        cas_unique,
        ..MetaArithmetic::default()
    };
    // 11 becomes 9, which keeps the length of 11.
    assert!(matches!(count(down), MetaCounted::Number { number: 9, .. }));
    assert_eq!(count(down), MetaCounted::Exists);
}

#[test]
fn items_are_deleted_or_marked() {
    let (_memcached, client) = started();
    let delete = |options| client.meta_delete("a", options).unwrap();
    assert_eq!(delete(MetaDelete::default()), MetaDeleted::NotFound);
    client.set("a", "1", Exptime::Never).unwrap();
    let other = MetaDelete {
        cas_unique: Some(u64::MAX),
        ..MetaDelete::default()
    };
    assert_eq!(delete(other), MetaDeleted::Exists);
    let stale = MetaDelete {
        invalidate: true,
        exptime: Some(MINUTE.into()),
        ..MetaDelete::default()
    };
    assert_eq!(delete(stale), MetaDeleted::Deleted);
    let item = client.meta_get("a", MetaGet::default()).unwrap().unwrap();
    assert!(item.is_stale && item.has_won);
    let item = client.meta_get("a", MetaGet::default()).unwrap().unwrap();
    assert!(item.is_stale && item.is_claimed && !item.has_won);
    assert_eq!(delete(MetaDelete::default()), MetaDeleted::Deleted);
    assert_eq!(client.get("a").unwrap(), None);
}

#[test]
fn one_client_makes_a_missing_item() {
    let (_memcached, client) = started();
    let lease = Lease {
        hold: MINUTE,
        recache: Duration::ZERO,
    };
    let Leased::Won {
        stale: None,
        cas_unique,
    } = client.lease("a", lease).unwrap()
    else {
        panic!("not won")
    };
    assert_eq!(
        client.lease("a", lease).unwrap(),
        Leased::Claimed { stale: None }
    );
    assert!(client.fulfil("a", "1", cas_unique, MINUTE).unwrap());
    assert!(!client.fulfil("a", "2", cas_unique, MINUTE).unwrap());
    let fresh = client.lease("a", lease).unwrap();
    assert!(
        matches!(&fresh, Leased::Fresh(value) if value.data == b"1"),
        "{fresh:?}"
    );
}

#[test]
fn one_client_makes_a_stale_or_an_ending_item_anew() {
    let (_memcached, client) = started();
    let lease = Lease {
        hold: MINUTE,
        recache: Duration::from_secs(30),
    };
    client.set("a", "1", Duration::from_secs(1000)).unwrap();
    assert!(matches!(
        client.lease("a", lease).unwrap(),
        Leased::Fresh(_)
    ));
    let invalidate = MetaDelete {
        invalidate: true,
        exptime: Some(MINUTE.into()),
        ..MetaDelete::default()
    };
    client.meta_delete("a", invalidate).unwrap();
    let won = client.lease("a", lease).unwrap();
    let Leased::Won {
        stale: Some(old),
        cas_unique,
    } = won
    else {
        panic!("{won:?}")
    };
    assert_eq!(old.data, b"1");
    let other = client.lease("a", lease).unwrap();
    assert!(matches!(&other, Leased::Claimed { stale: Some(old) } if old.data == b"1"));
    assert!(
        client
            .fulfil("a", "2", cas_unique, Duration::from_secs(20))
            .unwrap()
    );
    // Twenty seconds are fewer than thirty: one more wins, the next goes on with what there is.
    let won = client.lease("a", lease).unwrap();
    assert!(matches!(&won, Leased::Won { stale: Some(old), .. } if old.data == b"2"));
    let other = client.lease("a", lease).unwrap();
    assert!(
        matches!(&other, Leased::Fresh(value) if value.data == b"2"),
        "{other:?}"
    );
}
