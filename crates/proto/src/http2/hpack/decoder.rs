//! From field blocks to field lines.

use super::super::error::HpackError;
use super::dynamic_table::DynamicTable;
use super::section::FieldSection;
use super::{huffman, integer, static_table};

/// Decompresses the field blocks of one direction of a connection.
///
/// Shape: the dynamic table owns memory only while it has entries. A decoder that allows no table
/// owns nothing.
///
/// Source: RFC 7541 sections 3 and 6.
#[derive(Debug)]
pub struct HpackDecoder {
    table: DynamicTable,
}

/// A field as it stands in a block.
#[derive(Clone, Copy)]
enum Field<'b> {
    /// Name and value are those of an entry.
    Indexed(u32),
    /// The value is written, and perhaps the name.
    Literal {
        name: Name<'b>,
        value: Text<'b>,
        /// It goes into the dynamic table.
        is_kept: bool,
    },
    TableSize(u32),
}

#[derive(Clone, Copy)]
enum Name<'b> {
    Indexed(u32),
    Written(Text<'b>),
}

/// A string as it is written.
#[derive(Clone, Copy)]
struct Text<'b> {
    bytes: &'b [u8],
    is_coded: bool,
}

impl HpackDecoder {
    /// Makes a decoder that allows the other side a dynamic table of this size.
    ///
    /// Shape: until a client has taken in the settings of the server, it may use 4,096.
    pub fn new(table_bytes_max: u32) -> Self {
        Self {
            table: DynamicTable::new(table_bytes_max),
        }
    }

    /// The other side has acknowledged settings that allow so many bytes.
    ///
    /// Shape: if these are fewer than it uses, its next block has to begin by saying so.
    pub fn set_table_limit(&mut self, table_bytes_max: u32) {
        self.table.set_limit(table_bytes_max);
    }

    /// Takes in a part of a block.
    ///
    /// Shape: the lines go to `section`, which is to be empty before the first part of a block, and
    /// keeps the beginning of a field that is not complete. A block that is too large is read to
    /// its end all the same, so that the tables of both sides stay the same.
    ///
    /// # Errors
    /// [`HpackError`]; close the connection.
    pub fn decode(
        &mut self,
        fragment: &[u8],
        ends_block: bool,
        section: &mut FieldSection,
    ) -> Result<(), HpackError> {
        let mut rest = std::mem::take(&mut section.rest);
        if rest.is_empty() {
            let used = self.fields(fragment, section)?;
            rest.extend_from_slice(&fragment[used..]);
        } else {
            rest.extend_from_slice(fragment);
            let used = self.fields(&rest, section)?;
            rest.drain(..used);
        }
        if ends_block {
            if !rest.is_empty() {
                return Err(HpackError::Truncated);
            }
            section.join_cookies();
        }
        section.rest = rest;
        Ok(())
    }

    /// Reads the fields that are complete, and returns how many bytes they took.
    fn fields(&mut self, input: &[u8], section: &mut FieldSection) -> Result<usize, HpackError> {
        let mut used = 0;
        while let Some((field, length)) = Field::read(&input[used..])? {
            self.take(field, section)?;
            used += length;
        }
        Ok(used)
    }

    fn take(&mut self, field: Field<'_>, section: &mut FieldSection) -> Result<(), HpackError> {
        if let Field::TableSize(size) = field {
            return if section.has_begun {
                Err(HpackError::LateTableSize)
            } else {
                self.table.resize(size)
            };
        }
        if self.table.must_shrink() {
            return Err(HpackError::MissingTableSize);
        }
        section.has_begun = true;
        match field {
            Field::Indexed(index) => {
                let (name, value) = self.entry(index)?;
                let fits = name.len() + value.len() <= section.room();
                section.push(|text| {
                    if fits {
                        text.extend_from_slice(name);
                        text.extend_from_slice(value);
                    }
                    Ok(fits.then_some(name.len()))
                })
            }
            Field::Literal {
                name,
                value,
                is_kept,
            } => self.literal(name, value, is_kept, section),
            Field::TableSize(_) => Ok(()),
        }
    }

    /// Takes in a field whose value is written. If the section has no room for it, it is decoded
    /// all the same if it goes into the table, where an entry has a bound of its own.
    fn literal(
        &mut self,
        name: Name<'_>,
        value: Text<'_>,
        is_kept: bool,
        section: &mut FieldSection,
    ) -> Result<(), HpackError> {
        let room = if is_kept {
            section.room().max(self.table.size_max())
        } else {
            section.room()
        };
        let table = &mut self.table;
        section.push(|text| {
            let start = text.len();
            let mut fits = match name {
                Name::Indexed(index) => {
                    let (name, _) = entry(table, index)?;
                    let fits = name.len() <= room;
                    if fits {
                        text.extend_from_slice(name);
                    }
                    fits
                }
                Name::Written(name) => name.decode(text, start + room)?,
            };
            let name_length = text.len() - start;
            fits &= value.decode(text, start + room)?;
            if is_kept {
                let (name, value) = text[start..].split_at(name_length);
                if fits {
                    table.insert(name, value);
                } else {
                    table.clear();
                }
            }
            Ok(fits.then_some(name_length))
        })
    }

    fn entry(&self, index: u32) -> Result<(&[u8], &[u8]), HpackError> {
        entry(&self.table, index)
    }
}

/// Returns the name and the value of an entry of the tables.
///
/// Source: RFC 7541 section 2.3.3.
fn entry(table: &DynamicTable, index: u32) -> Result<(&[u8], &[u8]), HpackError> {
    let found = match index.checked_sub(static_table::LEN + 1) {
        Some(place) => table.entry(place),
        None => static_table::entry(index).map(|(name, value)| (name.as_bytes(), value.as_bytes())),
    };
    found.ok_or(HpackError::Index { index })
}

impl<'b> Field<'b> {
    /// Reads the field at the front of `input`, and how many bytes it takes; `None` if it is not
    /// complete.
    fn read(input: &'b [u8]) -> Result<Option<(Self, usize)>, HpackError> {
        let Some(first) = input.first() else {
            return Ok(None);
        };
        let (bits, is_kept) = match first.leading_zeros() {
            0 => (7, false),
            1 => (6, true),
            2 => (5, false),
            _ => (4, false),
        };
        let Some((number, mut used)) = integer::decode(input, bits)? else {
            return Ok(None);
        };
        match bits {
            7 => return Ok(Some((Self::Indexed(number), used))),
            5 => return Ok(Some((Self::TableSize(number), used))),
            _ => {}
        }
        let name = if number == 0 {
            let Some((name, length)) = Text::read(&input[used..])? else {
                return Ok(None);
            };
            used += length;
            Name::Written(name)
        } else {
            Name::Indexed(number)
        };
        let Some((value, length)) = Text::read(&input[used..])? else {
            return Ok(None);
        };
        let field = Self::Literal {
            name,
            value,
            is_kept,
        };
        Ok(Some((field, used + length)))
    }
}

impl<'b> Text<'b> {
    /// Reads the string at the front of `input`, and how many bytes it takes.
    ///
    /// Source: RFC 7541 section 5.2.
    fn read(input: &'b [u8]) -> Result<Option<(Self, usize)>, HpackError> {
        let Some((length, used)) = integer::decode(input, 7)? else {
            return Ok(None);
        };
        let end = used + length as usize;
        let is_coded = input[0] & 0x80 != 0;
        let text = input.get(used..end).map(|bytes| Self { bytes, is_coded });
        Ok(text.map(|text| (text, end)))
    }

    /// Appends it to `out`, which may have `out_max` bytes. Returns false if it does not fit.
    fn decode(self, out: &mut Vec<u8>, out_max: usize) -> Result<bool, HpackError> {
        if self.is_coded {
            return huffman::decode(self.bytes, out, out_max);
        }
        let fits = out.len() + self.bytes.len() <= out_max;
        if fits {
            out.extend_from_slice(self.bytes);
        }
        Ok(fits)
    }
}
