//! The first line of a value, which gives its type and, for most types, the length of the rest.

use super::PeerError;

/// The first line of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Header<'b> {
    /// `+`: the line is the value.
    Simple(&'b [u8]),
    /// `-`.
    Error(&'b [u8]),
    /// `:`.
    Number(i64),
    /// `,`.
    Double(f64),
    /// `(`.
    BigNumber(&'b [u8]),
    /// `#`.
    Boolean(bool),
    /// `_`, and the nulls of version 2.
    Null,
    /// Bytes of this length and a line end follow.
    Blob(Blob, usize),
    /// Values of this number follow: of a map and of attributes, keys and values are counted.
    Aggregate(Aggregate, usize),
}

/// Types whose bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blob {
    String,
    Error,
    /// Text that begins with its format, as `txt:`.
    Verbatim,
}

/// Types that contain others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    Array,
    Map,
    Set,
    Push,
    Attribute,
}

impl<'b> Header<'b> {
    /// Reads the line at the front of `input`; returns the bytes used with it, or `None` when the
    /// line is not complete.
    pub(super) fn read(
        input: &'b [u8],
        line_bytes_max: usize,
    ) -> Result<Option<(usize, Self)>, PeerError> {
        let Some((&kind, rest)) = input.split_first() else {
            return Ok(None);
        };
        if !KINDS.contains(&kind) {
            return Err(PeerError::UnknownType { byte: kind });
        }
        let end = line_end(rest);
        let length = end.unwrap_or(rest.len());
        if length > line_bytes_max {
            let limit = line_bytes_max;
            return Err(PeerError::LineTooLong { limit, length });
        }
        let Some(end) = end else {
            return Ok(None);
        };
        match (rest[end], rest.get(end + 1)) {
            (b'\r', None) => Ok(None),
            (b'\r', Some(b'\n')) => Ok(Some((1 + end + 2, Self::parse(kind, &rest[..end])?))),
            _ => Err(PeerError::Malformed { part: "line end" }),
        }
    }

    fn parse(kind: u8, line: &'b [u8]) -> Result<Self, PeerError> {
        let malformed = |part| PeerError::Malformed { part };
        if line == b"?" && STREAMED_KINDS.contains(&kind) {
            return Err(PeerError::Streamed { kind });
        }
        let length = || length(line).ok_or(malformed("length"));
        let pairs = || length()?.checked_mul(2).ok_or(malformed("length"));
        Ok(match kind {
            b'+' => Self::Simple(line),
            b'-' => Self::Error(line),
            b':' => Self::Number(number(line).ok_or(malformed("number"))?),
            b',' => Self::Double(double(line).ok_or(malformed("double"))?),
            b'(' if is_integer(line) => Self::BigNumber(line),
            b'(' => return Err(malformed("big number")),
            b'#' => match line {
                b"t" => Self::Boolean(true),
                b"f" => Self::Boolean(false),
                _ => return Err(malformed("boolean")),
            },
            b'_' if line.is_empty() => Self::Null,
            b'_' => return Err(malformed("null")),
            // The nulls of version 2.
            b'$' | b'*' if line == b"-1" => Self::Null,
            b'$' => Self::Blob(Blob::String, length()?),
            b'!' => Self::Blob(Blob::Error, length()?),
            b'=' => Self::Blob(Blob::Verbatim, length()?),
            b'*' => Self::Aggregate(Aggregate::Array, length()?),
            b'~' => Self::Aggregate(Aggregate::Set, length()?),
            b'>' => Self::Aggregate(Aggregate::Push, length()?),
            b'%' => Self::Aggregate(Aggregate::Map, pairs()?),
            b'|' => Self::Aggregate(Aggregate::Attribute, pairs()?),
            byte => return Err(PeerError::UnknownType { byte }),
        })
    }
}

/// The place of the first byte that may end a line. Most lines are a length of a few digits, for
/// which a search that begins with vectors takes longer than a comparison of each byte.
fn line_end(rest: &[u8]) -> Option<usize> {
    let (first, _) = rest.split_at(rest.len().min(SHORT_LINE_BYTES));
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let end = first.iter().position(is_end);
    end.or_else(|| Some(first.len() + memchr::memchr2(b'\r', b'\n', &rest[first.len()..])?))
}

/// A length without a sign.
fn length(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_usize, |length, byte| {
        let digit = byte.wrapping_sub(b'0');
        let length = length.checked_mul(10)?.checked_add(usize::from(digit))?;
        (digit < 10).then_some(length)
    })
}

fn number(text: &[u8]) -> Option<i64> {
    is_integer(text).then_some(())?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn is_integer(text: &[u8]) -> bool {
    let digits = match text.split_first() {
        Some((b'+' | b'-', digits)) => digits,
        _ => text,
    };
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

fn double(text: &[u8]) -> Option<f64> {
    let is_named = matches!(text, b"inf" | b"+inf" | b"-inf" | b"nan" | b"-nan");
    let is_written = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    (is_named || text.iter().all(is_written)).then_some(())?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Bytes of a line that are compared one by one.
const SHORT_LINE_BYTES: usize = 8;
/// Every byte that a value begins with.
const KINDS: &[u8] = b"+-:$*_,#(!=%~>|";
/// Types that can be sent in parts of unknown number.
const STREAMED_KINDS: &[u8] = b"$!=*%~>|";
