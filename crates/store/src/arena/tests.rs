//! The arena against a twin: a list of runs, each with the bytes that were written to it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Runs of up to half of it are taken.
const BYTES_MAX: usize = 256 << 10;

const LEN_MAX: usize = BYTES_MAX / 2;

/// Miri takes a thousand times as long.
const CASES: u32 = if cfg!(miri) { 4 } else { 48 };
const STEPS: usize = if cfg!(miri) { 40 } else { 200 };

#[derive(Clone, Debug)]
enum Step {
    Take {
        len: usize,
    },
    TakeShared {
        len: usize,
    },
    /// Frees one of those that are there.
    Free {
        which: usize,
    },
    /// Frees one that a reader still has, who drops it at some other step.
    FreeHeld {
        which: usize,
    },
    Drop {
        which: usize,
    },
    Trim,
    Sweep,
    /// Frees all.
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = || {
        prop_oneof![
            4 => 1..200_usize,
            4 => 1000..5000_usize,
            1 => 1..LEN_MAX,
        ]
    };
    let which = any::<usize>;
    let step = prop_oneof![
        8 => len().prop_map(|len| Step::Take { len }),
        8 => len().prop_map(|len| Step::TakeShared { len }),
        10 => which().prop_map(|which| Step::Free { which }),
        3 => which().prop_map(|which| Step::FreeHeld { which }),
        3 => which().prop_map(|which| Step::Drop { which }),
        2 => Just(Step::Trim),
        1 => Just(Step::Sweep),
        1 => Just(Step::Clear),
    ];
    prop::collection::vec(step, 1..STEPS)
}

#[derive(Debug)]
enum Taken {
    Own(Run),
    Shared(SharedRun),
}

impl Taken {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(run) => run,
            Self::Shared(run) => run,
        }
    }

    /// The bytes in the arena, those of the count included.
    fn bytes_max(&self) -> usize {
        match self {
            Self::Own(run) => Arena::run_bytes(run.len()),
            Self::Shared(run) => Arena::run_bytes(Arena::shared_len(run.len())),
        }
    }
}

#[derive(Debug)]
struct Pair {
    arena: Arena,
    taken: Vec<(u8, Taken)>,
    held: Vec<(u8, SharedRun)>,
    count: u8,
}

impl Pair {
    fn new() -> Self {
        Self {
            arena: Arena::new(BYTES_MAX),
            taken: Vec::new(),
            held: Vec::new(),
            count: 0,
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Take { len } => {
                let before = self.arena.bytes();
                let demand = self.arena.demand(len);
                let mut run = self.arena.take(len);
                assert_eq!(run.len(), len);
                assert!(self.arena.bytes() <= before + demand);
                let resident = self.arena.pages_live + self.arena.pages_spare;
                let pages_max = self.arena.pages_max().max(self.arena.pages_live);
                assert!(resident <= pages_max);
                self.count = self.count.wrapping_add(1);
                run.fill(self.count);
                self.taken.push((self.count, Taken::Own(run)));
            }
            Step::TakeShared { len } => {
                self.count = self.count.wrapping_add(1);
                let bytes = vec![self.count; len];
                let run = self.arena.take_shared(len);
                let run = run.filled(&[&bytes[..len / 3], &bytes[len / 3..]]);
                assert_eq!(run.len(), len);
                assert!(self.arena.charge(&run));
                self.taken.push((self.count, Taken::Shared(run)));
            }
            Step::Free { which } => {
                if let Some((_, taken)) = some_of(&mut self.taken, which) {
                    self.free(taken);
                }
            }
            Step::FreeHeld { which } => {
                if let Some((byte, taken)) = some_of(&mut self.taken, which) {
                    if let Taken::Shared(run) = &taken {
                        self.held.push((byte, run.clone()));
                    }
                    self.free(taken);
                }
            }
            Step::Drop { which } => drop(some_of(&mut self.held, which)),
            Step::Trim => {
                self.arena.trim();
                assert!(self.arena.pages_spare <= self.arena.spare_pages_max());
            }
            Step::Sweep => self.arena.sweep(),
            Step::Clear => self.clear(),
        }
    }

    fn free(&mut self, taken: Taken) {
        match taken {
            Taken::Own(run) => self.arena.free(run),
            Taken::Shared(run) => self.arena.free_shared(run),
        }
    }

    fn clear(&mut self) {
        self.held.clear();
        while let Some((_, taken)) = self.taken.pop() {
            self.free(taken);
        }
    }

    /// Every run has the bytes that were written to it, and every count is what it is again.
    fn check(&self) -> Result<(), TestCaseError> {
        let mut ranges = BTreeMap::new();
        let taken = self.taken.iter().map(|(byte, taken)| (byte, taken.bytes()));
        let held = self.held.iter().map(|(byte, run)| (byte, &**run));
        for (byte, bytes) in taken.chain(held) {
            prop_assert!(bytes.iter().all(|there| there == byte));
            let start = bytes.as_ptr().addr();
            ranges.insert(start, start + bytes.len());
        }
        prop_assert_eq!(ranges.len(), self.taken.len() + self.held.len());
        let ends = ranges.values();
        let overlap = ends
            .zip(ranges.keys().skip(1))
            .find(|(end, next)| end > next);
        prop_assert_eq!(overlap, None);

        let charged: usize = self.taken.iter().map(|(_, taken)| taken.bytes_max()).sum();
        prop_assert_eq!(self.arena.units_charged * UNIT_BYTES, charged);
        let (mut units, mut live, mut spare) = (0, 0, 0);
        for space in &self.arena.spaces {
            let words = space.region.words();
            let set = |word: &u64| word.count_ones() as usize;
            units += words.iter().map(set).sum::<usize>();
            let pages = words.iter().filter(|&&word| word != 0).count();
            prop_assert_eq!(space.pages.live, pages);
            live += pages;
            spare += space.pages.spare_count();
            let is_both = |page: usize| words[page] != 0 && space.pages.is_spare(page);
            prop_assert!(!(0..words.len()).any(is_both));
            let tree = |word: &dyn Fn(usize) -> u64| {
                let mut tree = FreeTree::new(words.len());
                tree.update(word, 0, words.len() * PAGE_UNITS);
                tree
            };
            prop_assert!(space.pages.free == tree(&|page| words[page]));
            let near = near_words(words, &space.pages.spare);
            prop_assert!(space.pages.near == tree(&near));
        }
        let counts = (
            self.arena.units_live,
            self.arena.pages_live,
            self.arena.pages_spare,
        );
        prop_assert_eq!((units, live, spare), counts);
        prop_assert!(units * UNIT_BYTES >= charged);
        Ok(())
    }
}

fn some_of<T>(list: &mut Vec<T>, which: usize) -> Option<T> {
    let index = which.checked_rem(list.len())?;
    Some(list.swap_remove(index))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn runs_lie_side_by_side_and_every_page_is_accounted_for(steps in steps()) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.run(step);
            pair.check()?;
        }
        pair.clear();
        pair.arena.sweep();
        pair.arena.sweep();
        pair.check()?;
        prop_assert_eq!((pair.arena.bytes(), pair.arena.units_live), (0, 0));
        prop_assert!(pair.arena.pages_spare <= pair.arena.spare_pages_max());
    }

    /// All ranges that are long enough, in their order, as a search of every unit finds them.
    #[test]
    fn the_tree_finds_the_ranges_that_are_long_enough(
        groups in 1..if cfg!(miri) { 3 } else { 9_usize },
        ranges in prop::collection::vec((any::<usize>(), 1..2000_usize, any::<bool>()), 0..60),
        units in 1..3000_usize,
    ) {
        let mut words = vec![0_u64; groups * GROUP_PAGES];
        let mut free = FreeTree::new(words.len());
        free.update(|_| 0, 0, words.len() * PAGE_UNITS);
        let total = words.len() * PAGE_UNITS;
        for (start, len, is_taken) in ranges {
            let start = start % total;
            let len = len.min(total - start);
            for unit in start..start + len {
                let mask = 1 << (unit % PAGE_UNITS);
                let word = &mut words[unit / PAGE_UNITS];
                *word = if is_taken { *word | mask } else { *word & !mask };
            }
            free.update(|page| words[page], start, len);
        }
        let is_free = |unit: usize| words[unit / PAGE_UNITS] >> (unit % PAGE_UNITS) & 1 == 0;
        let (mut expected, mut together) = (Vec::new(), 0);
        for unit in 0..=total {
            if unit < total && is_free(unit) {
                together += 1;
                continue;
            }
            if together >= units {
                expected.push((unit - together, together));
            }
            together = 0;
        }
        let found: Vec<_> = free.ranges_of(|page| words[page], units).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn what_is_freed_is_taken_again_before_there_is_more() {
    let mut arena = Arena::new(BYTES_MAX);
    let mut runs: Vec<_> = (0..40).map(|_| arena.take(3000)).collect();
    let places: Vec<_> = runs.iter().map(|run| run.as_ptr().addr()).collect();
    let pages = arena.pages_live;
    for _ in 0..20 {
        let run = runs.swap_remove(7);
        let place = run.as_ptr().addr();
        arena.free(run);
        let again = arena.take(2990);
        assert_eq!(again.as_ptr().addr(), place);
        runs.push(again);
    }
    assert_eq!((arena.pages_live, places.len()), (pages, runs.len()));
}

/// Runs of so many pages, side by side.
fn rows(arena: &mut Arena, pages: &[usize]) -> Vec<Run> {
    let mut take = |&pages: &usize| arena.take(pages * PAGE_BYTES);
    pages.iter().map(&mut take).collect()
}

#[test]
fn a_run_is_placed_where_pages_are_in_memory() {
    let mut arena = Arena::new(BYTES_MAX);
    let mut runs = rows(&mut arena, &[12, 1, 9, 1]);
    let place = runs[2].as_ptr().addr();
    arena.free(std::mem::take(&mut runs[0]));
    arena.give_back(12);
    arena.free(std::mem::take(&mut runs[2]));
    // The pages given back come first, and are as good for it.
    let run = arena.take(9 * PAGE_BYTES);
    assert_eq!((run.as_ptr().addr(), arena.pages_spare), (place, 0));
    arena.free(run);
    arena.free(std::mem::take(&mut runs[3]));
    // Ten pages of it are in memory, and two behind them are not.
    let run = arena.take(12 * PAGE_BYTES);
    assert_eq!((run.as_ptr().addr(), arena.pages_spare), (place, 0));
    arena.free(run);
    // With none of them it is the first place after all.
    arena.give_back(12);
    let run = arena.take(12 * PAGE_BYTES);
    assert!(run.as_ptr().addr() < place);
}

#[test]
fn a_run_gets_the_shortest_of_a_few_ranges_that_are_long_enough() {
    let mut arena = Arena::new(BYTES_MAX);
    let mut runs = rows(&mut arena, &[8, 1, 5, 1, 3, 1]);
    let places: Vec<_> = runs.iter().map(|run| run.as_ptr().addr()).collect();
    for index in [0, 2, 4] {
        arena.free(std::mem::take(&mut runs[index]));
    }
    for (pages, place) in [(2, 4), (4, 2), (7, 0)] {
        let run = arena.take(pages * PAGE_BYTES);
        assert_eq!(run.as_ptr().addr(), places[place], "{pages} pages");
        arena.free(run);
    }
}

#[test]
fn a_run_that_is_not_in_memory_as_a_whole_is_where_most_of_it_is() {
    let mut arena = Arena::new(BYTES_MAX);
    let mut runs = rows(&mut arena, &[4, 6, 1, 5, 6, 1]);
    let place = runs[3].as_ptr().addr();
    for index in [1, 4] {
        arena.free(std::mem::take(&mut runs[index]));
    }
    arena.give_back(12);
    for index in [0, 3] {
        arena.free(std::mem::take(&mut runs[index]));
    }
    let run = arena.take(8 * PAGE_BYTES);
    assert_eq!((run.as_ptr().addr(), arena.pages_spare), (place, 4));
}

#[test]
fn short_rows_of_pages_are_given_back_first() {
    let mut arena = Arena::new(BYTES_MAX);
    let mut runs = rows(&mut arena, &[8, 1, 2, 1, 7, 1]);
    for index in [0, 2, 4] {
        arena.free(std::mem::take(&mut runs[index]));
    }
    let spare = |arena: &Arena| {
        let pages = &arena.spaces[0].pages;
        let ranges = [0..8, 9..11, 12..19];
        ranges.map(|range| range.filter(|&page| pages.is_spare(page)).count())
    };
    assert_eq!(spare(&arena), [8, 2, 7]);
    arena.give_back(1);
    assert_eq!(spare(&arena), [8, 1, 7]);
    arena.give_back(3);
    assert_eq!(spare(&arena), [8, 0, 5]);
    arena.give_back(100);
    assert_eq!((spare(&arena), arena.pages_spare), ([0; 3], 0));
}

#[test]
fn a_run_outlives_its_arena_and_goes_to_another_thread() {
    let mut arena = Arena::new(BYTES_MAX);
    let run = arena.take_shared(5000).filled(&[&[7; 5000]]);
    let mut other = Arena::new(BYTES_MAX);
    assert!(!other.charge(&run), "a run of another arena");
    assert_eq!(other.bytes(), 0);
    let reader = run.clone();
    std::thread::scope(|scope| {
        let sum = move || reader.iter().map(|&byte| u64::from(byte)).sum();
        let thread = scope.spawn(sum);
        drop(arena);
        assert_eq!(run[4999], 7);
        drop(run);
        assert_eq!(thread.join().unwrap_or(0), 35_000);
    });
}

#[test]
fn a_run_that_is_shared_is_not_written_and_comes_back_when_its_last_reader_goes() {
    let mut arena = Arena::new(BYTES_MAX);
    let mut run = arena.take_shared(2000).filled(&[&[1; 2000]]);
    assert!(arena.charge(&run));
    let reader = run.clone();
    assert!(run.get_mut().is_none());
    arena.free_shared(run);
    // It is the reader's now, and nobody else is given it.
    assert_eq!((arena.bytes(), arena.units_live > 0), (0, true));
    let other = arena.take(BYTES_MAX / 2);
    assert!(reader.iter().all(|&byte| byte == 1));
    let place = reader.as_ptr().addr();
    drop(reader);
    arena.free(other);
    let again = arena.take_shared(2000);
    assert_eq!(again.as_ptr().addr(), place);
}

#[test]
fn pages_with_little_in_them_are_charged() {
    let mut arena = Arena::new(BYTES_MAX);
    let mut runs: Vec<_> = (0..400).map(|_| arena.take(PAGE_BYTES / 4)).collect();
    let full = arena.bytes();
    assert_eq!(full, 400 * PAGE_BYTES / 4);
    let mut index = 0;
    runs.retain_mut(|run| {
        index += 1;
        if index % 4 == 1 {
            return true;
        }
        arena.free(std::mem::take(run));
        false
    });
    // A quarter is left, in all of the pages: all but what is let pass is charged.
    assert_eq!(arena.bytes(), full - arena.waste_max());
    runs.drain(..).for_each(|run| arena.free(run));
    assert_eq!(arena.bytes(), 0);
}

#[test]
#[should_panic(expected = "pages that are given back belong to no run")]
fn pages_of_a_run_are_not_given_back() {
    let mut region = Region::new(GROUP_PAGES).unwrap_or_else(|| panic!("there is memory"));
    let _run = region.take(PAGE_UNITS, 1);
    region.give_back(0..2);
}

#[test]
fn units_are_taken_once() {
    let mut region = Region::new(GROUP_PAGES).unwrap_or_else(|| panic!("there is memory"));
    let run = region.take(10, 1000);
    assert!(run.is_some());
    assert!(region.take(25, 1).is_none());
    assert!(region.take(9, UNIT_BYTES + 1).is_none());
    let beside = [region.take(26, 1), region.take(9, UNIT_BYTES)];
    assert!(beside.iter().all(Option::is_some));
    assert!(
        region
            .take(GROUP_PAGES * PAGE_UNITS - 1, UNIT_BYTES + 1)
            .is_none()
    );
    assert!(region.take(usize::MAX, 1).is_none());
    assert!(region.take(30, 0).is_none());
    drop(run);
    assert!(region.take(10, 1).is_none(), "until it is collected");
    let mut collected = Vec::new();
    region.collect(|words, start, units| {
        assert_eq!(words[0], 1 << 9 | 1 << 26);
        collected.push((start, units));
    });
    assert_eq!(collected, [(10, 16)]);
    assert!(region.take(10, 1000).is_some());
}

#[test]
fn readers_come_and_go_while_their_run_is_freed() {
    let mut arena = Arena::new(BYTES_MAX);
    let run = arena.take_shared(100).filled(&[&[3; 100]]);
    assert!(arena.charge(&run));
    let reader = run.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let again = reader.clone();
            drop(reader);
            assert!(again.iter().all(|&byte| byte == 3));
        });
        arena.free_shared(run);
    });
    arena.sweep();
    assert_eq!((arena.bytes(), arena.units_live), (0, 0));
}

#[test]
fn runs_of_an_arena_that_is_gone_are_whole_until_they_are_dropped() {
    let mut arena = Arena::new(BYTES_MAX);
    // Each shares pages with the next one.
    let runs = (1..=8).map(|byte| arena.take_shared(3000).filled(&[&[byte; 3000]]));
    let mut here: Vec<_> = runs.collect();
    drop(arena);
    let there = here.split_off(4);
    let check = |mut runs: Vec<SharedRun>| {
        while let Some(run) = runs.pop() {
            drop(run);
            let mut rest = runs.iter().map(|run| run.iter());
            assert!(rest.all(|mut bytes| bytes.clone().next() == bytes.next_back()));
            assert!(runs.iter().all(|run| run[1500] > 0));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(move || check(there));
        check(here);
    });
}
