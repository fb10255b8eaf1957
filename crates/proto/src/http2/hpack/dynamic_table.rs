//! The dynamic table of a decoder.

use super::super::error::HpackError;
use std::collections::VecDeque;

/// Fields that the other side has sent before, the newest first.
///
/// Shape: a table that may have nothing owns no memory.
///
/// Source: RFC 7541 sections 2.3.2 and 4.
#[derive(Debug)]
pub(super) struct DynamicTable {
    entries: VecDeque<Entry>,
    /// Units: bytes by the count of the standard, 32 for each entry among them.
    size: usize,
    /// The size that the other side keeps to.
    size_max: u32,
    /// The size that settings allow it.
    limit: u32,
    /// It has to say that it keeps to the limit.
    must_shrink: bool,
}

/// A name and the value behind it.
#[derive(Debug)]
struct Entry {
    text: Box<[u8]>,
    name_length: usize,
}

/// Bytes that count for an entry beside its own.
pub(super) const ENTRY_OVERHEAD: usize = 32;

impl Entry {
    fn size(&self) -> usize {
        self.text.len() + ENTRY_OVERHEAD
    }
}

impl DynamicTable {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            size_max: limit,
            limit,
            must_shrink: false,
        }
    }

    /// The other side has acknowledged settings with this limit.
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        self.must_shrink = self.size_max > limit;
    }

    /// The other side says to what size it keeps.
    pub(super) fn resize(&mut self, size: u32) -> Result<(), HpackError> {
        let limit = self.limit;
        if size > limit {
            return Err(HpackError::TableSize { limit, size });
        }
        self.size_max = size;
        self.must_shrink = false;
        self.evict(0);
        if size == 0 {
            self.entries = VecDeque::new();
        }
        Ok(())
    }

    /// Returns true if a block has to begin with a smaller size.
    pub(super) fn must_shrink(&self) -> bool {
        self.must_shrink
    }

    /// Returns the name and the value of an entry, from 0 on.
    pub(super) fn entry(&self, place: u32) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(usize::try_from(place).ok()?)?;
        Some(entry.text.split_at(entry.name_length))
    }

    /// Inserts a field; one that is larger than the table empties it.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + ENTRY_OVERHEAD;
        self.evict(size);
        if size <= self.size_max as usize {
            let entry = Entry {
                text: [name, value].concat().into(),
                name_length: name.len(),
            };
            self.size += entry.size();
            self.entries.push_front(entry);
        }
    }

    /// Drops the oldest entries until there is room for so many bytes.
    fn evict(&mut self, room: usize) {
        while self.size + room > self.size_max as usize
            && let Some(oldest) = self.entries.pop_back()
        {
            self.size -= oldest.size();
        }
    }

    /// Drops all entries, as one that is larger than the table does.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.size = 0;
    }

    /// Units: bytes that the other side keeps to.
    pub(super) fn size_max(&self) -> usize {
        self.size_max as usize
    }
}
