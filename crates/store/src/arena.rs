//! The memory of a shard: runs of bytes in pages from the system, which go back to it.
//!
//! The system's allocator keeps holes between values of very different sizes, and keeps what was
//! freed; here both are bounded. A run is placed in the shortest of a few ranges of units that are
//! long enough in pages that are in memory, or else where most of it is. Its shard is charged with
//! the units of its runs, [`Arena::bytes`]. Beside them there are, at most:
//!
//! - a sixteenth of the bound and 64 KiB of free units in pages that runs have units of. Beyond
//!   that they are charged too, so that items make room for them;
//! - a twentieth of the bound in free pages that are kept to be used again, and of the bound
//!   itself what no run has. Before a run would need more than that, others go back to the system;
//!   so do, by [`Arena::sweep`], those that no run has needed since the last one;
//! - the bitmaps: a quarter of a percent of the address space that is mapped, which is a quarter
//!   more than the bound, and what large runs could not be fitted into.
//!
//! A run that a reader still holds, though its item is gone, is charged to no store. If the arena
//! is gone as well, only the pages in which the run lies stay.

mod free;
mod map;

use std::ops::Range;

use free::{FreeTree, GROUP_PAGES};
pub(crate) use map::{PAGE_BYTES, Run, SharedRun, UNIT_BYTES};
use map::{PAGE_UNITS, Region, pages, units_for};

/// The part of the bound that free units in taken pages may be, uncharged.
const WASTE_SHARE: usize = 16;

/// The pages of them that are uncharged in any case: of use to bounds of a few pages.
const WASTE_PAGES: usize = 16;

/// The part of the bound that free pages may be beside it, and are kept in any case.
const SPARE_SHARE: usize = 20;

/// The pages that a word of their bitmap has.
const WORD_PAGES: usize = u64::BITS as usize;

/// The ranges in memory of which a run gets the shortest that is long enough, so that long ones
/// are left for long runs.
const FITS_MAX: usize = 4;

/// The quarters of a run for which a place in memory is looked for where no range is long enough.
const NEAR_SHARES: [usize; 3] = [3, 2, 1];

/// The places of which a run gets the one with most of it in memory.
const PARTS_MAX: usize = 8;

/// The words of spare pages that are searched for those to give back, which takes about as long as
/// the system does to take them.
const SPARE_WORDS_MAX: usize = 16;

/// The part of the bound that a region is longer than it.
const REGION_SHARE: usize = 4;

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
    /// The free units of pages that are in memory.
    near: FreeTree,
    /// A bit for every page that is free and has been used since it was given back.
    spare: Box<[u64]>,
    /// The word of `spare` where the search for those to give back goes on.
    looked_to: usize,
    /// The pages that runs have units of.
    live: usize,
}

/// The pages of a run that were free before it was taken.
#[derive(Clone, Copy, Debug, Default)]
struct Turned {
    pages: usize,
    /// The spare ones among them.
    spare: usize,
}

impl Space {
    fn new(pages: usize) -> Option<Self> {
        let region = Region::new(pages)?;
        let mut free = FreeTree::new(pages);
        free.update(|_| 0, 0, pages * PAGE_UNITS);
        let pages = Pages {
            free,
            near: FreeTree::new(pages),
            spare: vec![0; pages.div_ceil(WORD_PAGES)].into_boxed_slice(),
            looked_to: 0,
            live: 0,
        };
        Some(Self { region, pages })
    }

    /// The first unit of a place for a run of so many, most of it in pages that are in memory.
    fn find_near(&self, units: usize) -> Option<usize> {
        let near = |units| self.pages.near_ranges(self.region.words(), units);
        let fits = near(units).take(FITS_MAX);
        if let Some((start, _)) = fits.min_by_key(|&(_, len)| len) {
            return Some(start);
        }
        NEAR_SHARES.iter().find_map(|share| {
            let parts = near((units * share).div_ceil(4)).take(PARTS_MAX);
            let places = parts.filter_map(|(at, len)| Some((self.place_over(at, units)?, len)));
            let (start, _) = places.max_by_key(|&(_, len)| len)?;
            Some(start)
        })
    }

    /// The first unit of a place for a run over a free unit and as much as is free behind it.
    fn place_over(&self, at: usize, units: usize) -> Option<usize> {
        let words = self.region.words();
        let words = &words[..pages(at, units).end.min(words.len())];
        let start = at.min(free::end_of_range(words, at).checked_sub(units)?);
        self.region.is_free(start, at - start).then_some(start)
    }

    /// The first place where a run of so many units has room.
    fn find(&self, units: usize) -> Option<usize> {
        let words = self.region.words();
        let mut ranges = self.pages.free.ranges_of(|page| words[page], units);
        ranges.next().map(|(start, _)| start)
    }

    /// Takes a run that has room at a unit: the run, and the pages that were free.
    fn take(&mut self, start: usize, len: usize) -> Option<(Run, Turned)> {
        let units = units_for(len);
        let turned = self.pages.taken(self.region.words(), start, units);
        let run = self.region.take(start, len)?;
        self.pages.update(self.region.words(), start, units);
        Some((run, turned))
    }

    /// Returns at most `wanted` spare pages to the system, the shortest rows first: how many those
    /// were.
    fn give_back(&mut self, wanted: usize) -> usize {
        let mut given = 0;
        while given < wanted
            && let Some(pages) = self.pages.shortest_spare(wanted - given)
        {
            given += pages.len();
            let (start, units) = (pages.start * PAGE_UNITS, pages.len() * PAGE_UNITS);
            self.pages.update(self.region.words(), start, units);
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
        let mut count = 0;
        for page in pages(start, units).filter(|&page| words[page] == 0) {
            self.spare[page / WORD_PAGES] |= 1 << (page % WORD_PAGES);
            count += 1;
        }
        self.live -= count;
        self.update(words, start, units);
        count
    }

    /// The ranges of at least so many free units that lie together in pages that are in memory.
    fn near_ranges(&self, words: &[u64], units: usize) -> impl Iterator<Item = (usize, usize)> {
        self.near.ranges_of(near_words(words, &self.spare), units)
    }

    /// Has the trees agree with what has become of units.
    fn update(&mut self, words: &[u64], start: usize, units: usize) {
        self.free.update(|page| words[page], start, units);
        let near = near_words(words, &self.spare);
        self.near.update(near, start, units);
    }

    fn is_spare(&self, page: usize) -> bool {
        is_set(&self.spare, page)
    }

    fn spare_count(&self) -> usize {
        let counts = self.spare.iter().map(|word| word.count_ones() as usize);
        counts.sum()
    }

    /// The fewest spare pages that lie together, up to so many, which are spare no more.
    ///
    /// Shape: a long row has room for most runs, a short one for few. In a large region a part is
    /// searched, which is another one every time.
    fn shortest_spare(&mut self, count_max: usize) -> Option<Range<usize>> {
        let parts = self.spare.len().div_ceil(SPARE_WORDS_MAX);
        let (start, len) = (0..parts).find_map(|_| {
            let first = self.looked_to % self.spare.len();
            self.looked_to = (first + SPARE_WORDS_MAX).min(self.spare.len());
            let rows = free::ranges(&self.spare[first..self.looked_to], |word| word);
            let (row, len) = rows.min_by_key(|&(_, len)| len)?;
            Some((first * WORD_PAGES + row, len))
        })?;
        let pages = start..start + len.min(count_max);
        for page in pages.clone() {
            self.spare[page / WORD_PAGES] &= !(1 << (page % WORD_PAGES));
        }
        Some(pages)
    }
}

fn is_set(bits: &[u64], page: usize) -> bool {
    bits[page / WORD_PAGES] >> (page % WORD_PAGES) & 1 == 1
}

/// The word of every page, which is full if the page is not in memory.
fn near_words(words: &[u64], spare: &[u64]) -> impl Fn(usize) -> u64 {
    move |page| match words[page] {
        0 if !is_set(spare, page) => u64::MAX,
        word => word,
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

    /// Takes a run of `len` bytes that is not charged yet.
    fn take_uncharged(&mut self, len: usize) -> Run {
        self.collect();
        let taken = self.take_from(len, Space::find_near);
        let taken = taken.or_else(|| self.take_from(len, Space::find));
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

    fn take_from(
        &mut self,
        len: usize,
        find: impl Fn(&Space, usize) -> Option<usize>,
    ) -> Option<(Run, Turned)> {
        let units = units_for(len);
        let mut spaces = self.spaces.iter_mut();
        spaces.find_map(|space| find(space, units).and_then(|start| space.take(start, len)))
    }

    /// Gives pages back if there are more in memory than may be.
    fn keep_within(&mut self) {
        let pages = self.pages_live + self.pages_spare;
        self.give_back(pages.saturating_sub(self.pages_max()));
        self.pages_idle = self.pages_idle.min(self.pages_spare);
    }

    fn take_from_fresh(&mut self, len: usize) -> Option<(Run, Turned)> {
        let pages_for = |bytes: usize| bytes.div_ceil(PAGE_BYTES).next_multiple_of(GROUP_PAGES);
        // More than the bound: a long run needs a range without those that are in its way.
        let region_bytes = self.bytes_max.saturating_add(self.bytes_max / REGION_SHARE);
        let wanted = len.max(region_bytes.min(REGION_BYTES_MAX));
        let space = Space::new(pages_for(wanted)).or_else(|| Space::new(pages_for(len)));
        let mut space = space?;
        let taken = space.take(0, len);
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

    /// Frees a run that is charged, or leaves it to its readers.
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
            let all = space.pages.spare_count();
            let given = if space.pages.live == 0 && !is_only && all <= left {
                self.spaces.remove(index);
                all
            } else {
                space.give_back(left)
            };
            self.pages_spare -= given;
            left -= given;
        }
    }
}

#[cfg(test)]
mod tests;
