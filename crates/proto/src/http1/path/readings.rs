//! The readings of a path that are in use, and a search among them.

use super::is_plain_path;
use super::segments::{Dots, Settling};
use super::writing::{Escapes, Writing, escaped};
use memchr::{memchr, memmem};

/// True where `found` is true of any reading of a path, the path as it is among them.
///
/// Shape: true also for a path that has a NUL in one of them, which may end it, and for one whose
/// readings would take too long: neither is sent in good faith. So a guard refuses when this is
/// true.
///
/// ```
/// use dwell_proto::http1::any_reading;
///
/// let leads_to_me = |path: &[u8]| path.starts_with(b"/me/");
/// assert!(any_reading("/poll/..%2fme/x", leads_to_me));
/// assert!(any_reading("/%6de/x", leads_to_me));
/// assert!(!any_reading("/poll/me%2fx", leads_to_me));
/// ```
pub fn any_reading(path: &str, mut found: impl FnMut(&[u8]) -> bool) -> bool {
    if found(path.as_bytes()) {
        return true;
    }
    if is_plain_path(path) {
        return false;
    }
    let path = path.as_bytes();
    let oddities = Oddities::of(path);
    if oddities.has_nul || oddities.readings() * path.len() > WORK_BYTES_MAX {
        return true;
    }
    let mut written = Vec::with_capacity(path.len());
    let mut settled = Vec::with_capacity(path.len());
    for writing in oddities.writings() {
        writing.write(path, &mut written);
        for text in [Some(&written[..]), without_host(&written)] {
            let mut settlings = text.into_iter().flat_map(|text| {
                let settlings = oddities.settlings(writing.escapes);
                settlings.map(move |settling| (text, settling))
            });
            let is_found = settlings.any(|(text, settling)| {
                settling.settle(text, &mut settled);
                found(&settled)
            });
            if is_found {
                return true;
            }
        }
    }
    false
}

/// The path of `//host/path`, taken for a reference to another host.
///
/// Source: RFC 3986 section 4.2.
fn without_host(text: &[u8]) -> Option<&[u8]> {
    let host = text.strip_prefix(b"//")?;
    Some(memchr(b'/', host).map_or(b"/", |end| &host[end..]))
}

/// Bytes that are gone through at most for the readings of one path.
const WORK_BYTES_MAX: usize = 256 * 1024;

/// The things in a path that are read in different ways; more than it has cost time, no more.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a path has, or has not"
)]
pub(super) struct Oddities {
    has_nul: bool,
    has_escapes: bool,
    has_escaped_slashes: bool,
    has_parameters: bool,
    /// Backslashes, and ASCII in more bytes of UTF-8 than it takes.
    has_other_slashes: bool,
    has_dots: bool,
    has_empty_segments: bool,
}

impl Oddities {
    pub(super) fn of(path: &[u8]) -> Self {
        let has = |text: &[u8]| memmem::find(path, text).is_some();
        let has_byte = |byte| memchr(byte, path).is_some();
        let mut escapes = [false; 256];
        for (at, byte) in path.iter().enumerate() {
            if let (b'%', Some(byte)) = (byte, escaped(&path[at..])) {
                escapes[usize::from(byte)] = true;
            }
        }
        let of = |byte: u8| escapes[usize::from(byte)];
        let is_overlong = [0xc0, 0xc1, 0xe0, 0xf0].into_iter().any(of);
        let has_escaped_slashes = of(b'/');
        let has_parameters = has_byte(b';');
        let has_other_slashes = has_byte(b'\\') || of(b'\\') || is_overlong;
        let may_part = has_escaped_slashes || has_other_slashes;
        Self {
            has_nul: of(0),
            has_escapes: has_byte(b'%'),
            has_escaped_slashes,
            has_parameters,
            has_other_slashes,
            has_dots: has(b"/.") || of(b'.') || is_overlong || (may_part && has_byte(b'.')),
            has_empty_segments: has(b"//") || may_part || has_parameters,
        }
    }

    /// The most readings there can be.
    pub(super) fn readings(&self) -> usize {
        let settlings = |writing: Writing| self.settlings(writing.escapes).count() * 2;
        self.writings().map(settlings).sum()
    }

    fn writings(&self) -> impl Iterator<Item = Writing> {
        let escapes = [
            Some(Escapes::Kept),
            self.has_escapes.then_some(Escapes::Decoded),
            // Without dots, what it begins with is what the whole decoded begins with.
            (self.has_escaped_slashes && self.has_dots).then_some(Escapes::DecodedButSlashes),
        ];
        let either = |is_there: bool| {
            [Some(false), is_there.then_some(true)]
                .into_iter()
                .flatten()
        };
        let (parameters, lenient) = (self.has_parameters, self.has_other_slashes);
        escapes.into_iter().flatten().flat_map(move |escapes| {
            either(parameters).flat_map(move |drops_parameters| {
                either(lenient).map(move |is_lenient| Writing {
                    escapes,
                    drops_parameters,
                    is_lenient,
                })
            })
        })
    }

    fn settlings(&self, escapes: Escapes) -> impl Iterator<Item = Settling> + use<> {
        let is_raw = escapes == Escapes::Kept && self.has_escapes;
        let dots = [
            Some(Dots::Kept),
            self.has_dots.then_some(Dots::Resolved),
            (self.has_dots && is_raw).then_some(Dots::ResolvedEscaped),
        ];
        let merges = [Some(false), self.has_empty_segments.then_some(true)];
        dots.into_iter().flatten().flat_map(move |dots| {
            let merges = merges.into_iter().flatten();
            merges.map(move |merges| Settling { dots, merges })
        })
    }
}
