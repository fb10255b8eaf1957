//! The memory that records lie in: two queues of segments, each written from one end to the other.
//!
//! A record stays where it was appended until it is released, or moved by a caller that updates all
//! references to it. A segment is given back as soon as its last record is released. So the memory
//! of the queues is the sum of their segments and nothing besides.
//!
//! A record is named by its segment and the unit it begins at, in one word.

use crate::arena::{Arena, Run};
use crate::record::{NIL, Place, Tag, UNIT_BYTES, word, word_at};

/// The bits of a record's name that hold its offset in its segment.
const UNIT_BITS: u32 = 13;

/// The longest segment, all of whose units can be named.
pub(crate) const SEGMENT_BYTES_MAX: usize = UNIT_BYTES << UNIT_BITS;

/// The segments that can be named; the last one's last unit would be [`NIL`].
const SEGMENTS_MAX: usize = (1 << (32 - UNIT_BITS)) - 1;

/// The fewest segments that the table of segments grows by.
const GROWTH_MIN: usize = 8;

/// The segments that are compared to find one worth cleaning.
const CANDIDATES_MAX: usize = 64;

/// The part of a segment that gaps have to be for its cleaning to be worth the copies.
pub(crate) const GAP_SHARE: u32 = 16;

#[derive(Debug)]
struct Segment {
    /// Empty if there is no such segment.
    bytes: Run,
    /// The units that have been appended.
    filled: u32,
    /// The records among them that have an item.
    live: u32,
    /// No item is before this unit.
    first: u32,
    /// The unit at which the sweep goes on.
    swept: u32,
    /// The next segment of the queue, or of the list of vacant ones.
    newer: u32,
    older: u32,
    place: Place,
}

/// The segments of one queue, and what their records take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    oldest: u32,
    newest: u32,
    /// The bytes of the records and of the values elsewhere.
    pub(crate) bytes: usize,
    pub(crate) items: usize,
}

impl Queue {
    const EMPTY: Self = Self {
        oldest: NIL,
        newest: NIL,
        bytes: 0,
        items: 0,
    };
}

/// The bound of a sweep: so many records, and no further than once around.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// The records that may still be visited, gaps included.
    pub(crate) records_left: usize,
    segments_passed: usize,
}

impl Sweep {
    pub(crate) fn new(records: usize) -> Self {
        Self {
            records_left: records,
            segments_passed: 0,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Segments {
    table: Vec<Segment>,
    /// The memory of segments, and of all else that items need: dropped last, so that what is left
    /// of it then is what readers hold.
    pub(crate) arena: Arena,
    /// The first vacant entry of the table.
    vacant: u32,
    pub(crate) small: Queue,
    pub(crate) main: Queue,
    /// The sums over all segments.
    filled: usize,
    live: usize,
    /// The segment that the sweep visits.
    sweeping: usize,
    /// The segment at which the search for one to clean goes on.
    cleaning: usize,
}

impl Segments {
    pub(crate) fn new(arena: Arena) -> Self {
        Self {
            table: Vec::new(),
            arena,
            vacant: NIL,
            small: Queue::EMPTY,
            main: Queue::EMPTY,
            filled: 0,
            live: 0,
            sweeping: 0,
            cleaning: 0,
        }
    }

    /// The bytes of everything in the arena, and of the table of segments.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.bytes() + self.table_bytes()
    }

    /// The bytes of the table of segments.
    pub(crate) fn table_bytes(&self) -> usize {
        self.table.capacity() * size_of::<Segment>()
    }

    /// The bytes of gaps between items.
    pub(crate) fn gap_bytes(&self) -> usize {
        (self.filled - self.live) * UNIT_BYTES
    }

    /// The bytes that [`Segments::open`] would take; `None` if no further segment can be named.
    pub(crate) fn opening_bytes(&self, segment_bytes: usize) -> Option<usize> {
        let is_full = self.vacant == NIL && self.table.len() == self.table.capacity();
        let entries = if is_full { self.growth() } else { 0 };
        (self.vacant != NIL || self.table.len() < SEGMENTS_MAX)
            .then_some(self.arena.demand(segment_bytes) + entries * size_of::<Segment>())
    }

    fn growth(&self) -> usize {
        (self.table.len() / 16).max(GROWTH_MIN)
    }

    /// Begins a segment at the new end of a queue.
    ///
    /// The caller has seen that it can be named, and that the longest record fits in.
    pub(crate) fn open(&mut self, place: Place, segment_bytes: usize) {
        let older = self.queue(place).newest;
        let segment = Segment {
            bytes: self.arena.take(segment_bytes),
            filled: 0,
            live: 0,
            first: 0,
            swept: 0,
            newer: NIL,
            older,
            place,
        };
        let index = self.vacant;
        let index = if index == NIL {
            if self.table.len() == self.table.capacity() {
                self.table.reserve_exact(self.growth());
            }
            self.table.push(segment);
            (self.table.len() - 1) as u32
        } else {
            self.vacant = self.table[index as usize].newer;
            self.table[index as usize] = segment;
            index
        };
        let queue = self.queue_mut(place);
        queue.newest = index;
        if older == NIL {
            queue.oldest = index;
            return;
        }
        self.table[older as usize].newer = index;
        if self.table[older as usize].live == 0 {
            self.give_back(older as usize);
        }
    }

    /// Returns true if a record of so many units fits at the new end of a queue.
    pub(crate) fn has_room(&self, place: Place, units: u32) -> bool {
        self.table
            .get(self.queue(place).newest as usize)
            .is_some_and(|segment| {
                (segment.filled + units) as usize * UNIT_BYTES <= segment.bytes.len()
            })
    }

    /// Appends a record, of which only the tag is written; the caller has seen that it fits.
    pub(crate) fn append(&mut self, tag: Tag) -> u32 {
        let place = tag.place();
        let queue = self.queue_mut(place);
        let index = queue.newest;
        queue.bytes += tag.bytes();
        queue.items += 1;
        let units = tag.units();
        self.filled += units as usize;
        self.live += units as usize;
        let segment = &mut self.table[index as usize];
        let at = index << UNIT_BITS | segment.filled;
        segment.filled += units;
        segment.live += units;
        self.set_word(at, word::TAG, tag.0);
        at
    }

    /// Makes a gap of a record, and gives its segment back if it was the last one in it.
    pub(crate) fn release(&mut self, at: u32) {
        let tag = self.tag(at);
        self.set_word(at, word::TAG, Tag::vacant(tag.units()).0);
        let queue = self.queue_mut(tag.place());
        queue.bytes -= tag.bytes();
        queue.items -= 1;
        self.live -= tag.units() as usize;
        let index = index_of(at);
        let segment = &mut self.table[index];
        segment.live -= tag.units();
        if segment.live > 0 {
            return;
        }
        if segment.newer == NIL {
            // The next record goes there.
            self.filled -= segment.filled as usize;
            segment.filled = 0;
            segment.first = 0;
            segment.swept = 0;
        } else {
            self.give_back(index);
        }
    }

    /// Gives another tag to a record, which may be shorter than before.
    pub(crate) fn retag(&mut self, at: u32, tag: Tag) {
        let before = self.tag(at);
        let gap = before.units() - tag.units();
        self.set_word(at, word::TAG, tag.0);
        if gap == 0 {
            return;
        }
        self.set_word(at + tag.units(), word::TAG, Tag::vacant(gap).0);
        self.live -= gap as usize;
        self.table[index_of(at)].live -= gap;
        self.queue_mut(tag.place()).bytes -= gap as usize * UNIT_BYTES;
    }

    /// Gives back what holds no item: the segments that the next records would go to.
    ///
    /// Shape: whether there were any.
    pub(crate) fn give_back_empty(&mut self) -> bool {
        let before = self.arena.bytes();
        for place in [Place::Small, Place::Main] {
            let newest = self.queue(place).newest as usize;
            let segment = self.table.get(newest);
            if segment.is_some_and(|segment| segment.live == 0) {
                self.give_back(newest);
            }
        }
        self.arena.bytes() < before
    }

    /// Takes a segment without items out of its queue.
    fn give_back(&mut self, index: usize) {
        let segment = &mut self.table[index];
        let (older, newer, place) = (segment.older, segment.newer, segment.place);
        self.arena.free(std::mem::take(&mut segment.bytes));
        self.filled -= segment.filled as usize;
        segment.filled = 0;
        segment.place = Place::Vacant;
        segment.newer = self.vacant;
        self.vacant = index as u32;
        match self.table.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.queue_mut(place).oldest = newer,
        }
        match self.table.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.queue_mut(place).newest = older,
        }
    }

    /// The oldest item of a queue.
    pub(crate) fn oldest(&mut self, place: Place) -> Option<u32> {
        let index = self.queue(place).oldest;
        let first = self.table.get(index as usize)?.first;
        let at = self.next_in(index, first)?;
        self.table[index as usize].first = unit_of(at);
        Some(at)
    }

    /// All segments: those of the small queue, then those of the main queue, the oldest first.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = u32> {
        self.in_queue(Place::Small)
            .chain(self.in_queue(Place::Main))
    }

    /// The segments of a queue, the oldest first.
    pub(crate) fn in_queue(&self, place: Place) -> impl Iterator<Item = u32> {
        let name = |index: u32| (index != NIL).then_some(index);
        let newer = move |&index: &u32| name(self.table[index as usize].newer);
        std::iter::successors(name(self.queue(place).oldest), newer)
    }

    /// The items of a segment, the oldest first.
    pub(crate) fn iter_in(&self, index: u32) -> impl Iterator<Item = u32> {
        let first = self.next_in(index, 0);
        std::iter::successors(first, move |&at| self.next_in(index, self.end_of(at)))
    }

    /// The next item of a segment at `unit` or behind it.
    pub(crate) fn next_in(&self, index: u32, unit: u32) -> Option<u32> {
        let segment = self.table.get(index as usize)?;
        let mut unit = unit;
        while unit < segment.filled {
            let at = index << UNIT_BITS | unit;
            let tag = self.tag(at);
            if tag.place() != Place::Vacant {
                return Some(at);
            }
            unit += tag.units();
        }
        None
    }

    /// The unit behind a record.
    pub(crate) fn end_of(&self, at: u32) -> u32 {
        unit_of(at) + self.tag(at).units()
    }

    /// The next item for a sweep to visit, which goes on where the last one ended.
    pub(crate) fn sweep(&mut self, sweep: &mut Sweep) -> Option<u32> {
        while sweep.records_left > 0 && sweep.segments_passed <= self.table.len() {
            let Some(segment) = self.table.get_mut(self.sweeping) else {
                self.sweeping = 0;
                if self.table.is_empty() {
                    return None;
                }
                continue;
            };
            if segment.swept >= segment.filled {
                segment.swept = 0;
                self.sweeping += 1;
                sweep.segments_passed += 1;
                continue;
            }
            let at = (self.sweeping as u32) << UNIT_BITS | segment.swept;
            let tag = self.tag(at);
            self.table[self.sweeping].swept += tag.units();
            sweep.records_left -= 1;
            if tag.place() != Place::Vacant {
                return Some(at);
            }
        }
        None
    }

    /// The segment with the largest part of gaps among some, which are others every time.
    ///
    /// With `with_ends` any gap counts, and those segments are compared, too, that are being
    /// emptied and filled.
    pub(crate) fn cleanable(&mut self, with_ends: bool) -> Option<u32> {
        let mut best = None;
        let mut best_gaps = 0;
        for _ in 0..CANDIDATES_MAX.min(self.table.len()) {
            let index = self.cleaning % self.table.len();
            self.cleaning = index + 1;
            let segment = &self.table[index];
            let is_end = segment.newer == NIL || segment.older == NIL;
            let gaps = segment.filled - segment.live;
            let is_worth = with_ends || !is_end && gaps >= segment.filled / GAP_SHARE;
            if segment.place != Place::Vacant && is_worth && gaps > best_gaps {
                best = Some(index as u32);
                best_gaps = gaps;
            }
        }
        best
    }

    /// Returns true if the next records of a queue go to this segment.
    pub(crate) fn is_newest(&self, index: u32) -> bool {
        self.table[index as usize].newer == NIL
    }

    pub(crate) fn place_of(&self, index: u32) -> Place {
        self.table[index as usize].place
    }

    #[inline]
    pub(crate) fn tag(&self, at: u32) -> Tag {
        Tag(word_at(self.record(at), word::TAG))
    }

    /// The bytes from the beginning of a record to the end of its segment.
    #[inline]
    pub(crate) fn record(&self, at: u32) -> &[u8] {
        &self.table[index_of(at)].bytes[unit_of(at) as usize * UNIT_BYTES..]
    }

    #[inline]
    pub(crate) fn record_mut(&mut self, at: u32) -> &mut [u8] {
        &mut self.table[index_of(at)].bytes[unit_of(at) as usize * UNIT_BYTES..]
    }

    #[inline]
    pub(crate) fn set_word(&mut self, at: u32, place: usize, value: u32) {
        if let Some(bytes) = self.record_mut(at)[place..].first_chunk_mut() {
            *bytes = value.to_le_bytes();
        }
    }

    /// Copies all but the tag of a record to another one of the same length.
    pub(crate) fn copy(&mut self, from: u32, to: u32) {
        let len = self.tag(from).bytes();
        let source = unit_of(from) as usize * UNIT_BYTES;
        let target = unit_of(to) as usize * UNIT_BYTES;
        let (source, target) = (source + word::CHAIN..source + len, target + word::CHAIN);
        let (from, to) = (index_of(from), index_of(to));
        if let Ok([from, to]) = self.table.get_disjoint_mut([from, to]) {
            let target = target..target + source.len();
            to.bytes[target].copy_from_slice(&from.bytes[source]);
        } else {
            self.table[from].bytes.copy_within(source, target);
        }
    }

    pub(crate) fn queue(&self, place: Place) -> &Queue {
        if place == Place::Main {
            &self.main
        } else {
            &self.small
        }
    }

    pub(crate) fn queue_mut(&mut self, place: Place) -> &mut Queue {
        if place == Place::Main {
            &mut self.main
        } else {
            &mut self.small
        }
    }
}

fn index_of(at: u32) -> usize {
    (at >> UNIT_BITS) as usize
}

fn unit_of(at: u32) -> u32 {
    at & ((1 << UNIT_BITS) - 1)
}

#[cfg(test)]
impl Segments {
    /// Counts everything again and compares.
    pub(crate) fn check(&self) {
        let (mut filled, mut live) = (0, 0);
        for (index, segment) in self.table.iter().enumerate() {
            assert_eq!(segment.place == Place::Vacant, segment.bytes.is_empty());
            if segment.place == Place::Vacant {
                continue;
            }
            let (mut unit, mut items) = (0, 0);
            while unit < segment.filled {
                let tag = self.tag((index as u32) << UNIT_BITS | unit);
                let is_live = tag.place() != Place::Vacant;
                assert!(!is_live || tag.place() == segment.place && unit >= segment.first);
                items += if is_live { tag.units() } else { 0 };
                unit += tag.units();
            }
            assert_eq!((unit, items), (segment.filled, segment.live));
            assert!(segment.live > 0 || segment.newer == NIL && unit == 0);
            filled += segment.filled as usize;
            live += segment.live as usize;
        }
        assert_eq!((filled, live), (self.filled, self.live));
    }
}
