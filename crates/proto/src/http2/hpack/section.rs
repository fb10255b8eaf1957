//! A field section, as it is decompressed.

/// The most that one field section may hold.
///
/// Units: bytes, counted as `SETTINGS_MAX_HEADER_LIST_SIZE` does, with 32 for each field line; and
/// field lines, the pseudo-header fields among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionLimits {
    /// Bytes of all names and values, and 32 for each line.
    pub section_bytes_max: usize,
    /// The field lines.
    pub field_count_max: usize,
}

impl Default for SectionLimits {
    fn default() -> Self {
        Self {
            section_bytes_max: 16_384,
            field_count_max: 100,
        }
    }
}

/// The field lines of one section, decompressed.
///
/// Shape: names and values stand in one buffer, which is kept for the next section. Cookies that
/// came in several lines are one line when the block has ended. A section that exceeds the limits
/// is dropped whole.
///
/// ```
/// use dwell_proto::http2::{FieldSection, HpackDecoder, SectionLimits};
///
/// let mut decoder = HpackDecoder::new(0);
/// let mut section = FieldSection::new(SectionLimits::default());
/// decoder.decode(b"\x82\x84\x04\x02/x", true, &mut section)?;
/// let lines: Vec<_> = section.lines().collect();
/// assert_eq!(lines, [(&b":method"[..], &b"GET"[..]), (b":path", b"/"), (b":path", b"/x")]);
/// # Ok::<(), dwell_proto::http2::HpackError>(())
/// ```
///
/// Source: RFC 9113 section 6.5.2.
#[derive(Debug)]
pub struct FieldSection {
    limits: SectionLimits,
    text: Vec<u8>,
    lines: Vec<Line>,
    /// Units: bytes, as the limit counts them.
    bytes: usize,
    is_too_large: bool,
    /// The section that is not kept was a request of HEAD.
    was_head: bool,
    /// The beginning of a field that is not complete.
    pub(super) rest: Vec<u8>,
    /// A field has come, so the size of the table stays.
    pub(super) has_begun: bool,
}

/// The places of a line in the buffer.
#[derive(Clone, Copy, Debug)]
struct Line {
    start: usize,
    name_end: usize,
    end: usize,
}

/// Bytes that count for a line beside its own.
const LINE_OVERHEAD: usize = 32;

impl FieldSection {
    /// An empty one, which owns no memory.
    pub fn new(limits: SectionLimits) -> Self {
        Self {
            limits,
            text: Vec::new(),
            lines: Vec::new(),
            bytes: 0,
            is_too_large: false,
            was_head: false,
            rest: Vec::new(),
            has_begun: false,
        }
    }

    /// Empties it for the next section.
    pub fn clear(&mut self) {
        self.text.clear();
        self.lines.clear();
        self.rest.clear();
        self.bytes = 0;
        self.is_too_large = false;
        self.was_head = false;
        self.has_begun = false;
    }

    /// The limits that it keeps to.
    pub fn limits(&self) -> SectionLimits {
        self.limits
    }

    /// Returns true if the section exceeds the limits.
    pub fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Every line as (name, value), as they came.
    pub fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.iter().map(|line| self.line(*line))
    }

    /// Returns true for a request of HEAD, whose refusal has no body; also if the section was found
    /// too large behind the method.
    pub fn is_head(&self) -> bool {
        let is_head = |line| line == (&b":method"[..], &b"HEAD"[..]);
        self.was_head || self.lines().any(is_head)
    }

    fn line(&self, line: Line) -> (&[u8], &[u8]) {
        let name = &self.text[line.start..line.name_end];
        (name, &self.text[line.name_end..line.end])
    }

    /// Makes one line of all cookies, in the place of the first.
    ///
    /// Source: RFC 9113 section 8.2.3.
    pub(super) fn join_cookies(&mut self) {
        let is_cookie = |line: &Line| &self.text[line.start..line.name_end] == b"cookie";
        let cookies: Vec<_> = self.lines.iter().copied().filter(is_cookie).collect();
        let [first, _, ..] = *cookies else {
            return;
        };
        let start = self.text.len();
        self.text.extend_from_within(first.start..first.end);
        for cookie in &cookies[1..] {
            self.text.extend_from_slice(b"; ");
            self.text.extend_from_within(cookie.name_end..cookie.end);
        }
        let joined = Line {
            start,
            name_end: start + b"cookie".len(),
            end: self.text.len(),
        };
        let place = self.lines.partition_point(|line| line.start < first.start);
        self.lines
            .retain(|line| cookies.iter().all(|cookie| cookie.start != line.start));
        self.lines.insert(place, joined);
    }

    /// Units: bytes of memory that it owns.
    pub fn capacity_bytes(&self) -> usize {
        let lines = self.lines.capacity() * size_of::<Line>();
        self.text.capacity() + self.rest.capacity() + lines
    }

    /// Appends a line: `write` appends the name and the value to the buffer it is given, and
    /// returns the length of the name; `None` if they have no room.
    pub(super) fn push<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<Option<usize>, E>,
    ) -> Result<(), E> {
        let start = self.text.len();
        let name_length = write(&mut self.text)?;
        let end = self.text.len();
        self.bytes = self.bytes.saturating_add(end - start + LINE_OVERHEAD);
        let fits = self.bytes <= self.limits.section_bytes_max
            && self.lines.len() < self.limits.field_count_max
            && !self.is_too_large;
        match name_length {
            Some(length) if fits => self.lines.push(Line {
                start,
                name_end: start + length,
                end,
            }),
            _ => {
                self.was_head = self.is_head();
                self.is_too_large = true;
                self.text.clear();
                self.lines.clear();
            }
        }
        Ok(())
    }

    /// Units: bytes that a name or value may still have before the section is too large.
    pub(super) fn room(&self) -> usize {
        if self.is_too_large {
            0
        } else {
            self.limits.section_bytes_max - self.bytes
        }
    }
}
