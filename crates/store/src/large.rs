//! The values too large for a record, each in a run of bytes that readers share.

use crate::arena::{Arena, SharedRun};
use crate::record::NIL;

/// The fewest slots that the table grows by.
const GROWTH_MIN: usize = 8;

#[derive(Debug)]
enum Slot {
    /// The key followed by the value.
    Taken(SharedRun),
    /// The next vacant slot.
    Vacant(u32),
}

const _: () = assert!(size_of::<Slot>() == 16, "a slot is a pointer and a word");

#[derive(Debug)]
pub(crate) struct LargeValues {
    slots: Vec<Slot>,
    /// The first vacant slot.
    vacant: u32,
    taken: usize,
}

impl Default for LargeValues {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            vacant: NIL,
            taken: 0,
        }
    }
}

impl LargeValues {
    /// The bytes that a value of `len` bytes with its key takes, its slot aside.
    pub(crate) fn value_bytes(len: usize) -> usize {
        Arena::run_bytes(Arena::shared_len(len))
    }

    /// The most bytes that a value more takes, its slot aside.
    pub(crate) fn demand(len: usize, arena: &Arena) -> usize {
        arena.demand(Arena::shared_len(len))
    }

    /// The bytes that the slots take more when a value is added.
    pub(crate) fn growth_bytes(&self) -> usize {
        let is_full = self.vacant == NIL && self.slots.len() == self.slots.capacity();
        let slots = if is_full { self.growth() } else { 0 };
        slots * size_of::<Slot>()
    }

    /// The bytes of the slots; the values are the arena's.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    fn growth(&self) -> usize {
        (self.slots.len() / 16).max(GROWTH_MIN)
    }

    pub(crate) fn insert(&mut self, data: SharedRun) -> u32 {
        self.taken += 1;
        let slot = self.vacant;
        if let Some(Slot::Vacant(next)) = self.slots.get(slot as usize) {
            self.vacant = *next;
            self.slots[slot as usize] = Slot::Taken(data);
            return slot;
        }
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(self.growth());
        }
        self.slots.push(Slot::Taken(data));
        (self.slots.len() - 1) as u32
    }

    pub(crate) fn value(&self, slot: u32) -> Option<&SharedRun> {
        match self.slots.get(slot as usize) {
            Some(Slot::Taken(data)) => Some(data),
            _ => None,
        }
    }

    /// Returns a value, which the caller may write in place if it is not shared.
    pub(crate) fn value_mut(&mut self, slot: u32) -> Option<&mut SharedRun> {
        match self.slots.get_mut(slot as usize) {
            Some(Slot::Taken(data)) => Some(data),
            _ => None,
        }
    }

    /// Frees the value of a slot that is taken again by [`LargeValues::replace`].
    pub(crate) fn vacate(&mut self, slot: u32, arena: &mut Arena) {
        self.put(slot, Slot::Vacant(NIL), arena);
    }

    pub(crate) fn replace(&mut self, slot: u32, data: SharedRun, arena: &mut Arena) {
        self.put(slot, Slot::Taken(data), arena);
    }

    fn put(&mut self, slot: u32, with: Slot, arena: &mut Arena) {
        if let Some(there) = self.slots.get_mut(slot as usize)
            && let Slot::Taken(before) = std::mem::replace(there, with)
        {
            arena.free_shared(before);
        }
    }

    pub(crate) fn remove(&mut self, slot: u32, arena: &mut Arena) {
        let vacant = Slot::Vacant(self.vacant);
        if let Some(there) = self.slots.get_mut(slot as usize)
            && let Slot::Taken(data) = std::mem::replace(there, vacant)
        {
            arena.free_shared(data);
            self.taken -= 1;
            self.vacant = slot;
        }
        if self.taken == 0 {
            *self = Self::default();
        }
    }
}
