//! The memory of items against a naive twin: a map from keys to what was stored.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::segments::Sweep;

const BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Debug)]
enum Step {
    Put {
        key: u8,
        value_len: usize,
        marks: u8,
    },
    Remove {
        key: u8,
    },
    Relocate {
        key: u8,
        is_main: bool,
    },
    Touch {
        key: u8,
        expiry: u32,
        cas: u64,
    },
    Clean {
        with_ends: bool,
    },
    Evict,
    Sweep {
        records: usize,
    },
    GiveBack,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![6 => 0..80_usize, 3 => 0..1000_usize, 1 => 0..5000_usize];
    let step = prop_oneof![
        12 => (any::<u8>(), len, prop_oneof![Just(0), Just(mark::FILLED)])
            .prop_map(|(key, value_len, marks)| Step::Put { key, value_len, marks }),
        3 => any::<u8>().prop_map(|key| Step::Remove { key }),
        3 => (any::<u8>(), any::<bool>())
            .prop_map(|(key, is_main)| Step::Relocate { key, is_main }),
        2 => (any::<u8>(), any::<u32>(), any::<u64>())
            .prop_map(|(key, expiry, cas)| Step::Touch { key, expiry, cas }),
        2 => any::<bool>().prop_map(|with_ends| Step::Clean { with_ends }),
        2 => Just(Step::Evict),
        1 => (0..50_usize).prop_map(|records| Step::Sweep { records }),
        1 => Just(Step::GiveBack),
    ];
    prop::collection::vec(step, 1..600)
}

/// A hash that collides often, in the low bits and entirely.
fn hash_of(key: &[u8]) -> u32 {
    u32::from(key[0] % 97) << 5 | 1
}

/// What the twin knows of an item: its value, flags, expiry and version.
type Known = (Vec<u8>, u32, u32, u64);

#[derive(Debug)]
struct Pair {
    items: Items,
    twin: BTreeMap<Vec<u8>, Known>,
    count: u64,
}

impl Pair {
    fn run(&mut self, step: &Step) {
        match *step {
            Step::Put {
                key,
                value_len,
                marks,
            } => self.put(key, value_len, marks),
            Step::Remove { key } => {
                if let Some(at) = self.find(key) {
                    self.items.remove(at);
                }
                self.twin.remove(&name(key));
            }
            Step::Relocate { key, is_main } => {
                if let Some(at) = self.find(key) {
                    let place = if is_main { Place::Main } else { Place::Small };
                    self.items.relocate(at, place, 1);
                }
            }
            Step::Touch { key, expiry, cas } => {
                let Some(at) = self.find(key) else { return };
                self.items.set_expiry(at, Expiry::from_word(expiry));
                self.items.set_cas(at, cas);
                self.items.bump_read(at, 9);
                if let Some(known) = self.twin.get_mut(&name(key)) {
                    (known.2, known.3) = (expiry, cas);
                }
            }
            Step::Clean { with_ends } => drop(self.items.clean(with_ends)),
            Step::Evict => {
                if let Some(at) = self.items.victim(0, &mut 128) {
                    self.twin.remove(self.items.entry(at).key());
                    self.items.remove(at);
                }
            }
            Step::Sweep { records } => {
                let mut sweep = Sweep::new(records);
                while let Some(at) = self.items.records.sweep(&mut sweep) {
                    assert!(self.twin.contains_key(self.items.entry(at).key()));
                }
            }
            Step::GiveBack => drop(self.items.records.give_back_empty()),
        }
    }

    fn find(&self, key: u8) -> Option<u32> {
        let name = name(key);
        self.items.find(hash_of(&name), &name)
    }

    fn put(&mut self, key: u8, value_len: usize, marks: u8) {
        self.count += 1;
        let name = name(key);
        let hash = hash_of(&name);
        let value: Vec<u8> = (0..value_len)
            .map(|at| at as u8 ^ self.count as u8)
            .collect();
        let (head, tail) = value.split_at(value_len / 3);
        let (flags, cas) = (self.count as u32, self.count << 30);
        let write = Write {
            head,
            tail,
            ..Write::empty(flags, Expiry::NEVER, marks, cas)
        };
        let existing = self.items.find(hash, &name);
        let demand = self.items.demand(existing, hash, name.len() + value_len);
        let before = self.items.bytes();
        if before + demand > BYTES_MAX {
            return;
        }
        match existing {
            Some(at) => self.items.overwrite(at, &name, hash, write, 7),
            None => self.items.insert(&name, hash, write, 7),
        }
        // What was asked for is enough; giving back can make it less.
        assert!(self.items.bytes() <= before + demand);
        self.twin.insert(name, (value, flags, 0, cas));
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert!(self.items.bytes() <= BYTES_MAX);
        prop_assert_eq!(self.items.len(), self.twin.len());
        let (mut bytes, mut filled_bytes) = ([0; 2], 0);
        let mut taken = Vec::new();
        let segments = self.items.records.in_order();
        for at in segments.flat_map(|segment| self.items.records.iter_in(segment)) {
            let entry = self.items.entry(at);
            let is_main = entry.tag.place() == Place::Main;
            let known = (
                entry.value().to_vec(),
                entry.flags,
                entry.expiry.word(),
                entry.cas,
            );
            prop_assert_eq!(Some(&known), self.twin.get(entry.key()));
            prop_assert_eq!(self.items.find(entry.hash, entry.key()), Some(at));
            bytes[usize::from(is_main)] += self.items.item_bytes(at) - Table::ITEM_BYTES;
            if entry.has(mark::FILLED) {
                filled_bytes += self.items.item_bytes(at) - Table::ITEM_BYTES;
            }
            taken.push(at..at + entry.tag.units());
        }
        taken.sort_by_key(|units| units.start);
        let overlap = taken.windows(2).find(|pair| pair[0].end > pair[1].start);
        prop_assert_eq!(overlap, None);
        let queues = [&self.items.records.small, &self.items.records.main];
        prop_assert_eq!(queues.map(|queue| queue.bytes), bytes);
        prop_assert_eq!(self.items.filled_bytes(), filled_bytes);
        self.items.records.check();
        prop_assert_eq!(self.items.table.count(&self.items.records), self.twin.len());
        Ok(())
    }
}

/// A key of one byte, or of many.
fn name(key: u8) -> Vec<u8> {
    vec![key; if key.is_multiple_of(16) { 200 } else { 1 }]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn items_lie_side_by_side_and_every_byte_is_accounted_for(steps in steps()) {
        let items = Items::new(BYTES_MAX);
        let mut pair = Pair { items, twin: BTreeMap::new(), count: 0 };
        for step in &steps {
            pair.run(step);
            pair.check()?;
        }
        // Everything is given back but the first page of the table and the tables of tables.
        for key in 0..=u8::MAX {
            pair.run(&Step::Remove { key });
        }
        pair.items.records.give_back_empty();
        pair.check()?;
        prop_assert_eq!(pair.items.records.gap_bytes(), 0);
        prop_assert!(pair.items.bytes() <= 16 << 10, "{}", pair.items.bytes());
    }
}

#[test]
fn the_table_grows_and_shrinks_with_its_items() {
    let mut items = Items::new(16 << 20);
    let hash_of = |number: u32| number.wrapping_mul(0x9e37_79b1);
    let mut there = 0_u32;
    for wanted in [9000, 700, 20_000, 3000, 3300, 2600, 20_000, 0] {
        while there < wanted {
            let write = Write::empty(0, Expiry::NEVER, 0, 1);
            items.insert(&there.to_le_bytes(), hash_of(there), write, 7);
            there += 1;
        }
        while there > wanted {
            there -= 1;
            let key = there.to_le_bytes();
            let at = items.find(hash_of(there), &key).unwrap();
            items.remove(at);
        }
        assert_eq!(items.table.count(&items.records), there as usize);
        let least = there as usize * Table::ITEM_BYTES;
        let bytes = items.table.bytes();
        assert!(
            (least..least * 9 / 8 + (8 << 10)).contains(&bytes),
            "{bytes} bytes for {there}"
        );
    }
}

#[test]
fn what_was_dropped_is_remembered_while_the_table_grows_and_shrinks() {
    let mut items = Items::new(16 << 20);
    let hash_of = |number: u32| number.wrapping_mul(0x9e37_79b1) | 1;
    let insert = |items: &mut Items, number: u32| {
        let write = Write::empty(0, Expiry::NEVER, 0, 1);
        items.insert(&number.to_le_bytes(), hash_of(number), write, 7);
    };
    insert(&mut items, 0);
    items.table.remember(hash_of(77_777));
    for number in 1..5000 {
        insert(&mut items, number);
    }
    assert!(items.table.remembers(hash_of(77_777)));
    for number in 0..5000 {
        let at = items.find(hash_of(number), &number.to_le_bytes()).unwrap();
        items.remove(at);
    }
    assert!(items.table.remembers(hash_of(77_777)));
    items.table.forget(hash_of(77_777));
    assert!(!items.table.remembers(hash_of(77_777)));
}
