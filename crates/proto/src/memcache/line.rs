//! The grammar both sides share: lines, tokens, numbers.

use memchr::memchr;

/// The tokens of a line: runs of bytes between spaces.
///
/// Shape: borrows the line; leading, repeated and trailing spaces yield nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens<'b>(&'b [u8]);

impl<'b> Tokens<'b> {
    /// The tokens of `line`, which has lost its line end already.
    pub fn new(line: &'b [u8]) -> Self {
        Self(line)
    }

    /// The tokens from first to last.
    pub fn iter(self) -> TokenIter<'b> {
        TokenIter { rest: self.0 }
    }

    /// The line they stand on, from the first token to the end.
    pub fn text(self) -> &'b [u8] {
        trim_start(self.0)
    }
}

impl<'b> IntoIterator for Tokens<'b> {
    type Item = &'b [u8];
    type IntoIter = TokenIter<'b>;

    fn into_iter(self) -> TokenIter<'b> {
        self.iter()
    }
}

/// Goes through [`Tokens`].
#[derive(Clone, Debug)]
pub struct TokenIter<'b> {
    rest: &'b [u8],
}

impl<'b> TokenIter<'b> {
    /// The tokens still to come.
    pub fn rest(&self) -> Tokens<'b> {
        Tokens(self.rest)
    }
}

impl<'b> Iterator for TokenIter<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        let token = trim_start(self.rest);
        if token.is_empty() {
            return None;
        }
        let end = memchr(b' ', token).unwrap_or(token.len());
        let (token, rest) = token.split_at(end);
        self.rest = rest;
        Some(token)
    }
}

/// Cuts leading spaces; other white space belongs to a token.
pub(super) fn trim_start(line: &[u8]) -> &[u8] {
    let start = line
        .iter()
        .position(|&byte| byte != b' ')
        .unwrap_or(line.len());
    &line[start..]
}

/// Parses an unsigned decimal number.
///
/// Shape: one leading `+` is allowed, as `strtoull` allows it; nothing else but digits, at least
/// one, and no overflow.
pub(super) fn parse_u64(token: &[u8]) -> Option<u64> {
    let digits = token.strip_prefix(b"+").unwrap_or(token);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Parses a signed decimal number.
pub(super) fn parse_i64(token: &[u8]) -> Option<i64> {
    match token.strip_prefix(b"-") {
        Some(digits) if digits.starts_with(b"+") => None,
        Some(digits) => 0_i64.checked_sub_unsigned(parse_u64(digits)?),
        None => i64::try_from(parse_u64(token)?).ok(),
    }
}

/// Parses an unsigned decimal number that fits 32 bits.
pub(super) fn parse_u32(token: &[u8]) -> Option<u32> {
    u32::try_from(parse_u64(token)?).ok()
}

/// Parses an unsigned number that a client might send as `-0`, which `strtoull` takes for 0.
pub(super) fn parse_delta(token: &[u8]) -> Option<u64> {
    if token == b"-0" {
        Some(0)
    } else {
        parse_u64(token)
    }
}

/// Parses an exptime, or another time a client writes as a signed number.
///
/// Shape: of a number beyond 32 bits the lower 32 count, as memcached's `safe_strtol` has it:
/// 2^32 never expires, and milliseconds where seconds are meant are any time.
pub(super) fn parse_exptime(token: &[u8]) -> Option<i64> {
    parse_i64(token).map(|exptime| i64::from(exptime as i32))
}

/// The search for a line end that reads each byte once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineSearch {
    scanned: usize,
}

impl LineSearch {
    /// The index of the line feed in `input`, which starts with the bytes seen before.
    pub(super) fn find(&mut self, input: &[u8]) -> Option<usize> {
        let from = self.scanned.min(input.len());
        if let Some(offset) = memchr(b'\n', &input[from..]) {
            // The next call may see the same line again (its value was not complete): start there.
            self.scanned = from + offset;
            Some(from + offset)
        } else {
            self.scanned = input.len();
            None
        }
    }

    /// Forgets the place; the next input starts with a new line.
    pub(super) fn reset(&mut self) {
        self.scanned = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spaces_only_separate() {
        let tokens: Vec<&[u8]> = Tokens::new(b"  get  a b ").iter().collect();
        assert_eq!(tokens, [&b"get"[..], b"a", b"b"]);
        assert_eq!(Tokens::new(b"   ").iter().next(), None);
        assert_eq!(Tokens::new(b"  \ta b").text(), b"\ta b");
    }

    #[test]
    fn numbers_at_their_limits() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_i64(b"-9223372036854775809"), None);
        assert_eq!(parse_i64(b"9223372036854775808"), None);
        assert_eq!(parse_u32(b"4294967296"), None);
        assert_eq!(parse_u64(b"+7"), Some(7));
        for bad in [&b""[..], b"+", b"-", b"-1", b"1x", b" 1", b"0x1", b"++1"] {
            assert_eq!(parse_u64(bad), None, "{bad:?}");
        }
        for bad in [&b""[..], b"-", b"-+1", b"--1", b"1-"] {
            assert_eq!(parse_i64(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_exptime_has_32_bits() {
        assert_eq!(parse_exptime(b"2147483647"), Some(i64::from(i32::MAX)));
        assert_eq!(parse_exptime(b"2147483648"), Some(i64::from(i32::MIN)));
        assert_eq!(parse_exptime(b"4294967296"), Some(0));
        assert_eq!(parse_exptime(b"5000000000"), Some(705_032_704));
        assert_eq!(parse_exptime(b"-9223372036854775808"), Some(0));
        assert_eq!(parse_exptime(b"9223372036854775808"), None);
    }

    proptest! {
        #[test]
        fn numbers_agree_with_the_standard_library(text in "[+-]?[0-9]{0,21}") {
            prop_assert_eq!(parse_i64(text.as_bytes()), text.parse::<i64>().ok());
            if !text.starts_with('-') {
                prop_assert_eq!(parse_u64(text.as_bytes()), text.parse::<u64>().ok());
            }
        }

        #[test]
        fn tokens_agree_with_split(line in "[ab ]{0,20}") {
            let ours: Vec<&[u8]> = Tokens::new(line.as_bytes()).iter().collect();
            let theirs: Vec<&[u8]> = line.split_ascii_whitespace().map(str::as_bytes).collect();
            prop_assert_eq!(ours, theirs);
        }
    }
}
