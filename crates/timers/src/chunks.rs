/// Ids of one chunk: with its three words of bookkeeping it fills 256 bytes.
pub(crate) const CHUNK_IDS: usize = 61;

/// A run of ids, linked to the next run of the same list.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Chunk {
    next: u32,
    count: u32,
    /// Ids in the chunks that follow.
    behind: u32,
    ids: [u32; CHUNK_IDS],
}

/// An unordered list of ids in chunks of a [`ChunkPool`]; only its first chunk may be part full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
}

/// The chunks of all lists of a wheel: chunks that a list frees are used again.
#[derive(Debug)]
pub(crate) struct ChunkPool {
    chunks: Vec<Chunk>,
    free: u32,
}

impl Chunk {
    pub(crate) const EMPTY: Self = Self {
        next: NONE,
        count: 0,
        behind: 0,
        ids: [0; CHUNK_IDS],
    };

    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids[..self.count as usize]
    }

    pub(crate) const fn count(&self) -> usize {
        self.count as usize
    }

    /// Takes the last id.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        Some(self.ids[self.count as usize])
    }
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NONE };

    pub(crate) const fn is_empty(self) -> bool {
        self.head == NONE
    }
}

impl ChunkPool {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free: NONE,
        }
    }

    /// Adds `id` to the list.
    #[inline]
    pub(crate) fn push(&mut self, list: &mut List, id: u32) {
        if list.is_empty() || self.chunks[list.head as usize].count as usize == CHUNK_IDS {
            self.prepend_chunk(list);
        }
        let chunk = &mut self.chunks[list.head as usize];
        chunk.ids[chunk.count as usize] = id;
        chunk.count += 1;
    }

    /// Takes the first chunk off the list, giving its place back to the pool.
    pub(crate) fn take_chunk(&mut self, list: &mut List) -> Option<Chunk> {
        if list.is_empty() {
            return None;
        }
        let index = list.head;
        let slot = &mut self.chunks[index as usize];
        let taken = *slot;
        slot.next = self.free;
        self.free = index;
        list.head = taken.next;
        Some(taken)
    }

    /// Returns the number of ids in the list.
    pub(crate) fn count(&self, list: List) -> usize {
        let first = self.chunks.get(list.head as usize);
        first.map_or(0, |chunk| (chunk.count + chunk.behind) as usize)
    }

    /// The id at `place` of the list's first chunk, whether or not the list still holds that one.
    #[inline]
    pub(crate) fn first_chunk_id(&self, list: List, place: usize) -> Option<u32> {
        let chunk = self.chunks.get(list.head as usize)?;
        chunk.ids.get(place).copied()
    }

    /// Shows every id of the list, in no particular order.
    pub(crate) fn for_each(&self, list: List, mut visit: impl FnMut(u32)) {
        let mut index = list.head;
        while index != NONE {
            let chunk = &self.chunks[index as usize];
            chunk.ids().iter().copied().for_each(&mut visit);
            index = chunk.next;
        }
    }

    /// Returns the number of chunks ever made.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> usize {
        self.chunks.len()
    }

    #[cold]
    fn prepend_chunk(&mut self, list: &mut List) {
        let index = if self.free == NONE {
            self.chunks.push(Chunk::EMPTY);
            (self.chunks.len() - 1) as u32
        } else {
            let index = self.free;
            self.free = self.chunks[index as usize].next;
            index
        };
        let behind = self.count(*list) as u32;
        let chunk = &mut self.chunks[index as usize];
        chunk.next = list.head;
        chunk.count = 0;
        chunk.behind = behind;
        list.head = index;
    }
}

const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_four_cache_lines() {
        assert_eq!(size_of::<Chunk>(), 256);
    }

    #[test]
    fn lists_return_what_they_were_given_and_reuse_chunks() {
        let mut pool = ChunkPool::new();
        for _ in 0..10 {
            let (mut odd, mut even) = (List::EMPTY, List::EMPTY);
            for id in 0..500 {
                pool.push(if id % 2 == 1 { &mut odd } else { &mut even }, id);
            }
            assert_eq!((pool.count(odd), pool.count(even)), (250, 250));
            let mut ids = Vec::new();
            pool.for_each(odd, |id| ids.push(id));
            while let Some(mut chunk) = pool.take_chunk(&mut even) {
                ids.extend(std::iter::from_fn(|| chunk.pop()));
            }
            while pool.take_chunk(&mut odd).is_some() {}
            ids.sort_unstable();
            assert_eq!(ids, (0..500).collect::<Vec<_>>());
            assert!(odd.is_empty() && even.is_empty());
            assert_eq!((pool.count(odd), pool.count(even)), (0, 0));
        }
        assert_eq!(pool.allocated(), 2 * 250_usize.div_ceil(CHUNK_IDS));
    }
}
