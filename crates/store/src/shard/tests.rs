//! The account of a shard against a count of everything in it.

use proptest::prelude::*;

use super::*;
use crate::options::{DeleteOptions, StoreOptions, StoreOutcome};
use crate::record::Place;
use crate::table::Table;

/// A hash that collides often, in the low bits and entirely.
fn hash(key: u16) -> u32 {
    u32::from(key % 97) << 3
}

fn check(shard: &Shard) -> Result<(), TestCaseError> {
    let mut bytes = [0, 0];
    let mut items = [0, 0];
    let segments = shard.items.records.in_order();
    for at in segments.flat_map(|segment| shard.items.records.iter_in(segment)) {
        let entry = shard.items.entry(at);
        let is_main = entry.tag.place() == Place::Main;
        bytes[usize::from(is_main)] += shard.items.item_bytes(at) - Table::ITEM_BYTES;
        items[usize::from(is_main)] += 1;
        prop_assert_eq!(shard.items.find(entry.hash, entry.key()), Some(at));
    }
    for (index, queue) in [
        (0, &shard.items.records.small),
        (1, &shard.items.records.main),
    ] {
        prop_assert_eq!((queue.bytes, queue.items), (bytes[index], items[index]));
    }
    prop_assert!(shard.bytes() <= shard.bytes_max());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_account_is_the_sum_of_what_is_there(
        evicts in any::<bool>(),
        commands in prop::collection::vec((0_u16..300, 0_u8..8, 0_usize..1500), 1..400),
    ) {
        let versions = AtomicU64::new(0);
        let mut changes = Changes::default();
        let mut shard = Shard::new(40_000, 1 << 20, evicts);
        for (key, kind, size) in commands {
            let name = key.to_be_bytes();
            let mut call = Call {
                key: &name,
                hash: hash(key),
                now: 100,
                versions: &versions,
                changes: &mut changes,
            };
            match kind {
                0 => drop(shard.delete(&DeleteOptions::default(), &mut call)),
                1 => drop(shard.get(None, &mut call)),
                2 => {
                    let bytes_max = 20_000 + size * 20;
                    while !shard.approach_bytes_max(bytes_max, 100, &mut changes) {}
                }
                _ => {
                    let expiry = Expiry::at(if kind == 3 { 101 } else { 1000 });
                    let options = StoreOptions { expiry, ..StoreOptions::default() };
                    let value = vec![0; if kind < 6 { size / 30 } else { size }];
                    shard.store(&value, None, &options, &mut call);
                }
            }
            if size % 50 == 0 {
                shard.sweep(101, 1000, &mut changes);
            }
            check(&shard)?;
        }
    }
}

/// The items that one command moved or removed, at most, of `count` commands.
fn work_max(
    shard: &mut Shard,
    count: u32,
    mut command: impl FnMut(&mut Shard, u32, &AtomicU64, &mut Changes),
) -> usize {
    let versions = AtomicU64::new(0);
    let done = |shard: &Shard| {
        let removed = shard.statistics.evictions + shard.statistics.reclaimed;
        shard.items.moves + removed as usize
    };
    let works = (0..count).map(|number| {
        let before = done(shard);
        command(shard, number, &versions, &mut Changes::default());
        done(shard) - before
    });
    works.max().unwrap_or(0)
}

fn on_key<R>(
    shard: &mut Shard,
    number: u32,
    versions: &AtomicU64,
    changes: &mut Changes,
    command: impl FnOnce(&mut Shard, &mut Call<'_>) -> R,
) -> R {
    let key = number.to_be_bytes();
    let mut call = Call {
        key: &key,
        hash: number.wrapping_mul(0x9e37_79b1),
        now: 100,
        versions,
        changes,
    };
    command(shard, &mut call)
}

fn set(shard: &mut Shard, len: usize, call: &mut Call<'_>) -> StoreOutcome {
    shard.store(&vec![b'v'; len], None, &StoreOptions::default(), call)
}

const BYTES_MAX: usize = 2 << 20;

/// The items of a segment, at most.
const SEGMENT_ITEMS_MAX: usize = BYTES_MAX / 256 / 36;

/// A shard full of small items, each of which has been used as often as is counted.
fn full_of_used(evicts: bool) -> Shard {
    let mut shard = Shard::new(BYTES_MAX, 1 << 20, evicts);
    work_max(&mut shard, 50_000, |shard, number, versions, changes| {
        on_key(shard, number, versions, changes, |shard, call| {
            set(shard, 0, call);
            if let Some(at) = shard.find(call) {
                (0..3).for_each(|_| shard.items.bump(at));
            }
        });
    });
    shard
}

#[test]
fn a_command_moves_and_evicts_no_more_than_so_many_items() {
    // What is moved, and what goes to make room for a segment.
    let bound = PASSES_OF_COMMAND_MAX + (1 + CLEANS_MAX) * SEGMENT_ITEMS_MAX;
    let displace = |shard: &mut Shard, name: fn(u32) -> u32| {
        work_max(shard, 50_000, |shard, number, versions, changes| {
            on_key(shard, name(number), versions, changes, |shard, call| {
                set(shard, 900, call)
            });
        })
    };
    // Items that all earn more rounds, displaced by ones 20 times as large, new and old.
    let new = displace(&mut full_of_used(true), |number| number + 1_000_000);
    let grown = displace(&mut full_of_used(true), |number| number * 7919 % 50_000);
    // Gaps everywhere.
    let mut shard = full_of_used(true);
    let cleaned = work_max(&mut shard, 50_000, |shard, number, versions, changes| {
        on_key(shard, number * 3, versions, changes, |shard, call| {
            shard.delete(&DeleteOptions::default(), call)
        });
        let number = number + 1_000_000;
        on_key(shard, number, versions, changes, |shard, call| {
            set(shard, number as usize % 100, call)
        });
    });
    assert!(
        new.max(grown).max(cleaned) <= bound,
        "{new} {grown} {cleaned}"
    );
}

#[test]
fn a_store_that_is_refused_moves_nothing_when_nothing_is_won_by_it() {
    let mut shard = full_of_used(false);
    // Neither an entry of the table is missing then, nor is there an end to fill.
    work_max(&mut shard, 40, |shard, number, versions, changes| {
        on_key(shard, number + 10_000, versions, changes, |shard, call| {
            shard.delete(&DeleteOptions::default(), call)
        });
    });
    work_max(&mut shard, 100, |shard, number, versions, changes| {
        on_key(
            shard,
            number + 2_000_000,
            versions,
            changes,
            |shard, call| set(shard, 900, call),
        );
    });
    let refused = work_max(&mut shard, 100, |shard, number, versions, changes| {
        on_key(shard, number * 400 + 1, versions, changes, |shard, call| {
            shard.delete(&DeleteOptions::default(), call);
        });
        let outcome = on_key(
            shard,
            number + 1_000_000,
            versions,
            changes,
            |shard, call| set(shard, 900, call),
        );
        assert_eq!(outcome, StoreOutcome::OutOfMemory);
    });
    assert_eq!(refused, 0);
}

#[test]
fn no_item_is_longer_than_a_run_can_be() {
    let shard = Shard::new(usize::MAX / 4, usize::MAX / 8, true);
    assert!(shard.fits(10, 1 << 30));
    assert!(!shard.fits(10, i32::MAX as usize) && !shard.fits(10, 5 << 30));
}
