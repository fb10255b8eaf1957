//! The memory of a shard: runs of bytes in pages from the system, which go back to it.
//!
//! The system's allocator keeps holes between values of very different sizes, and keeps what was
//! freed; here both are bounded. A run is placed in the first range of units that is long enough.
//! What its shard is charged with, [`Arena::bytes`], are the units of its runs. Beside them there
//! are, at most:
//!
//! - a sixteenth of the bound and 64 KiB of free units in pages that runs have units of. Beyond
//!   that they are charged too, so that items make room for them;
//! - a thirty-second of the bound in free pages that are kept to be used again, and of the bound
//!   itself what no run has. Before a run would need more than that, others go back to the system;
//!   so do, by [`Arena::sweep`], those that no run has needed since the last one;
//! - the bitmaps: a quarter of a percent of the address space that is mapped, which is as much as
//!   the bound and what large runs could not be fitted into.
//!
//! A run that a reader still holds, though its item is gone, is charged to nobody. Where the arena
//! is gone as well, no pages stay for it but those that it lies in.

mod free;
mod map;

use std::ops::Range;

use free::{FreeTree, GROUP_PAGES};
pub(crate) use map::{PAGE_BYTES, Run, SharedRun, UNIT_BYTES};
use map::{Region, pages, units_for};

/// The part of the bound that free units in taken pages may be, uncharged.
const WASTE_SHARE: usize = 16;

/// What they may be in any case: of use to bounds of a few pages.
const WASTE_PAGES: usize = 16;

/// The part of the bound that free pages may be beside it, and are in any case.
const SPARE_SHARE: usize = 32;

/// The pages that a word of their bitmap has.
const WORD_PAGES: usize = u64::BITS as usize;

/// The longest region, but for a run that is longer.
const REGION_BYTES_MAX: usize = 256 << 20;

/// The fewest free pages that are given back.
const SPARE_PAGES: usize = 8;

/// The runs that one command takes: a segment, a value, a page of the hash table.
const RUNS_OF_COMMAND_MAX: usize = 3;

/// The pages that a run may have units of without filling them.
const PARTIAL_PAGES_MAX: usize = 2;

/// A region, and what is known of its pages.
#[derive(Debug)]
struct Space {
    region: Region,
    pages: Pages,
}

/// The pages of a region.
#[derive(Debug)]
struct Pages {
    free: FreeTree,
    /// A bit for every page that is free and has been used since it was given back.
    spare: Box<[u64]>,
    /// The pages that runs have units of.
    live: usize,
}

/// How many pages were free, of those that a run has units of.
#[derive(Clone, Copy, Debug, Default)]
struct Turned {
    pages: usize,
    /// Those of them that were spare.
    spare: usize,
}

impl Space {
    fn new(pages: usize) -> Option<Self> {
        let region = Region::new(pages)?;
        let pages = Pages {
            free: FreeTree::new(region.words()),
            spare: vec![0; pages.div_ceil(WORD_PAGES)].into_boxed_slice(),
            live: 0,
        };
        Some(Self { region, pages })
    }

    /// Takes a run, if there is room: the run, and the pages that were free.
    fn take(&mut self, len: usize) -> Option<(Run, Turned)> {
        let units = units_for(len);
        let start = self.pages.free.find(self.region.words(), units)?;
        let turned = self.pages.taken(self.region.words(), start, units);
        let run = self.region.take(start, len)?;
        self.pages.free.update(self.region.words(), start, units);
        Some((run, turned))
    }

    /// Gives up to so many spare pages back, the last ones first: how many those were.
    fn give_back(&mut self, wanted: usize) -> usize {
        let mut given = 0;
        while let Some(pages) = self.pages.last_spare(wanted - given) {
            given += pages.len();
            self.region.give_back(pages);
        }
        given
    }
}

impl Pages {
    /// Notes that units are about to be taken.
    fn taken(&mut self, words: &[u64], start: usize, units: usize) -> Turned {
        let mut turned = Turned::default();
        for page in pages(start, units).filter(|&page| words[page] == 0) {
            turned.pages += 1;
            turned.spare += usize::from(self.is_spare(page));
            self.spare[page / WORD_PAGES] &= !(1 << (page % WORD_PAGES));
        }
        self.live += turned.pages;
        turned
    }

    /// Notes that the units of a run have been freed: how many pages are free now.
    fn freed(&mut self, words: &[u64], start: usize, units: usize) -> usize {
        self.free.update(words, start, units);
        let mut count = 0;
        for page in pages(start, units).filter(|&page| words[page] == 0) {
            self.spare[page / WORD_PAGES] |= 1 << (page % WORD_PAGES);
            count += 1;
        }
        self.live -= count;
        count
    }

    fn is_spare(&self, page: usize) -> bool {
        self.spare[page / WORD_PAGES] >> (page % WORD_PAGES) & 1 == 1
    }

    fn spare_count(&self) -> usize {
        let counts = self.spare.iter().map(|word| word.count_ones() as usize);
        counts.sum()
    }

    /// The last spare pages that lie together, up to so many, which are spare no more.
    fn last_spare(&mut self, count_max: usize) -> Option<Range<usize>> {
        let word = self.spare.iter().rposition(|&word| word != 0)?;
        let end = (word + 1) * WORD_PAGES - self.spare[word].leading_zeros() as usize;
        let mut start = end;
        while start > 0 && end - start < count_max && self.is_spare(start - 1) {
            start -= 1;
            self.spare[start / WORD_PAGES] &= !(1 << (start % WORD_PAGES));
        }
        (start < end).then_some(start..end)
    }
}

#[derive(Debug)]
pub(crate) struct Arena {
    spaces: Vec<Space>,
    bytes_max: usize,
    /// The units of runs that the shard is charged with.
    units_charged: usize,
    /// The units of all runs, and the pages that they lie in.
    units_live: usize,
    pages_live: usize,
    pages_spare: usize,
    /// The fewest that there were since the last sweep.
    pages_idle: usize,
}

impl Arena {
    /// An arena without memory.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            spaces: Vec::new(),
            bytes_max,
            units_charged: 0,
            units_live: 0,
            pages_live: 0,
            pages_spare: 0,
            pages_idle: 0,
        }
    }

    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.keep_within();
    }

    /// The bytes that are charged.
    pub(crate) fn bytes(&self) -> usize {
        let excess = self.waste().saturating_sub(self.waste_max());
        self.units_charged * UNIT_BYTES + excess
    }

    /// The bytes that a run of `len` bytes takes.
    pub(crate) fn run_bytes(len: usize) -> usize {
        units_for(len) * UNIT_BYTES
    }

    /// The most that [`Arena::bytes`] grows by when a run of `len` bytes is taken.
    pub(crate) fn demand(&self, len: usize) -> usize {
        let partial = PARTIAL_PAGES_MAX * PAGE_BYTES;
        let is_tight = self.waste() + RUNS_OF_COMMAND_MAX * partial > self.waste_max();
        Self::run_bytes(len) + if is_tight { partial } else { 0 }
    }

    /// The bytes of free units in pages that runs have units of.
    fn waste(&self) -> usize {
        self.pages_live * PAGE_BYTES - self.units_live * UNIT_BYTES
    }

    fn waste_max(&self) -> usize {
        self.bytes_max / WASTE_SHARE + WASTE_PAGES * PAGE_BYTES
    }

    fn spare_pages_max(&self) -> usize {
        (self.bytes_max / SPARE_SHARE / PAGE_BYTES).max(SPARE_PAGES)
    }

    /// The most pages that are in memory.
    fn pages_max(&self) -> usize {
        (self.bytes_max + self.waste_max()) / PAGE_BYTES + self.spare_pages_max()
    }

    /// Takes a run of `len` bytes, whatever they are, and charges the shard with it.
    pub(crate) fn take(&mut self, len: usize) -> Run {
        let run = self.take_uncharged(len);
        self.units_charged += units_for(len);
        run
    }

    /// The length of the run that `len` bytes to be shared need.
    pub(crate) fn shared_len(len: usize) -> usize {
        SharedRun::HEADER_BYTES + len
    }

    /// Takes a run for `len` bytes that are to be shared, without charging the shard with it.
    pub(crate) fn take_shared(&mut self, len: usize) -> SharedRun {
        SharedRun::new(self.take_uncharged(Self::shared_len(len)))
    }

    /// Takes a run of `len` bytes that is charged to nobody yet.
    fn take_uncharged(&mut self, len: usize) -> Run {
        self.collect();
        let taken = self.spaces.iter_mut().find_map(|space| space.take(len));
        let Some((run, turned)) = taken.or_else(|| self.take_from_fresh(len)) else {
            // As where the allocator has no memory.
            let layout = std::alloc::Layout::array::<u8>(len);
            std::alloc::handle_alloc_error(layout.unwrap_or(std::alloc::Layout::new::<u8>()));
        };
        self.units_live += units_for(len);
        self.pages_live += turned.pages;
        self.pages_spare -= turned.spare;
        self.keep_within();
        run
    }

    /// Gives pages back if there are more in memory than may be.
    fn keep_within(&mut self) {
        let pages = self.pages_live + self.pages_spare;
        self.give_back(pages.saturating_sub(self.pages_max()));
        self.pages_idle = self.pages_idle.min(self.pages_spare);
    }

    fn take_from_fresh(&mut self, len: usize) -> Option<(Run, Turned)> {
        let pages_for = |bytes: usize| bytes.div_ceil(PAGE_BYTES).next_multiple_of(GROUP_PAGES);
        let wanted = len.max((self.bytes_max / 2).min(REGION_BYTES_MAX));
        let space = Space::new(pages_for(wanted)).or_else(|| Space::new(pages_for(len)));
        let mut space = space?;
        let taken = space.take(len);
        self.spaces.push(space);
        taken
    }

    /// Charges the shard with a run that is to be shared; `false` if it was not taken here.
    pub(crate) fn charge(&mut self, run: &SharedRun) -> bool {
        let is_own = self.spaces.iter().any(|space| space.region.owns(run.run()));
        if is_own {
            self.units_charged += units_for(run.run().len());
        }
        is_own
    }

    /// Frees a run that is charged.
    pub(crate) fn free(&mut self, run: Run) {
        self.units_charged -= units_for(run.len());
        self.release(run);
    }

    /// Frees a run that is charged, or leaves it to those who read it.
    pub(crate) fn free_shared(&mut self, run: SharedRun) {
        self.units_charged -= units_for(run.run().len());
        // Otherwise the last reader's drop records it for `collect`.
        if let Some(run) = run.into_run() {
            self.release(run);
        }
    }

    fn release(&mut self, run: Run) {
        let space = self.spaces.iter_mut();
        let Some(space) = { space }.find(|space| space.region.owns(&run)) else {
            return;
        };
        if let Some((start, units)) = space.region.free(run) {
            let pages = space.pages.freed(space.region.words(), start, units);
            self.units_live -= units;
            self.pages_live -= pages;
            self.pages_spare += pages;
        }
    }

    /// Frees the runs that were dropped elsewhere.
    fn collect(&mut self) {
        let (mut units_freed, mut pages_freed) = (0, 0);
        for Space { region, pages } in &mut self.spaces {
            region.collect(|words, start, units| {
                units_freed += units;
                pages_freed += pages.freed(words, start, units);
            });
        }
        self.units_live -= units_freed;
        self.pages_live -= pages_freed;
        self.pages_spare += pages_freed;
    }

    /// Frees what readers have dropped, and gives back what was not used since the last sweep.
    pub(crate) fn sweep(&mut self) {
        self.collect();
        let idle = self.pages_idle.min(self.pages_spare);
        self.give_back(idle.saturating_sub(self.spare_pages_max()));
        self.pages_idle = self.pages_spare;
    }

    /// Gives free pages back if there are more than are kept in any case.
    pub(crate) fn trim(&mut self) {
        let pages_max = self.spare_pages_max();
        if self.pages_spare > pages_max {
            self.give_back(self.pages_spare - pages_max / 2);
        }
    }

    /// Gives so many pages back, or all that are spare, and the address space of free regions.
    fn give_back(&mut self, pages: usize) {
        if pages == 0 {
            return;
        }
        let mut left = pages.min(self.pages_spare);
        for index in (0..self.spaces.len()).rev() {
            let is_only = self.spaces.len() == 1;
            let space = &mut self.spaces[index];
            let given = if space.pages.live == 0 && !is_only && left > 0 {
                let given = space.pages.spare_count();
                self.spaces.remove(index);
                given
            } else {
                space.give_back(left)
            };
            self.pages_spare -= given;
            left = left.saturating_sub(given);
        }
    }
}

#[cfg(test)]
mod tests;
