//! The common memory, with the time given.

use super::super::super::ask::Method;
use super::*;
use dwell_testkit::start;
use proptest::prelude::*;
use std::collections::HashMap;

const NAME: &[u8] = b"/poll/a";
const GET: Variant = Variant {
    method: Method::Get,
    digest: 1,
};
const POST: Variant = Variant {
    method: Method::Post,
    digest: 1,
};
const SECOND: Duration = Duration::from_secs(1);

fn note(memory: &Memory, name: &[u8], value: &[u8], now: Instant) {
    let value = NewValue {
        bytes: value,
        shared: None,
        flags: 0,
        cursor: Cursor::of(value, 0),
        freshness: Freshness::default(),
        of: None,
    };
    memory.note(name, &value, now);
}

fn known(memory: &Memory, name: &[u8], now: Instant) -> Option<Vec<u8>> {
    let known = memory.last_known(name, 1, now)?;
    Some(known.body.to_vec())
}

fn follower(of_loop: usize) -> LoopFetch {
    let fetch = FetchId::nth(7);
    LoopFetch { of_loop, fetch }
}

#[test]
fn one_asks_and_the_others_follow() {
    let memory = Memory::new(0);
    assert!(matches!(memory.begin(NAME, GET, follower(0)), Role::Leader));
    assert!(matches!(
        memory.begin(NAME, GET, follower(1)),
        Role::Follower(leader) if leader == follower(0)
    ));
    assert!(matches!(
        memory.begin(NAME, GET, follower(2)),
        Role::Follower(leader) if leader == follower(0)
    ));
    // Another method is another question.
    assert!(matches!(
        memory.begin(NAME, POST, follower(1)),
        Role::Leader
    ));
    assert!(memory.is_asked(NAME, GET));
    assert_eq!(memory.end(NAME, GET), [follower(1), follower(2)]);
    assert!(!memory.is_asked(NAME, GET));
    assert_eq!(memory.end(NAME, POST), []);
    assert_eq!(memory.end(NAME, POST), []);
    assert!(lock(&memory.shards[0]).entries.is_empty());
}

#[test]
fn a_verdict_counts_until_its_time_and_for_its_method() {
    let memory = Memory::new(0);
    let now = start();
    let verdict = Err(UpstreamError::Closed);
    memory.refuse(NAME, GET, verdict, now + SECOND, now);
    assert!(memory.verdict(NAME, GET, now).is_some());
    assert!(memory.verdict(NAME, POST, now).is_none());
    assert!(memory.verdict(NAME, GET, now + SECOND).is_none());
    assert!(memory.verdict(NAME, GET, now).is_none());
}

#[test]
fn verdicts_are_bounded_and_old_ones_make_room() {
    let memory = Memory::new(0);
    let now = start();
    let refuse = |number: usize, now: Instant| {
        let verdict = Err(UpstreamError::Closed);
        let name = number.to_string();
        memory.refuse(name.as_bytes(), GET, verdict, now + SECOND, now);
    };
    let entries = || {
        memory
            .shards
            .iter()
            .map(|shard| lock(shard).entries.len())
            .sum::<usize>()
    };
    for number in 0..2 * SHARDS * VERDICTS_MAX {
        refuse(number, now);
    }
    assert_eq!(entries(), SHARDS * VERDICTS_MAX);
    for number in 0..2 * SHARDS * VERDICTS_MAX {
        refuse(number, now + SECOND);
    }
    assert_eq!(entries(), SHARDS * VERDICTS_MAX);
    assert!(memory.verdict(b"0", GET, now + SECOND).is_some());
}

#[test]
fn the_last_value_is_known_with_the_time_it_has_been_stale() {
    let memory = Memory::new(1 << 20);
    let now = start();
    note(&memory, NAME, b"one", now);
    note(&memory, NAME, b"two", now + SECOND);
    let known = memory.last_known(NAME, 1, now + 3 * SECOND).unwrap();
    assert_eq!(
        (&known.body[..], known.staleness),
        (&b"two"[..], 2 * SECOND)
    );
    memory.forget(NAME);
    assert!(memory.last_known(NAME, 1, now).is_none());
}

#[test]
fn an_answer_is_known_to_those_who_ask_the_same() {
    let memory = Memory::new(1 << 20);
    let now = start();
    let value = NewValue {
        of: Some(2),
        shared: Some(&Bytes::from_static(b"made")),
        bytes: b"made",
        flags: 0,
        cursor: Cursor::of(b"made", 0),
        freshness: Freshness::default(),
    };
    memory.note(NAME, &value, now);
    assert!(memory.last_known(NAME, 1, now).is_none());
    assert!(memory.last_known(NAME, 2, now).is_some());
    // That there is none for one says nothing of the other.
    memory.forget_of(NAME, 1);
    assert!(memory.last_known(NAME, 2, now).is_some());
    // The same bytes for another are another's.
    let of_another = NewValue {
        of: Some(1),
        ..value
    };
    memory.note(NAME, &of_another, now);
    assert!(memory.last_known(NAME, 1, now).is_some());
    memory.forget_of(NAME, 1);
    assert!(memory.last_known(NAME, 1, now).is_none());
    note(&memory, NAME, b"cached", now);
    assert!(memory.last_known(NAME, 1, now).is_some());
}

#[test]
fn a_value_that_is_asked_for_outlasts_those_that_are_not() {
    let memory = Memory::new(SHARDS * 4096);
    let now = start();
    for number in 0..2000 {
        note(&memory, number.to_string().as_bytes(), b"value", now);
        assert!(
            number == 0 || known(&memory, b"0", now).is_some(),
            "{number}"
        );
    }
    assert!(memory.bytes() <= SHARDS * 4096);
    assert!(known(&memory, b"1", now).is_none());
}

#[test]
fn what_is_too_large_is_not_kept_and_does_not_leave_an_older_value() {
    let memory = Memory::new(SHARDS * 4096);
    let now = start();
    note(&memory, NAME, b"small", now);
    note(&memory, NAME, &[0; 4096], now);
    assert!(known(&memory, NAME, now).is_none());
    let nothing = Memory::new(0);
    note(&nothing, NAME, b"small", now);
    assert!(!nothing.keeps_values() && known(&nothing, NAME, now).is_none());
}

/// An act on a key of the memory.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// It has a value of so many bytes now.
    Note(usize),
    /// It has none.
    Forget,
    /// It is asked for.
    Ask,
}

const KEYS: usize = 10;
const SHARD_BYTES: usize = 4096;

fn act() -> impl Strategy<Value = (usize, Act)> {
    let drawn = (0..KEYS, 0..8_u8, 0_usize..1900);
    drawn.prop_map(|(key, kind, length)| match kind {
        0..4 => (key, Act::Note(length)),
        4 => (key, Act::Forget),
        _ => (key, Act::Ask),
    })
}

/// Names of one shard, so that they have to make room for one another.
fn names_of_a_shard(memory: &Memory) -> Vec<[u8; 2]> {
    let names = (0..=u16::MAX).map(u16::to_be_bytes);
    let first = memory.hasher.hash_one(&[0_u8, 0][..]) as usize % SHARDS;
    let is_there = |name: &[u8; 2]| memory.hasher.hash_one(&name[..]) as usize % SHARDS == first;
    names.filter(is_there).take(KEYS).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever is noted and forgotten: a value that is known is the newest one, the bytes stay
    /// within their bound, and the count of them is right.
    #[test]
    fn it_agrees_with_a_plain_table(acts in prop::collection::vec(act(), 0..80)) {
        let memory = Memory::new(SHARDS * SHARD_BYTES);
        let (names, now) = (names_of_a_shard(&memory), start());
        let mut table: HashMap<usize, Vec<u8>> = HashMap::new();
        let agrees = |table: &HashMap<usize, Vec<u8>>, key: usize| {
            let value = known(&memory, &names[key], now);
            value.is_none() || value.as_ref() == table.get(&key)
        };
        for (place, (key, act)) in acts.into_iter().enumerate() {
            match act {
                Act::Note(length) => {
                    let value = vec![place as u8; length];
                    note(&memory, &names[key], &value, now);
                    table.insert(key, value);
                }
                Act::Forget => {
                    memory.forget(&names[key]);
                    table.remove(&key);
                }
                Act::Ask => prop_assert!(agrees(&table, key)),
            }
            let shard = memory.shard(&names[key]);
            let listed = shard.entries.iter().filter(|(_, entry)| entry.is_listed);
            let bytes: usize = listed.map(|(name, entry)| {
                let value = entry.value.as_ref();
                overhead(name) + value.map_or(0, |value| value.body.len())
            }).sum();
            prop_assert_eq!(bytes, shard.bytes);
            prop_assert!(bytes <= SHARD_BYTES);
            prop_assert_eq!(shard.order.len(), shard.entries.len());
        }
        prop_assert!((0..KEYS).all(|key| agrees(&table, key)));
    }
}
