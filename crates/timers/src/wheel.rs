use crate::bitmap::Bitmap;
use crate::chunks::{CHUNK_IDS, Chunk, ChunkPool, List};
use crate::prefetch::prefetch;
use crate::tick::{TICKS_AHEAD_MAX, Tick};

/// A lazy timing wheel: one deadline per id, ids dense and chosen by the caller.
///
/// An id's entry has the tick at which it is due, and the tick at which the wheel visits it next.
/// Moving a deadline later, or cancelling it, changes the entry and nothing else; the visit that
/// comes too early files the id again. Moving a deadline earlier files a second record; the first
/// is recognised as stale by its tick and dropped when met, or all at once when stale records
/// outnumber the live ones.
///
/// Shape: 8 bytes per id up to the largest id used, and 4 bytes per record, in chunks of 61. No
/// record is filed beyond twice the armed ids plus 1024, and nothing is allocated once ids and
/// records have reached their peak.
/// Units: ticks. The tick 2^32 - 1 is never a deadline: whatever is armed for it fires one later.
///
/// ```
/// use dwell_timers::{Tick, Wheel};
///
/// let now = Tick::new(0);
/// let mut wheel = Wheel::new(now);
/// wheel.arm(0, now.plus(3));
/// wheel.arm(1, now.plus(5));
/// wheel.arm(0, now.plus(900)); // Later: the entry changes, and nothing else.
/// wheel.cancel(1);
/// assert_eq!((wheel.len(), wheel.deadline(0)), (1, Some(now.plus(900))));
///
/// // How long the loop may sleep: never beyond the next deadline.
/// let look = wheel.next_event().expect("one id is armed");
/// assert!(look.is_due(now.plus(900)));
///
/// // After it has slept, it fires what is due.
/// let now = now.plus(900);
/// while let Some(id) = wheel.pop_due(now) {
///     assert_eq!(id, 0);
///     wheel.arm(id, now.plus(900)); // Any id may be armed or cancelled meanwhile.
/// }
/// ```
///
/// How it is laid out: four levels of 256 buckets, a level's bucket covering as much as the whole
/// level below. A record is filed under the first tick of its deadline's bucket in the lowest
/// level that tells deadline and position apart, and is visited on that tick. A tick is the
/// first of a level's bucket if and only if its lower bytes are zero, so each tick concerns
/// exactly one bucket.
#[derive(Debug)]
pub struct Wheel {
    entries: Vec<Entry>,
    buckets: [List; LEVELS * BUCKETS],
    occupied: [Bitmap; LEVELS],
    pool: ChunkPool,
    /// Records in the buckets, stale ones included.
    records: usize,
    /// Entries that have a deadline.
    armed: usize,
    /// The last tick whose bucket was taken. No bucket has records for it or for any tick before.
    position: u32,
    /// The newest tick the caller drained to; `position` trails it during a drain.
    now: u32,
    /// No bucket is to be visited before this tick; `None` if all are empty.
    next_visit: Option<u32>,
    /// The rest of the bucket of `position`.
    due: List,
    due_chunk: Chunk,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The tick at which the id fires; `NEVER` if it is not armed.
    deadline: u32,
    /// The tick of the id's one live record; `NEVER` if it has none.
    visit: u32,
}

impl Wheel {
    /// Makes an empty wheel that stands at `now`.
    pub const fn new(now: Tick) -> Self {
        Self {
            entries: Vec::new(),
            buckets: [List::EMPTY; LEVELS * BUCKETS],
            occupied: [Bitmap::EMPTY; LEVELS],
            pool: ChunkPool::new(),
            records: 0,
            armed: 0,
            position: now.value(),
            now: now.value(),
            next_visit: None,
            due: List::EMPTY,
            due_chunk: Chunk::EMPTY,
        }
    }

    /// Sets the deadline of `id`, whether it had one or not.
    ///
    /// Shape: a deadline at or before now becomes the next tick, one farther than
    /// [`TICKS_AHEAD_MAX`] that many ticks; now is the tick last given to [`Wheel::pop_due`].
    #[inline]
    pub fn arm(&mut self, id: u32, deadline: Tick) {
        let deadline = self.bounded(deadline);
        if id as usize >= self.entries.len() {
            self.entries.resize(id as usize + 1, Entry::IDLE);
        }
        let entry = &mut self.entries[id as usize];
        // Not added to without need: a deadline that is moved costs one store.
        if entry.deadline == NEVER {
            self.armed += 1;
        }
        entry.deadline = deadline;
        let looked_at_too_late = entry.visit == NEVER
            || deadline.wrapping_sub(self.position) < entry.visit.wrapping_sub(self.position);
        if looked_at_too_late {
            self.file(id, deadline);
            if self.records > 2 * self.armed + RECORDS_SPARE {
                self.compact();
            }
        }
    }

    /// Takes the deadline of `id` away; returns true if there was one.
    #[inline]
    pub fn cancel(&mut self, id: u32) -> bool {
        let Some(entry) = self.entries.get_mut(id as usize) else {
            return false;
        };
        let was_armed = entry.deadline != NEVER;
        entry.deadline = NEVER;
        self.armed -= usize::from(was_armed);
        was_armed
    }

    /// Returns the tick at which `id` fires, if it is armed.
    #[inline]
    pub fn deadline(&self, id: u32) -> Option<Tick> {
        let deadline = self.entries.get(id as usize)?.deadline;
        (deadline != NEVER).then_some(Tick::new(deadline))
    }

    /// Returns the number of armed ids.
    pub const fn len(&self) -> usize {
        self.armed
    }

    /// One more than the largest id that was ever armed.
    pub const fn ids(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Returns true if no id is armed.
    pub const fn is_empty(&self) -> bool {
        self.armed == 0
    }

    /// A tick that is not after the next deadline; `None` if nothing is armed.
    ///
    /// Shape: constant time. It may be earlier than the deadline (one visit per record at most
    /// finds nothing to do), never later.
    pub const fn next_event(&self) -> Option<Tick> {
        match self.next_visit {
            Some(visit) if self.armed > 0 => Some(Tick::new(visit)),
            _ => None,
        }
    }

    /// Disarms and returns an id that is due at `now`, in order of tick; `None` when none is left.
    ///
    /// Call it until it returns `None`. Between two calls any id may be armed or cancelled: one
    /// that is cancelled is not returned, and one armed at or before `now` waits for the next tick.
    ///
    /// Shape: one comparison when nothing is due. A jump over many ticks costs a step per bucket
    /// that holds records, however far it goes (below 2^31 ticks).
    #[inline]
    pub fn pop_due(&mut self, now: Tick) -> Option<u32> {
        if !now.is_due(Tick::new(self.now)) {
            self.now = now.value();
        }
        match self.next_visit {
            Some(visit) if self.is_reached(visit) => self.drain(),
            _ => {
                self.position = self.now;
                None
            }
        }
    }

    #[inline]
    fn drain(&mut self) -> Option<u32> {
        loop {
            while let Some(id) = self.due_chunk.pop() {
                self.prefetch_entry(self.due_chunk.count());
                if self.visit(id) {
                    return Some(id);
                }
            }
            if !self.next_chunk() {
                return None;
            }
        }
    }

    /// Has the entry fetched of the id at `place` of the chunk that is drained next.
    ///
    /// The entries of a bucket lie anywhere, and a wheel of a million ids would wait for memory at
    /// each of them. So one is asked for at each pop, a whole chunk before its turn.
    #[inline]
    fn prefetch_entry(&self, place: usize) {
        let id = self.pool.first_chunk_id(self.due, place);
        if let Some(entry) = id.and_then(|id| self.entries.get(id as usize)) {
            prefetch(entry);
        }
    }

    /// Makes the next records due the ones being drained; `false` if no record is due up to now.
    #[inline(never)]
    fn next_chunk(&mut self) -> bool {
        loop {
            if let Some(chunk) = self.pool.take_chunk(&mut self.due) {
                self.due_chunk = chunk;
                return true;
            }
            self.next_visit = self.earliest_visit();
            match self.next_visit {
                Some(visit) if self.is_reached(visit) => self.take_bucket(visit),
                _ => {
                    self.position = self.now;
                    return false;
                }
            }
        }
    }

    /// Visits one record of the bucket of `position`; returns true if its id is due.
    #[inline]
    fn visit(&mut self, id: u32) -> bool {
        let entry = &mut self.entries[id as usize];
        if entry.visit != self.position {
            return false; // Stale: the live record is elsewhere, or there is none.
        }
        entry.visit = NEVER;
        let deadline = entry.deadline;
        if deadline == self.position {
            entry.deadline = NEVER;
            self.armed -= 1;
            return true;
        }
        if deadline != NEVER {
            self.file_again(id, deadline);
        }
        false
    }

    #[inline(never)]
    fn file_again(&mut self, id: u32, deadline: u32) {
        self.file(id, deadline);
    }

    /// Makes the bucket of `visit` the one being drained.
    fn take_bucket(&mut self, visit: u32) {
        let (level, index) = place(visit);
        self.position = visit;
        self.occupied[level].clear(index);
        self.due = std::mem::replace(&mut self.buckets[level * BUCKETS + index], List::EMPTY);
        let count = self.pool.count(self.due);
        self.records -= count;
        // The ids of the first chunk have no earlier chunk that could ask for their entries.
        for place in 0..count.min(CHUNK_IDS) {
            self.prefetch_entry(place);
        }
    }

    /// Adds a record for `id` under the lowest level at which `deadline` and `position` differ.
    #[inline]
    fn file(&mut self, id: u32, deadline: u32) {
        // A deadline lies after the position, so the two differ; the 1 is there for the compiler.
        let level = (deadline ^ self.position | 1).ilog2() as usize / 8;
        let visit = deadline >> (level * 8) << (level * 8);
        let index = (deadline >> (level * 8)) as usize & (BUCKETS - 1);
        debug_assert_eq!((level, index), place(visit), "a tick concerns one bucket");
        self.entries[id as usize].visit = visit;
        self.occupied[level].set(index);
        self.pool
            .push(&mut self.buckets[level * BUCKETS + index], id);
        self.records += 1;
        let sooner = self.next_visit.is_none_or(|next| {
            visit.wrapping_sub(self.position) < next.wrapping_sub(self.position)
        });
        if sooner {
            self.next_visit = Some(visit);
        }
    }

    /// The first tick after `position` whose bucket holds records.
    fn earliest_visit(&self) -> Option<u32> {
        for (level, occupied) in self.occupied.iter().enumerate() {
            let shift = level as u32 * 8;
            let from = (self.position >> shift & 255) as usize + 1;
            let top = level == LEVELS - 1;
            // Below the top all records lie in the level's current round; only the top wraps.
            let found = occupied.first_from(from);
            if let Some(index) = found.or_else(|| occupied.first_from(0).filter(|_| top)) {
                let round = if top {
                    0
                } else {
                    self.position >> (shift + 8) << (shift + 8)
                };
                return Some(round | (index as u32) << shift);
            }
        }
        None
    }

    /// Drops every stale record from the buckets.
    ///
    /// It runs when more than half of them are stale, which makes it a constant per record filed,
    /// and leaves at most one record per armed id, whatever the durations are.
    #[cold]
    fn compact(&mut self) {
        for level in 0..LEVELS {
            let mut from = 0;
            while let Some(index) = self.occupied[level].first_from(from) {
                self.compact_bucket(level, index);
                from = index + 1;
            }
        }
    }

    fn compact_bucket(&mut self, level: usize, index: usize) {
        let bucket = level * BUCKETS + index;
        let mut records = std::mem::replace(&mut self.buckets[bucket], List::EMPTY);
        let mut kept = List::EMPTY;
        let mut tick = NEVER;
        while let Some(chunk) = self.pool.take_chunk(&mut records) {
            for &id in chunk.ids() {
                self.records -= 1;
                let entry = &mut self.entries[id as usize];
                if entry.visit == NEVER || place(entry.visit) != (level, index) {
                    continue;
                }
                // An id can be here twice, if it left and came back: forgetting its visit until
                // the bucket is done lets only the first record through.
                tick = entry.visit;
                entry.visit = NEVER;
                if entry.deadline != NEVER {
                    self.pool.push(&mut kept, id);
                    self.records += 1;
                }
            }
        }
        let entries = &mut self.entries;
        self.pool
            .for_each(kept, |id| entries[id as usize].visit = tick);
        if kept.is_empty() {
            self.occupied[level].clear(index);
        }
        self.buckets[bucket] = kept;
    }

    /// Returns the tick at which a deadline is kept: from the next one to the farthest one.
    #[inline]
    const fn bounded(&self, deadline: Tick) -> u32 {
        let ahead = deadline.value().wrapping_sub(self.now);
        let deadline = if ahead.wrapping_sub(1) < TICKS_AHEAD_MAX {
            deadline.value()
        } else if deadline.is_due(Tick::new(self.now)) {
            self.now.wrapping_add(1)
        } else {
            self.now.wrapping_add(TICKS_AHEAD_MAX)
        };
        if deadline == NEVER { 0 } else { deadline }
    }

    /// Returns true if `visit`, which is not before `position`, is not after `now` either.
    #[inline]
    const fn is_reached(&self, visit: u32) -> bool {
        visit.wrapping_sub(self.position) <= self.now.wrapping_sub(self.position)
    }
}

impl Entry {
    const IDLE: Self = Self {
        deadline: NEVER,
        visit: NEVER,
    };
}

/// The one bucket that is visited on `visit`: its level and its index there.
#[inline]
const fn place(visit: u32) -> (usize, usize) {
    let zero_bytes = visit.trailing_zeros() as usize / 8;
    let level = if zero_bytes < LEVELS {
        zero_bytes
    } else {
        LEVELS - 1
    };
    (level, (visit >> (level * 8)) as usize & (BUCKETS - 1))
}

const LEVELS: usize = 4;
const BUCKETS: usize = 256;
const NEVER: u32 = u32::MAX;
/// Stale records that a wheel may hold regardless of the number of live ones.
const RECORDS_SPARE: usize = 1024;

#[cfg(test)]
mod tests;
