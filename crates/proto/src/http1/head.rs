//! The end of a head, its limits, and the grammar that both sides share.

use std::mem::MaybeUninit;

use httparse::Header;
use memchr::{memchr, memchr_iter};

use super::error::HeadError;
use super::fields::Fields;
use super::framing::FramingFields;

/// The most that one head may hold.
///
/// Units: bytes, and field lines. More than 128 field lines are never accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// From the first byte to the end of the empty line.
    pub head_bytes_max: usize,
    /// The request target alone.
    pub target_bytes_max: usize,
    /// The field lines.
    pub field_count_max: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            head_bytes_max: 16_384,
            target_bytes_max: 8_192,
            field_count_max: 100,
        }
    }
}

/// Room on the stack for the field lines of one head.
///
/// Shape: 4 KiB that are not cleared, so making one costs nothing; make it where it is used.
pub struct FieldStorage<'b> {
    slots: [MaybeUninit<Header<'b>>; FIELD_COUNT_CEILING],
    /// The fields of heads whose first line the grammar does not take; allocated when one comes.
    apart: Vec<Header<'b>>,
}

impl<'b> FieldStorage<'b> {
    /// Empty room.
    #[inline]
    pub fn new() -> Self {
        Self {
            slots: [const { MaybeUninit::uninit() }; FIELD_COUNT_CEILING],
            apart: Vec::new(),
        }
    }

    pub(super) fn slots(&mut self, limits: &HeadLimits) -> &mut [MaybeUninit<Header<'b>>] {
        self.both(limits).0
    }

    /// Room for fields that do not come as lines of a head, in place of those that are there.
    pub(crate) fn apart(&mut self) -> FieldList<'_, 'b> {
        self.apart.clear();
        FieldList(&mut self.apart)
    }

    /// The slots, and the room apart, which is empty.
    pub(super) fn both(
        &mut self,
        limits: &HeadLimits,
    ) -> (&mut [MaybeUninit<Header<'b>>], &mut Vec<Header<'b>>) {
        (&mut self.slots[..field_count_max(limits)], &mut self.apart)
    }
}

/// Fields that are put together one by one.
pub(crate) struct FieldList<'f, 'b>(&'f mut Vec<Header<'b>>);

impl<'f, 'b> FieldList<'f, 'b> {
    pub(crate) fn push(&mut self, name: &'b str, value: &'b [u8]) {
        self.0.push(Header { name, value });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn fields(self) -> Fields<'f, 'b> {
        Fields::new(self.0)
    }
}

impl Default for FieldStorage<'_> {
    fn default() -> Self {
        Self::new()
    }
}

pub(super) fn field_count_max(limits: &HeadLimits) -> usize {
    limits.field_count_max.min(FIELD_COUNT_CEILING)
}

/// Finds the end of the first head in `input`: the length up to and with its empty line.
///
/// Shape: `scanned` remembers how far earlier calls looked, so that every byte is examined once;
/// start it at 0, pass the same bytes with more behind them, and find it at 0 again after a head
/// was found. Up to four empty lines before the head are taken as part of it. An empty line that
/// ends in a bare line feed ends the head too: the parser refuses it, but does not wait for more.
///
/// Source: RFC 9112 sections 2.1 and 2.2.
pub fn head_end(input: &[u8], scanned: &mut usize) -> Option<usize> {
    let start = (*scanned).min(input.len());
    for found in memchr_iter(b'\n', &input[start..]) {
        let newline = start + found;
        let before = &input[..newline];
        let line_is_empty = matches!(before, [] | [b'\r'] | [.., b'\n'] | [.., b'\n', b'\r']);
        if line_is_empty && !is_leading(before) {
            *scanned = 0;
            return Some(newline + 1);
        }
    }
    *scanned = input.len();
    None
}

/// Returns true if the empty line that follows `before` still stands in front of the head.
fn is_leading(before: &[u8]) -> bool {
    before.len() < LEADING_BYTES_MAX && before.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
}

/// Returns the limit that an unfinished or oversized head broke.
///
/// Shape: call it when `head.len()` exceeds `head_bytes_max` and [`head_end`] found nothing; it
/// tells a method that never ends (501) and a target that never ends (414) from a header section
/// that is too long (431).
///
/// ```
/// use dwell_proto::http1::{HeadLimits, head_end, oversized_head};
///
/// let limits = HeadLimits { target_bytes_max: 8, ..HeadLimits::default() };
/// let input = b"GET /a/long/target HTTP/1.1\r\n";
/// let mut scanned = 0;
/// assert_eq!(head_end(input, &mut scanned), None);
/// // A head of which no more is waited for: what is wrong with it decides the answer.
/// assert_eq!(oversized_head(input, &limits).status(), 414);
/// ```
pub fn oversized_head(head: &[u8], limits: &HeadLimits) -> HeadError {
    let start = head.trim_ascii_start();
    let line = memchr(b'\n', start).map_or(start, |end| &start[..end]);
    let mut words = line.split(|byte| *byte == b' ');
    if let Err(error) = check_method_length(words.next().map_or(0, <[u8]>::len)) {
        return error;
    }
    let target = words.next().unwrap_or_default();
    if target.len() > limits.target_bytes_max {
        let (limit, length) = (limits.target_bytes_max, target.len());
        return HeadError::TargetTooLong { limit, length };
    }
    HeadError::HeadTooLong {
        limit: limits.head_bytes_max,
        length: head.len(),
    }
}

/// Refuses a method that is longer than any.
///
/// Source: RFC 9112 section 3, which asks for 501 then.
pub(super) fn check_method_length(length: usize) -> Result<(), HeadError> {
    if length > METHOD_BYTES_MAX {
        let limit = METHOD_BYTES_MAX;
        return Err(HeadError::MethodTooLong { limit, length });
    }
    Ok(())
}

/// Turns the grammar's verdict on a head into ours.
pub(super) fn grammar_error(error: httparse::Error, head: &[u8], limits: &HeadLimits) -> HeadError {
    match error {
        httparse::Error::HeaderName => HeadError::FieldName,
        httparse::Error::HeaderValue => HeadError::FieldValue,
        httparse::Error::NewLine => HeadError::LineEnd,
        httparse::Error::Status => HeadError::StatusCode,
        httparse::Error::Token => HeadError::RequestLine,
        httparse::Error::TooManyHeaders => HeadError::TooManyFields {
            limit: field_count_max(limits),
        },
        httparse::Error::Version if names_another_version(head) => HeadError::VersionUnsupported,
        httparse::Error::Version => HeadError::VersionSyntax,
    }
}

/// Visits every field line once: checks its line end, then reads its name and value.
///
/// The grammar takes a bare line feed for a line end. The field's value is a slice of the head,
/// so where it stops says where to look for the carriage return.
#[inline]
pub(super) fn visit_fields<'b>(
    head: &[u8],
    fields: Fields<'_, 'b>,
    framing: &mut FramingFields,
    mut other: impl FnMut(&'b str, &'b [u8]) -> Result<(), HeadError>,
) -> Result<(), HeadError> {
    for (name, value) in fields.iter() {
        let mut end = offset_of_end(head, value);
        while let Some(b' ' | b'\t') = head.get(end) {
            end += 1;
        }
        if head.get(end) != Some(&b'\r') {
            return Err(HeadError::LineEnd);
        }
        framing.visit(name, value)?;
        other(name, value)?;
    }
    Ok(())
}

/// Checks the empty line at the end, and the empty lines that may come before the first word.
pub(super) fn check_edges(head: &[u8], first_word: &[u8]) -> Result<(), HeadError> {
    let leading = &head[..offset_of_end(head, first_word) - first_word.len()];
    let leading_is_clean = leading.chunks(2).all(|pair| pair == b"\r\n");
    if leading_is_clean && head.ends_with(b"\r\n\r\n") {
        Ok(())
    } else {
        Err(HeadError::LineEnd)
    }
}

/// Returns the offset in `head` at which its part `part` ends.
pub(super) fn offset_of_end(head: &[u8], part: &[u8]) -> usize {
    part.as_ptr()
        .addr()
        .wrapping_sub(head.as_ptr().addr())
        .wrapping_add(part.len())
}

/// Returns true if the first line has a well-formed version in it that is not one of HTTP/1.
fn names_another_version(head: &[u8]) -> bool {
    let line = head.trim_ascii_start();
    let line = memchr(b'\n', line)
        .map_or(line, |end| &line[..end])
        .trim_ascii_end();
    line.split(|byte| *byte == b' ')
        .any(|word| match word.strip_prefix(b"HTTP/") {
            Some([b'1', b'.', _]) => false,
            Some([major, b'.', minor]) => major.is_ascii_digit() && minor.is_ascii_digit(),
            _ => false,
        })
}

const FIELD_COUNT_CEILING: usize = 128;
/// The longest registered method has 17 bytes.
const METHOD_BYTES_MAX: usize = 64;
const LEADING_BYTES_MAX: usize = 8;
