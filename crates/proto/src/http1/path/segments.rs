//! The segments of a path, as a program settles them.

use super::writing::escaped_behind;
use memchr::{memchr, memrchr};

/// A way to settle the segments of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settling {
    pub(super) dots: Dots,
    /// Empty segments are left out.
    pub(super) merges: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dots {
    Kept,
    Resolved,
    /// `%2e` is a dot of a dot segment, though nothing else is decoded.
    ResolvedEscaped,
}

impl Settling {
    /// Writes the path that `text` is; false where its dot segments lead out of it.
    ///
    /// Source: RFC 3986 section 5.2.4.
    pub(super) fn settle(self, text: &[u8], settled: &mut Vec<u8>) -> bool {
        settled.clear();
        let mut is_within = true;
        let mut rest = text.strip_prefix(b"/");
        while let Some(segments) = rest {
            let end = memchr(b'/', segments);
            let segment = &segments[..end.unwrap_or(segments.len())];
            rest = end.map(|end| &segments[end + 1..]);
            let dots = self.dots(segment);
            if dots == 2 {
                let last = memrchr(b'/', settled);
                is_within &= last.is_some();
                settled.truncate(last.unwrap_or(0));
            }
            let is_empty = dots > 0 || (segment.is_empty() && self.merges);
            if is_empty && rest.is_some() {
                continue;
            }
            settled.push(b'/');
            if !is_empty {
                settled.extend_from_slice(segment);
            }
        }
        if !text.starts_with(b"/") {
            settled.extend_from_slice(text);
        }
        is_within
    }

    /// 1 for `.`, 2 for `..`, 0 for any other segment.
    fn dots(self, mut segment: &[u8]) -> usize {
        if self.dots == Dots::Kept {
            return 0;
        }
        let mut dots = 0;
        while let [byte, rest @ ..] = segment {
            segment = rest;
            match byte {
                b'.' => {}
                b'%' if self.dots == Dots::ResolvedEscaped
                    && escaped_behind(rest) == Some(b'.') =>
                {
                    segment = &rest[2..];
                }
                _ => return 0,
            }
            dots += 1;
            if dots > 2 {
                return 0;
            }
        }
        dots
    }
}
