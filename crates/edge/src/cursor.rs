//! The cursor: a strong hash of the content, the same on every edge.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Identifies a content of a key: the one that a client has seen, or the one in the store.
///
/// Shape: XXH3-64 over the value and, if they are not 0, its flags. Written as 11 characters of
/// base64url. Equal bytes have the same cursor on every server and after every restart, so a client
/// may change servers, and setting the same value again wakes no client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct Cursor(u64);

/// Characters of a written cursor.
const TEXT_BYTES: usize = 11;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Cursor {
    /// The cursor of a value.
    pub(crate) fn of(value: &[u8], flags: u32) -> Self {
        if flags == 0 {
            return Self(xxh3_64(value));
        }
        let mut hash = Xxh3::new();
        hash.update(&flags.to_le_bytes());
        hash.update(value);
        Self(hash.digest())
    }

    /// Reads a cursor from a client: quoted or not, weak (`W/`), or with the suffix that a
    /// compressing proxy adds (`-gzip`). `None` for anything else, which no value has.
    ///
    /// Source: RFC 9110 section 8.8.3; comparison is weak (section 13.1.2).
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = text.trim_ascii();
        let text = text.strip_prefix(b"W/").unwrap_or(text);
        let text = text.strip_prefix(b"\"").unwrap_or(text);
        let text = text.strip_suffix(b"\"").unwrap_or(text);
        let (digits, suffix) = text.split_at_checked(TEXT_BYTES)?;
        // A dash is also a digit, so the suffix is cut by length and not searched for.
        if !suffix.is_empty() && !suffix.starts_with(b"-") {
            return None;
        }
        // Of the 66 bits of digits, the two to spare have to be 0.
        let mut bytes = [0; TEXT_BYTES];
        let length = URL_SAFE_NO_PAD.decode_slice(digits, &mut bytes).ok()?;
        let (bits, _) = bytes[..length].split_first_chunk()?;
        Some(Self(u64::from_be_bytes(*bits)))
    }

    /// The cursor as text, without quotes.
    pub(crate) fn text(self) -> CursorText {
        // By hand, as every hit does it: two thirds of the instructions of the crate.
        let mut quoted = [b'"'; TEXT_BYTES + 2];
        for (place, digit) in quoted[1..TEXT_BYTES].iter_mut().enumerate() {
            *digit = ALPHABET[(self.0 >> (58 - 6 * place)) as usize & 63];
        }
        // The last four bits, and two to spare.
        quoted[TEXT_BYTES] = ALPHABET[(self.0 << 2) as usize & 63];
        CursorText(quoted)
    }
}

/// The cursor that a client has sent, as a condition on the value that it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    /// Nothing.
    None,
    /// Something this edge cannot have sent, so it differs from every value.
    Foreign,
    /// `If-None-Match: *`: any value at all.
    Any,
    /// `If-None-Match` with a cursor.
    IfNoneMatch(Cursor),
    /// `?since=` with a cursor, or the id of an event.
    Since(Cursor),
}

impl Condition {
    /// Returns true if the client has the value with this cursor.
    pub(crate) fn has(self, current: Cursor) -> bool {
        match self {
            Self::None | Self::Foreign => false,
            Self::Any => true,
            Self::IfNoneMatch(cursor) | Self::Since(cursor) => cursor == current,
        }
    }
}

/// A written cursor.
#[derive(Clone, Copy)]
pub(crate) struct CursorText([u8; TEXT_BYTES + 2]);

impl CursorText {
    /// As an entity tag, in quotes.
    pub(crate) fn entity_tag(&self) -> &[u8] {
        &self.0
    }

    /// Without quotes.
    pub(crate) fn bare(&self) -> &[u8] {
        &self.0[1..=TEXT_BYTES]
    }
}

impl fmt::Debug for CursorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_cursor_is_known_in_every_dress() {
        let cursor = Cursor::of(b"hello", 0);
        let bare = String::from_utf8(cursor.text().bare().to_vec()).unwrap();
        assert_eq!(bare.len(), 11);
        for dress in [
            bare.clone(),
            format!("\"{bare}\""),
            format!("W/\"{bare}\""),
            format!("\"{bare}-gzip\""),
            format!("W/\"{bare}-br\""),
            format!("  \"{bare}\" "),
        ] {
            assert_eq!(Cursor::parse(dress.as_bytes()), Some(cursor), "{dress}");
        }
    }

    #[test]
    fn foreign_tags_are_no_cursor() {
        for foreign in [
            "",
            "\"\"",
            "*",
            "\"5d8c72a5edda8\"",
            "\"abc\"",
            "\"AAAAAAAAAAB\"",
            "\"!!!!!!!!!!!\"",
        ] {
            assert_eq!(Cursor::parse(foreign.as_bytes()), None, "{foreign}");
        }
    }

    #[test]
    fn flags_are_part_of_the_content() {
        assert_ne!(Cursor::of(b"1", 0), Cursor::of(b"1", 1));
        assert_eq!(Cursor::of(b"1", 1), Cursor::of(b"1", 1));
    }

    proptest! {
        #[test]
        fn text_and_back(bits: u64) {
            let cursor = Cursor(bits);
            prop_assert_eq!(Cursor::parse(cursor.text().bare()), Some(cursor));
            prop_assert_eq!(Cursor::parse(cursor.text().entity_tag()), Some(cursor));
        }
    }
}
