//! Paths of requests, as the programs behind a proxy read them.
//!
//! Programs differ in what they do with a path before they choose by it. Some take it as it is,
//! some decode it first, with or without the slashes (`%2F`); some resolve dot segments, merge
//! slashes, drop the parameters of a segment (`;v=1`), take a backslash for a slash, or the first
//! segment of `//host/path` for a host. A proxy that guards a path has to expect all of them:
//! [`any_reading`] goes through the readings that are in use. [`normal_path`] is one of them, that
//! of nginx's `$uri`.
//!
//! Source: RFC 3986 sections 2.4, 3.3, 4.2, 5.2.4 and 6.2.2; the WHATWG URL standard, "path state".

mod readings;
mod segments;
mod writing;

pub use readings::any_reading;

use memchr::memchr;
use segments::{Dots, Settling};
use std::borrow::Cow;
use writing::{Writing, escaped};

/// True of a path that all programs read alike: it has no escape, no parameter, no backslash, no
/// empty segment and none that begins with a dot.
///
/// ```
/// use dwell_proto::http1::is_plain_path;
///
/// assert!(is_plain_path("/poll/alice.json"));
/// assert!(!is_plain_path("/poll/../me/"));
/// assert!(!is_plain_path("/%6de/"));
/// ```
#[inline]
pub fn is_plain_path(path: &str) -> bool {
    let path = path.as_bytes();
    // No early exit, so that both are a few vector instructions: paths are short, and plain.
    let odd = |odd: u8, byte: &u8| odd | u8::from(matches!(byte, b'%' | b';' | b'\\'));
    let pairs = path.iter().zip(path.get(1..).unwrap_or_default());
    let parted = |odd: u8, (first, second): (&u8, &u8)| {
        odd | u8::from(*first == b'/') & u8::from(matches!(second, b'/' | b'.'))
    };
    pairs.fold(path.iter().fold(0, odd), parted) == 0
}

/// The text with its escapes decoded once; a `%` without two hexadecimal digits behind it stays.
///
/// Source: RFC 3986 section 2.1.
///
/// ```
/// use dwell_proto::http1::percent_decoded;
///
/// assert_eq!(percent_decoded(b"100%25%2c%2"), &b"100%,%2"[..]);
/// ```
pub fn percent_decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr(b'%', text).is_none() {
        return text.into();
    }
    let mut decoded = Vec::with_capacity(text.len());
    Writing::DECODED.write(text, &mut decoded);
    decoded.into()
}

/// The path decoded once, its slashes merged and its dot segments resolved, as nginx's `$uri` is.
///
/// ```
/// use dwell_proto::http1::{PathError, normal_path};
///
/// assert_eq!(normal_path("/poll/x/..//c%2Cd").as_deref(), Ok(&b"/poll/c,d"[..]));
/// assert_eq!(normal_path("/%252e").as_deref(), Ok(&b"/%2e"[..]));
/// assert_eq!(normal_path("/../x"), Err(PathError::AboveRoot));
/// ```
///
/// # Errors
/// [`PathError`] for what nginx refuses with 400.
pub fn normal_path(path: &str) -> Result<Vec<u8>, PathError> {
    let path = path.as_bytes();
    let mut escapes = path.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    if escapes.any(|(at, _)| escaped(&path[at..]).is_none()) {
        return Err(PathError::Escape);
    }
    let (mut written, mut settled) = (Vec::new(), Vec::new());
    Writing::DECODED.write(path, &mut written);
    if written.contains(&0) {
        return Err(PathError::Nul);
    }
    let settling = Settling {
        dots: Dots::Resolved,
        merges: true,
    };
    if settling.settle(&written, &mut settled) {
        Ok(settled)
    } else {
        Err(PathError::AboveRoot)
    }
}

/// A path without a normal form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PathError {
    /// A `%` is not followed by two hexadecimal digits.
    Escape,
    /// It has a NUL.
    Nul,
    /// Its dot segments lead out of it.
    AboveRoot,
}

impl std::fmt::Display for PathError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Escape => "a % in the path is not followed by two hex digits",
            Self::Nul => "the path has the byte 0x00",
            Self::AboveRoot => "the dot segments of the path lead above its root",
        })
    }
}

impl std::error::Error for PathError {}

#[cfg(test)]
mod tests;
