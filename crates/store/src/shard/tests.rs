//! The account of a shard against a count of everything in it.

use proptest::prelude::*;

use super::*;
use crate::options::{DeleteOptions, StoreOptions};
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
        commands in prop::collection::vec((0_u16..300, 0_u8..8, 0_usize..1500), 1..400),
    ) {
        let versions = AtomicU64::new(0);
        let mut changes = Changes::default();
        let mut shard = Shard::new(40_000, 1 << 20, true);
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
                2 => shard.set_bytes_max(20_000 + size * 20, 100, &mut changes),
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
