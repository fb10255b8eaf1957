//! The layout of an item in a segment: a header of 32 bytes, the key, the value.
//!
//! The first word of a record is its [`Tag`], which has its length and kind. A record whose place
//! is [`Place::Vacant`] consists of that word and a gap. The value of a large item is elsewhere:
//! its record ends with the slot of the value in place of key and value.

use crate::arena::SharedRun;
use crate::item::{Expiry, Item, ItemRef, Seconds, Value};

/// No record.
pub(crate) const NIL: u32 = u32::MAX;

/// Records begin at multiples of this and take multiples of it.
pub(crate) const UNIT_BYTES: usize = 4;

pub(crate) const HEADER_BYTES: usize = 32;

/// The longest record; an item that would need more has its bytes in a run of their own.
pub(crate) const RECORD_BYTES_MAX: usize = 1024;

/// The units of a record of a large item.
pub(crate) const LARGE_UNITS: u32 = (HEADER_BYTES / UNIT_BYTES) as u32 + 1;

/// Offsets of the words of a header.
pub(crate) mod word {
    pub(crate) const TAG: usize = 0;
    /// The next record of the hash bucket.
    pub(crate) const CHAIN: usize = 4;
    pub(crate) const HASH: usize = 8;
    pub(crate) const EXPIRY: usize = 12;
    pub(crate) const FLAGS: usize = 16;
    pub(crate) const USED: usize = 20;
    /// Two words, the low one first.
    pub(crate) const CAS: usize = 24;
}

/// Marks of an item.
pub(crate) mod mark {
    /// The item has been read since it was stored.
    pub(crate) const FETCHED: u8 = 1;
    /// The item was invalidated.
    pub(crate) const STALE: u8 = 2;
    /// A caller has won the right to store a fresh value.
    pub(crate) const WIN_SENT: u8 = 4;
    /// The item is a copy of what can be had again: it goes before others.
    pub(crate) const FILLED: u8 = 8;
}

/// The queue of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Vacant,
    Small,
    Main,
}

/// The uses an item can have saved up.
const USES_MAX: u8 = 3;

const UNITS_MASK: u32 = 0xfff;
const PADDING_SHIFT: u32 = 12;
const LARGE_BIT: u32 = 1 << 14;
const PLACE_SHIFT: u32 = 15;
const USES_SHIFT: u32 = 17;
const MARKS_SHIFT: u32 = 19;
const MARKS_MASK: u8 = 0xf;
const KEY_SHIFT: u32 = 24;

/// The first word of a record.
///
/// Shape, from the low bits: 12 bits of units, 2 of padding bytes at the end, 1 that marks a large
/// item, 2 of place, 2 of recent uses, 4 of marks, and in the highest byte the length of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u32);

impl Tag {
    /// The tag of a gap.
    pub(crate) fn vacant(units: u32) -> Self {
        Self(units & UNITS_MASK)
    }

    /// The tag of an item whose key and value are in the record.
    pub(crate) fn small(key_len: usize, value_len: usize) -> Self {
        let units = units_for(key_len + value_len);
        let padding = units as usize * UNIT_BYTES - HEADER_BYTES - key_len - value_len;
        Self(units | (padding as u32) << PADDING_SHIFT | (key_len as u32) << KEY_SHIFT)
    }

    /// The tag of an item whose key and value are elsewhere.
    pub(crate) fn large(key_len: usize) -> Self {
        Self(LARGE_UNITS | LARGE_BIT | (key_len as u32) << KEY_SHIFT)
    }

    pub(crate) fn with(self, place: Place, uses: u8, marks: u8) -> Self {
        Self(self.0 & !(0xff << PLACE_SHIFT) | u32::from(marks & MARKS_MASK) << MARKS_SHIFT)
            .with_place(place)
            .with_uses(uses)
    }

    pub(crate) fn with_place(self, place: Place) -> Self {
        Self(self.0 & !(3 << PLACE_SHIFT) | (place as u32) << PLACE_SHIFT)
    }

    pub(crate) fn with_uses(self, uses: u8) -> Self {
        let uses = u32::from(uses.min(USES_MAX));
        Self(self.0 & !(3 << USES_SHIFT) | uses << USES_SHIFT)
    }

    pub(crate) fn with_mark(self, mark: u8) -> Self {
        Self(self.0 | u32::from(mark & MARKS_MASK) << MARKS_SHIFT)
    }

    pub(crate) fn units(self) -> u32 {
        self.0 & UNITS_MASK
    }

    pub(crate) fn bytes(self) -> usize {
        self.units() as usize * UNIT_BYTES
    }

    pub(crate) fn is_large(self) -> bool {
        self.0 & LARGE_BIT != 0
    }

    /// Returns true if a record of so many units can be written in the place of this one.
    pub(crate) fn can_become(self, units: u32, is_large: bool) -> bool {
        self.is_large() == is_large && units <= self.units()
    }

    pub(crate) fn place(self) -> Place {
        match self.0 >> PLACE_SHIFT & 3 {
            0 => Place::Vacant,
            1 => Place::Small,
            _ => Place::Main,
        }
    }

    pub(crate) fn uses(self) -> u8 {
        (self.0 >> USES_SHIFT & 3) as u8
    }

    pub(crate) fn marks(self) -> u8 {
        (self.0 >> MARKS_SHIFT) as u8 & MARKS_MASK
    }

    pub(crate) fn key_len(self) -> usize {
        (self.0 >> KEY_SHIFT) as usize
    }

    fn padding(self) -> usize {
        (self.0 >> PADDING_SHIFT & 3) as usize
    }
}

/// Returns true if an item of `len` bytes of key and value lies in its record.
pub(crate) fn is_small(len: usize) -> bool {
    len <= RECORD_BYTES_MAX - HEADER_BYTES
}

/// The units of a record with `len` bytes of key and value.
pub(crate) fn units_for(len: usize) -> u32 {
    (HEADER_BYTES + len).div_ceil(UNIT_BYTES) as u32
}

/// Reads a word of a record.
#[inline]
pub(crate) fn word_at(record: &[u8], place: usize) -> u32 {
    record[place..]
        .first_chunk()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The fields of a header beside key and value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) hash: u32,
    pub(crate) expiry: Expiry,
    pub(crate) flags: u32,
    pub(crate) used: Seconds,
    pub(crate) cas: u64,
}

/// Writes the header of a record, its tag and chain aside.
#[inline]
pub(crate) fn write_state(record: &mut [u8], state: &State) {
    let Some(record) = record.first_chunk_mut::<HEADER_BYTES>() else {
        return;
    };
    let mut write = |place: usize, value: u32| {
        record[place..place + size_of::<u32>()].copy_from_slice(&value.to_le_bytes());
    };
    write(word::HASH, state.hash);
    write(word::EXPIRY, state.expiry.word());
    write(word::FLAGS, state.flags);
    write(word::USED, state.used);
    write(word::CAS, state.cas as u32);
    write(word::CAS + size_of::<u32>(), (state.cas >> 32) as u32);
}

/// The key and value of a small item's record.
#[inline]
pub(crate) fn small_data(record: &[u8], tag: Tag) -> &[u8] {
    &record[HEADER_BYTES..tag.bytes() - tag.padding()]
}

/// One item as it lies in the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// The key followed by the value.
    data: &'a [u8],
    /// The run that has them, of a large item.
    pub(crate) shared: Option<&'a SharedRun>,
    pub(crate) tag: Tag,
    pub(crate) hash: u32,
    pub(crate) expiry: Expiry,
    pub(crate) flags: u32,
    pub(crate) used: Seconds,
    pub(crate) cas: u64,
}

impl<'a> Entry<'a> {
    /// Reads the header of a record whose key and value are `data`.
    #[inline]
    pub(crate) fn new(record: &'a [u8], data: &'a [u8], shared: Option<&'a SharedRun>) -> Self {
        let record = record.first_chunk().unwrap_or(&[0; HEADER_BYTES]);
        let cas_low = u64::from(word_at(record, word::CAS));
        let cas_high = u64::from(word_at(record, word::CAS + size_of::<u32>()));
        Self {
            data,
            shared,
            tag: Tag(word_at(record, word::TAG)),
            hash: word_at(record, word::HASH),
            expiry: Expiry::from_word(word_at(record, word::EXPIRY)),
            flags: word_at(record, word::FLAGS),
            used: word_at(record, word::USED),
            cas: cas_high << 32 | cas_low,
        }
    }

    /// An item without a value that is not in the store.
    pub(crate) fn blank(key: &'a [u8], expiry: Expiry, cas: u64) -> Self {
        Self {
            data: key,
            shared: None,
            tag: Tag::small(key.len(), 0),
            hash: 0,
            expiry,
            flags: 0,
            used: 0,
            cas,
        }
    }

    pub(crate) fn key(&self) -> &'a [u8] {
        &self.data[..self.tag.key_len()]
    }

    pub(crate) fn value(&self) -> &'a [u8] {
        &self.data[self.tag.key_len()..]
    }

    pub(crate) fn is_large(&self) -> bool {
        self.shared.is_some()
    }

    pub(crate) fn has(&self, mark: u8) -> bool {
        self.tag.marks() & mark != 0
    }

    /// The item for a caller to read.
    pub(crate) fn item_ref(&self) -> ItemRef<'a> {
        ItemRef {
            value: self.value(),
            flags: self.flags,
            cas: self.cas,
        }
    }

    /// The item for a caller to keep: shared if it is large, else a copy.
    pub(crate) fn item(&self) -> Item {
        let key_len = self.tag.key_len() as u8;
        Item {
            value: match self.shared {
                Some(run) => Value::shared(run.clone(), key_len),
                None => Value::copied(self.data, key_len),
            },
            flags: self.flags,
            cas: self.cas,
        }
    }
}
