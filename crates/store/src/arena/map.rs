//! Memory from the system, and the parts of it that are taken: the one place of `unsafe` here.
//!
//! A [`Region`] is a range of pages with one bit for every unit of 64 bytes. [`Region::take`] sets
//! the bits of a range that had none, and the [`Run`] that it returns is the only way to those
//! bytes until the bits are cleared, which takes the run itself or its record in
//! [`Map::dropped`], written by its drop. So no two runs overlap, whatever the caller asks for.
//!
//! A region that goes leaves its bits to the map, which stays for the runs that are left: pages
//! without such runs go back to the system then, and others when their last run is dropped.
#![expect(
    unsafe_code,
    reason = "memory that is given back page by page is the system's, not the allocator's"
)]

use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use triomphe::Arc;

/// Runs begin at multiples of this and take multiples of it.
pub(crate) const UNIT_BYTES: usize = 64;

/// The bytes of a page that is given back to the system, whose own pages may be larger.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The units of a page: those of one word of the bitmap.
pub(super) const PAGE_UNITS: usize = PAGE_BYTES / UNIT_BYTES;

const _: () = assert!(PAGE_UNITS == u64::BITS as usize, "a page is a word");

/// The units that so many bytes take.
pub(super) fn units_for(len: usize) -> usize {
    len.div_ceil(UNIT_BYTES)
}

/// One range of pages from the system.
#[derive(Debug)]
struct Map {
    base: NonNull<u8>,
    bytes: usize,
    dropped: Mutex<Dropped>,
    /// True if there is something to collect.
    has_dropped: AtomicBool,
}

/// The units of runs that were dropped, or are still to be.
#[derive(Debug)]
enum Dropped {
    /// The region collects them: the first unit and the units of each.
    Noted(Vec<(u32, u32)>),
    /// The region is gone, and these are its words: the bits of the runs that are left.
    Left(Box<[u64]>),
}

// SAFETY: `base` is an address that any thread may compute with; bytes are reached by runs alone.
unsafe impl Send for Map {}
// SAFETY: as above, and what changes is behind a lock or atomic.
unsafe impl Sync for Map {}

impl Map {
    fn dropped(&self) -> MutexGuard<'_, Dropped> {
        // Bits that a panic has left set are pages that stay.
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the memory of pages back to the system; they are zeros when they are used again.
    ///
    /// # Panics
    /// If a run has some of it.
    ///
    /// # Safety
    /// The words are those of this map.
    unsafe fn give_back(&self, words: &[u64], pages: Range<usize>) {
        assert!(
            words[pages.clone()].iter().all(|&word| word == 0),
            "pages that are given back belong to no run"
        );
        // SAFETY: the pages are in the map, and no run reaches them: none of their bits is set.
        unsafe {
            let start = self.base.add(pages.start * PAGE_BYTES);
            system::give_back(start, pages.len() * PAGE_BYTES);
        }
    }

    /// Gives those of the pages back that no run has.
    ///
    /// # Safety
    /// The words are those of this map.
    unsafe fn give_free_back(&self, words: &[u64], pages: Range<usize>) {
        let mut from = pages.start;
        for run in words[pages].chunk_by(|left, right| (*left == 0) == (*right == 0)) {
            let to = from + run.len();
            if run[0] == 0 {
                // SAFETY: the caller's promise.
                unsafe { self.give_back(words, from..to) };
            }
            from = to;
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is this map's own. Every run has a reference to the map, so there is
        // none left that could reach it.
        unsafe { system::unmap(self.base, self.bytes) };
    }
}

/// Bytes of a region that nothing else reaches; an empty one has none.
#[derive(Debug)]
pub(crate) struct Run {
    bytes: NonNull<u8>,
    len: u32,
    /// The first unit in the region.
    start: u32,
    map: Option<Arc<Map>>,
}

// SAFETY: a run owns its bytes as a box does.
unsafe impl Send for Run {}
// SAFETY: as above: a shared run is only read.
unsafe impl Sync for Run {}

impl Run {
    /// The number of bytes.
    ///
    /// Shape: without a read of them, as [`Deref`] has it: their content may be changing.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }
}

impl Default for Run {
    fn default() -> Self {
        Self {
            bytes: NonNull::dangling(),
            len: 0,
            start: 0,
            map: None,
        }
    }
}

impl Deref for Run {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `take` has made sure that so many bytes are in the map, which `self.map` keeps,
        // and that no other run has them. They were zeroed by the system, or written before.
        // Without a map there are none, and a dangling pointer will do.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr(), self.len as usize) }
    }
}

impl DerefMut for Run {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow of this run is exclusive, and so is the run.
        unsafe { slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len as usize) }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let Some(map) = self.map.take() else { return };
        let units = units_for(self.len());
        match &mut *map.dropped() {
            Dropped::Noted(noted) => {
                noted.push((self.start, units as u32));
                map.has_dropped.store(true, Ordering::Release);
            }
            // The last one takes the whole map with it.
            Dropped::Left(words) if !Arc::is_unique(&map) => {
                let start = self.start as usize;
                clear(words, start, units);
                // SAFETY: the region has left the words of this map.
                unsafe { map.give_free_back(words, pages(start, units)) };
            }
            Dropped::Left(_) => {}
        }
    }
}

/// The beginning of a run that is shared.
#[derive(Debug)]
struct Header {
    handles: AtomicUsize,
    /// The run that this is in.
    run: Run,
}

/// A run that is shared by counting its handles, which the run itself has room for.
///
/// Shape: read by all; written by a handle that is the only one.
pub(crate) struct SharedRun {
    header: NonNull<Header>,
}

// SAFETY: as for `Arc<[u8]>`: the count is atomic, and bytes are written by an only handle alone.
unsafe impl Send for SharedRun {}
// SAFETY: as above.
unsafe impl Sync for SharedRun {}

const _: () = assert!(align_of::<Header>() <= UNIT_BYTES, "a run begins at a unit");

impl SharedRun {
    /// The bytes of a run that are not for what is shared.
    pub(crate) const HEADER_BYTES: usize = size_of::<Header>();

    /// The only handle of a run.
    ///
    /// # Panics
    /// If the run has no room for the count.
    pub(crate) fn new(run: Run) -> Self {
        assert!(
            run.len() >= Self::HEADER_BYTES,
            "a run has room for its count"
        );
        let header = run.bytes.cast();
        let handles = AtomicUsize::new(1);
        // SAFETY: the run's bytes are in memory while there is the run, which now lies in them;
        // there are enough, they begin at a multiple of 64, and nothing else reaches them.
        unsafe { header.write(Header { handles, run }) };
        Self { header }
    }

    /// The run that is shared.
    pub(super) fn run(&self) -> &Run {
        &self.header().run
    }

    fn header(&self) -> &Header {
        // SAFETY: `new` has written it, and it is there until the last handle is gone.
        unsafe { self.header.as_ref() }
    }

    /// The bytes that follow the header.
    fn bytes(&self) -> NonNull<[u8]> {
        let len = self.run().len() - Self::HEADER_BYTES;
        // SAFETY: the header is the beginning of a run that is not shorter.
        let bytes = unsafe { self.header.cast::<u8>().add(Self::HEADER_BYTES) };
        NonNull::slice_from_raw_parts(bytes, len)
    }

    /// The bytes, to be written, if this is the only handle.
    pub(crate) fn get_mut(&mut self) -> Option<&mut [u8]> {
        // Acquire: what other handles have read, they have read before they were dropped.
        let is_only = self.header().handles.load(Ordering::Acquire) == 1;
        // SAFETY: the bytes are the run's, and this handle, borrowed exclusively, is the only one.
        is_only.then(|| unsafe { self.bytes().as_mut() })
    }

    /// Writes parts over the bytes, one behind the other, where this is the only handle.
    pub(crate) fn filled(mut self, parts: &[&[u8]]) -> Self {
        let mut rest = self.get_mut().unwrap_or_default();
        for part in parts {
            let (bytes, behind) = rest.split_at_mut(part.len());
            bytes.copy_from_slice(part);
            rest = behind;
        }
        self
    }

    /// Drops the handle: the run, if this was the last one.
    pub(crate) fn into_run(self) -> Option<Run> {
        let this = std::mem::ManuallyDrop::new(self);
        this.release()
    }

    /// Takes the run out, if this was the last handle; the handle must not be used again.
    fn release(&self) -> Option<Run> {
        // Release, and acquire by the last: all reads come before the run is used again.
        if self.header().handles.fetch_sub(1, Ordering::Release) != 1 {
            return None;
        }
        fence(Ordering::Acquire);
        // SAFETY: this was the last handle, so the header is read once and never again.
        Some(unsafe { self.header.read() }.run)
    }
}

impl Clone for SharedRun {
    fn clone(&self) -> Self {
        // Relaxed: the handle that is cloned keeps the run.
        let before = self.header().handles.fetch_add(1, Ordering::Relaxed);
        // There are never as many but those that were leaked. The count stays, and so does the run.
        assert!(
            isize::try_from(before).is_ok(),
            "handles of a run are leaked"
        );
        Self {
            header: self.header,
        }
    }
}

impl Drop for SharedRun {
    fn drop(&mut self) {
        drop(self.release());
    }
}

impl Deref for SharedRun {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are the run's, zeroed or written, and none is written while there is a
        // borrow of a handle: `get_mut` takes the only one, exclusively.
        unsafe { self.bytes().as_ref() }
    }
}

impl std::fmt::Debug for SharedRun {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_tuple("SharedRun")
            .field(&self.len())
            .finish()
    }
}

/// A range of pages, of which the bits that are set belong to runs.
#[derive(Debug)]
pub(super) struct Region {
    map: Arc<Map>,
    words: Box<[u64]>,
}

impl Drop for Region {
    fn drop(&mut self) {
        if Arc::is_unique(&self.map) {
            // No run is left, so the map goes now.
            return;
        }
        let mut dropped = self.map.dropped();
        let mut words = std::mem::take(&mut self.words);
        if let Dropped::Noted(noted) = &*dropped {
            for &(start, units) in noted {
                clear(&mut words, start as usize, units as usize);
            }
        }
        // SAFETY: there is a word for each page of this region's map, with the bits of its runs.
        unsafe { self.map.give_free_back(&words, 0..words.len()) };
        *dropped = Dropped::Left(words);
    }
}

impl Region {
    /// A region of so many pages, not in memory yet; `None` if the system refuses.
    pub(super) fn new(pages: usize) -> Option<Self> {
        let bytes = pages.checked_mul(PAGE_BYTES).filter(|&bytes| bytes > 0)?;
        let base = system::map(bytes)?;
        let map = Map {
            base,
            bytes,
            dropped: Mutex::new(Dropped::Noted(Vec::new())),
            has_dropped: AtomicBool::new(false),
        };
        Some(Self {
            map: Arc::new(map),
            words: vec![0; pages].into_boxed_slice(),
        })
    }

    /// One word for every page, with a bit for every unit: set if a run has it.
    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    /// True for a run of this region.
    pub(super) fn owns(&self, run: &Run) -> bool {
        let map = run.map.as_ref();
        map.is_some_and(|map| Arc::ptr_eq(map, &self.map))
    }

    /// True if no run has any of so many units.
    pub(super) fn is_free(&self, start: usize, units: usize) -> bool {
        units == 0 || masks(start, units).all(|(word, mask)| self.words[word] & mask == 0)
    }

    /// Takes a run of `len` bytes that begins at a unit; `None` if not all of them are free.
    pub(super) fn take(&mut self, start: usize, len: usize) -> Option<Run> {
        let units = units_for(len);
        let end = start.checked_add(units)?;
        let fits = len > 0 && end <= self.words.len() * PAGE_UNITS;
        if !fits || !self.is_free(start, units) {
            return None;
        }
        let (first, len) = (u32::try_from(start).ok()?, u32::try_from(len).ok()?);
        for (word, mask) in masks(start, units) {
            self.words[word] |= mask;
        }
        // SAFETY: `end` units are within the map, as there is one word for each of its pages.
        let bytes = unsafe { self.map.base.add(start * UNIT_BYTES) };
        Some(Run {
            bytes,
            len,
            start: first,
            map: Some(Arc::clone(&self.map)),
        })
    }

    /// Frees a run: its first unit and its units. One of another region is dropped instead.
    pub(super) fn free(&mut self, mut run: Run) -> Option<(usize, usize)> {
        if !self.owns(&run) {
            return None;
        }
        // Without its map the run is not recorded by its drop, and reaches nothing any more.
        run.map = None;
        let (start, units) = (run.start as usize, units_for(run.len()));
        clear(&mut self.words, start, units);
        Some((start, units))
    }

    /// Frees the runs that were dropped elsewhere, one by one.
    ///
    /// Shape: `freed` gets the words as they are then, the first unit and the units.
    pub(super) fn collect(&mut self, mut freed: impl FnMut(&[u64], usize, usize)) {
        if !self.map.has_dropped.load(Ordering::Acquire) {
            return;
        }
        let noted = {
            let mut dropped = self.map.dropped();
            self.map.has_dropped.store(false, Ordering::Release);
            match &mut *dropped {
                Dropped::Noted(noted) => std::mem::take(noted),
                // Left by a region that is gone.
                Dropped::Left(_) => return,
            }
        };
        for (start, units) in noted {
            let (start, units) = (start as usize, units as usize);
            clear(&mut self.words, start, units);
            freed(&self.words, start, units);
        }
    }

    /// Gives the memory of pages back to the system; they are zeros when they are used again.
    ///
    /// # Panics
    /// If a run has some of it.
    pub(super) fn give_back(&mut self, pages: Range<usize>) {
        // SAFETY: there is a word for each page of this region's map, with the bits of its runs.
        unsafe { self.map.give_back(&self.words, pages) };
    }
}

/// The pages that a range of units lies in.
pub(super) fn pages(start: usize, units: usize) -> Range<usize> {
    start / PAGE_UNITS..(start + units).div_ceil(PAGE_UNITS)
}

fn clear(words: &mut [u64], start: usize, units: usize) {
    for (word, mask) in masks(start, units) {
        debug_assert_eq!(words[word] & mask, mask, "units are freed twice");
        words[word] &= !mask;
    }
}

/// The words that a range of units lies in, with their bits of it.
fn masks(start: usize, units: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = start + units;
    (start / PAGE_UNITS..end.div_ceil(PAGE_UNITS)).map(move |word| {
        let base = word * PAGE_UNITS;
        let from = start.saturating_sub(base);
        let to = (end - base).min(PAGE_UNITS);
        let mask = u64::MAX >> (PAGE_UNITS - (to - from)) << from;
        (word, mask)
    })
}

#[cfg(not(miri))]
mod system {
    use std::ptr::{self, NonNull};

    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    const PROTECTION: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the system chooses where, so nothing that is in use is replaced.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, PROTECTION, flags) }.ok()?;
        #[cfg(target_os = "linux")]
        {
            use rustix::mm::{Advice, madvise};
            // A huge page would be resident for the sake of one value. A kernel without them
            // refuses, which is as well.
            // SAFETY: the range is the one just made, and the advice changes no byte.
            let _ = unsafe { madvise(base, bytes, Advice::LinuxNoHugepage) };
        }
        NonNull::new(base.cast())
    }

    /// Drops the pages of the system that are in a range, which is mapped on.
    ///
    /// # Safety
    /// The range is within one map, and nothing refers to its bytes.
    pub(super) unsafe fn give_back(start: NonNull<u8>, bytes: usize) {
        let page = rustix::param::page_size();
        let before = start.align_offset(page).min(bytes);
        let bytes = (bytes - before) / page * page;
        if bytes == 0 {
            return;
        }
        // SAFETY: this is not behind the end of the range.
        let start = unsafe { start.add(before) };
        #[cfg(target_os = "linux")]
        {
            use rustix::mm::{Advice, madvise};
            // SAFETY: the caller's promise. If it fails, the pages stay, and are used again.
            let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
        }
        #[cfg(not(target_os = "linux"))]
        {
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            // SAFETY: the caller's promise: the fresh pages replace some that nothing refers to.
            let _ = unsafe { mmap_anonymous(start.as_ptr().cast(), bytes, PROTECTION, flags) };
        }
    }

    /// The bytes given back at a time: as long as that takes, other threads map nothing.
    const UNMAPPED_BYTES: usize = 4 << 20;

    /// Gives a map back.
    ///
    /// # Safety
    /// The range is one that [`map`] returned, and nothing refers to its bytes.
    pub(super) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        for start in (0..bytes).step_by(UNMAPPED_BYTES) {
            let part = UNMAPPED_BYTES.min(bytes - start);
            // SAFETY: the caller's promise; parts begin at pages, of any size, and do not overlap.
            let _ = unsafe { munmap(base.add(start).as_ptr().cast(), part) };
        }
    }
}

/// Miri has no system calls: the allocator in their place.
#[cfg(miri)]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes, super::PAGE_BYTES).ok()
    }

    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: a region has at least one page.
        NonNull::new(unsafe { alloc_zeroed(layout(bytes)?) })
    }

    /// Zeroes a range, as the system would.
    ///
    /// # Safety
    /// The range is within one map, and nothing refers to its bytes.
    pub(super) unsafe fn give_back(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { start.write_bytes(0, bytes) };
    }

    /// Gives a map back.
    ///
    /// # Safety
    /// The range is one that [`map`] returned, and nothing refers to its bytes.
    pub(super) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        if let Some(layout) = layout(bytes) {
            // SAFETY: the caller's promise; the layout is that of the allocation.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }
}
