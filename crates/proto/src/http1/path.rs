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

use memchr::{memchr, memmem, memrchr};

/// Whether all programs read a path alike: it has no escape, no parameter, no backslash, no empty
/// segment and none that begins with a dot.
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

/// Whether `found` is true of any reading of a path, the path as it is among them.
///
/// Shape: true also for a path that has a NUL in one of them, which may end it, and for one whose
/// readings would take too long: nobody sends these in good faith. So whoever guards refuses when
/// this is true.
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
    let writing = Writing {
        escapes: Escapes::Decoded,
        drops_parameters: false,
        is_lenient: false,
    };
    writing.write(path, &mut written);
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

/// Why a path has no normal form.
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

/// Bytes that are gone through at most for the readings of one path.
const WORK_BYTES_MAX: usize = 256 * 1024;

/// What a path has that is read in different ways; more than it has costs time and nothing else.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a path has, or has not"
)]
struct Oddities {
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
    fn of(path: &[u8]) -> Self {
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

    /// How many readings there are, at most.
    fn readings(&self) -> usize {
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

/// What becomes of the bytes of a path.
#[derive(Clone, Copy, Debug)]
struct Writing {
    escapes: Escapes,
    drops_parameters: bool,
    /// A backslash is a slash, and overlong UTF-8 what it stands for.
    is_lenient: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Escapes {
    Kept,
    Decoded,
    DecodedButSlashes,
}

impl Writing {
    fn write(self, path: &[u8], written: &mut Vec<u8>) {
        written.clear();
        let mut rest = path;
        while let [byte, behind @ ..] = rest {
            rest = behind;
            let mut byte = *byte;
            if byte == b';' && self.drops_parameters {
                let is_slash = |byte: &u8| *byte == b'/' || (*byte == b'\\' && self.is_lenient);
                let end = rest.iter().position(is_slash);
                rest = &rest[end.unwrap_or(rest.len())..];
                continue;
            }
            if byte == b'%'
                && self.escapes != Escapes::Kept
                && let Some(decoded) = escaped_behind(rest)
                && !(decoded == b'/' && self.escapes == Escapes::DecodedButSlashes)
            {
                byte = decoded;
                rest = &rest[2..];
            }
            written.push(byte);
        }
        if self.is_lenient {
            shorten(written);
            for byte in written.iter_mut().filter(|byte| **byte == b'\\') {
                *byte = b'/';
            }
        }
    }
}

/// What becomes of the segments of a path.
#[derive(Clone, Copy, Debug)]
struct Settling {
    dots: Dots,
    /// Empty segments are left out.
    merges: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dots {
    Kept,
    Resolved,
    /// `%2e` is a dot of a dot segment, though nothing else is decoded.
    ResolvedEscaped,
}

impl Settling {
    /// Writes the path that `text` is; whether its dot segments stay within it.
    ///
    /// Source: RFC 3986 section 5.2.4.
    fn settle(self, text: &[u8], settled: &mut Vec<u8>) -> bool {
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

/// The path of `//host/path` for those who take it for a reference to another host.
///
/// Source: RFC 3986 section 4.2.
fn without_host(text: &[u8]) -> Option<&[u8]> {
    let host = text.strip_prefix(b"//")?;
    Some(memchr(b'/', host).map_or(b"/", |end| &host[end..]))
}

/// The byte that an escape at the front of `text` stands for.
fn escaped(text: &[u8]) -> Option<u8> {
    escaped_behind(text.strip_prefix(b"%")?)
}

/// As [`escaped`], behind the `%`.
fn escaped_behind(text: &[u8]) -> Option<u8> {
    let [high, low, ..] = *text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// Replaces ASCII that is written in two to four bytes of UTF-8, as decoders did that did not
/// look whether it could be shorter.
///
/// Source: RFC 3629 section 10.
fn shorten(text: &mut Vec<u8>) {
    let (mut from, mut to) = (0, 0);
    while let Some(byte) = text.get(from).copied() {
        let (taken, byte) = match text[from..] {
            [first @ (0xc0 | 0xc1), last @ 0x80..=0xbf, ..] => (2, (first & 1) << 6 | last & 0x3f),
            [0xe0, first @ (0x80 | 0x81), last @ 0x80..=0xbf, ..] => {
                (3, (first & 1) << 6 | last & 0x3f)
            }
            [0xf0, 0x80, first @ (0x80 | 0x81), last @ 0x80..=0xbf, ..] => {
                (4, (first & 1) << 6 | last & 0x3f)
            }
            _ => (1, byte),
        };
        text[to] = byte;
        from += taken;
        to += 1;
    }
    text.truncate(to);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt::Write as _;

    fn leads_to_me(path: &str) -> bool {
        any_reading(path, |reading| reading.starts_with(b"/me/"))
    }

    #[test]
    fn whatever_a_program_does_with_a_path_it_is_among_the_readings() {
        for path in [
            "/me/x",
            "/%6de/x",
            "/%6De/x",
            "/me%2fx",
            "/me%2Fx",
            "/m%65/x",
            "/%6d%65%2f",
            "//me/x",
            "/./me/x",
            "/x/../me/x",
            "/poll/../me/x",
            "/poll/%2e%2e/me/x",
            "/poll/%2E./me/x",
            "/poll/..%2fme/x",
            "/poll/a/../../me/x",
            "/../../me/x",
            "/x//../me/x",
            "/x//..//me/x",
            // Backslashes, in either form.
            "/me\\x",
            "/poll\\..\\me\\x",
            "/poll/..%5cme/x",
            "\\me/x",
            // Parameters.
            "/me;a=b/x",
            "/;/me/x",
            "/poll/..;/me/x",
            "/poll/..;a=b/me/x",
            "/poll/%2e%2e;/me/x",
            // A host.
            "//host/me/x",
            "/\\host/me/x",
            "/%2fhost/me/x",
            "//host//me/x",
            // UTF-8 that is longer than it has to be.
            "/poll/..%c0%afme/x",
            "/poll/%c0%ae%c0%ae/me/x",
            "/%c1%ade/x",
            "/poll/..%e0%80%afme/x",
            "/poll/..%f0%80%80%afme/x",
            // Each of them is no other's.
            "/%6de/x/../../pub",
            "/x/../%6de/a%2f..%2f..%2fpub",
            "/x/../me/%2e%2e/pub",
            "/me/%00",
            "/poll/x%00",
        ] {
            assert!(leads_to_me(path), "{path}");
        }
    }

    #[test]
    fn what_no_program_takes_for_it_is_not() {
        for path in [
            "/",
            "/poll/x",
            "/ME/x",
            "/me",
            "/%256de/x",
            "/poll/me%2fx",
            "/poll/me/x",
            "/x/me/../me/x",
            "/poll/%zz/me/x",
            "/poll/%2/%",
            "/poll/...%2fme/x",
            "/poll/.me/x",
            "/poll/caf%c3%a9;v=1/a//b",
            "/x;/me/x",
            "*",
        ] {
            assert!(!leads_to_me(path), "{path}");
        }
    }

    #[test]
    fn only_what_is_read_differently_is_not_plain() {
        for path in [
            "/",
            "*",
            "",
            "/poll/alice",
            "/a.b/c..d/e",
            "/a/b/",
            "/a?b",
            "/~a/$&'()",
        ] {
            assert!(is_plain_path(path), "{path}");
        }
        for path in [
            "%",
            "/a%41",
            "/;",
            "/a\\",
            "//",
            "/a//b",
            "/.",
            "/a/..",
            "/.well-known/",
        ] {
            assert!(!is_plain_path(path), "{path}");
        }
    }

    #[test]
    fn readings_are_bounded() {
        let rich = "/;a\\%2e.%2f%5c%c0//..";
        let most = Oddities::of(rich.as_bytes()).readings();
        assert!(most > 60 && most < 200, "{most}");
        // One of a kind may be as long as a target may be.
        for one in ["/..", "//", "/%41", "/;a", "/\\"] {
            let long = one.repeat(8192 / one.len());
            assert!(!any_reading(&long, |_| false), "{one}");
        }
        assert!(!any_reading(&rich.repeat(20), |_| false));
        assert!(any_reading(&rich.repeat(300), |_| false));
    }

    #[test]
    fn the_normal_path_is_that_of_nginx() {
        let normal = |path: &str| normal_path(path).map(|path| String::from_utf8(path).unwrap());
        for (path, expected) in [
            ("/Poll/alice", "/Poll/alice"),
            ("/Poll/a%20b", "/Poll/a b"),
            ("/Poll/%E4%BD%A0", "/Poll/\u{4f60}"),
            ("/Poll//a/b", "/Poll/a/b"),
            ("/Poll/c%2Cd", "/Poll/c,d"),
            ("/Poll/x/../alice", "/Poll/alice"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a%2F%2e%2e%2Fb", "/b"),
            ("/%2541", "/%41"),
            ("/a;b=c/d", "/a;b=c/d"),
            ("//", "/"),
        ] {
            assert_eq!(normal(path).as_deref(), Ok(expected), "{path}");
        }
        for path in ["/%", "/%4", "/%4g", "/%+1"] {
            assert_eq!(normal(path), Err(PathError::Escape), "{path}");
        }
        assert_eq!(normal("/a%00"), Err(PathError::Nul));
        assert_eq!(normal("/a/../.."), Err(PathError::AboveRoot));
        assert_eq!(normal("/%2e%2e/a"), Err(PathError::AboveRoot));
    }

    /// A path, with each of its bytes written as it is or escaped, and with segments between its
    /// own that lead nowhere.
    fn disguised() -> impl Strategy<Value = (String, String)> {
        let detour = prop::sample::select(vec!["", "/.", "/%2e", "/x/..", "/x/y/../..", "/"]);
        let segment = "[a-z.%]{1,4}".prop_filter("no dots", |s| *s != "." && *s != "..");
        let part = (detour, segment, prop::collection::vec(any::<bool>(), 4));
        prop::collection::vec(part, 1..5).prop_map(|parts| {
            let (mut path, mut written) = (String::new(), String::new());
            for (detour, segment, escapes) in parts {
                path.push('/');
                path.push_str(&segment);
                written.push_str(detour);
                written.push('/');
                for (byte, is_escaped) in segment.bytes().zip(escapes) {
                    if is_escaped || byte == b'%' {
                        write!(written, "%{byte:02x}").unwrap();
                    } else {
                        written.push(char::from(byte));
                    }
                }
            }
            (path, written)
        })
    }

    proptest! {
        #[test]
        fn a_disguised_path_is_found((path, written) in disguised()) {
            prop_assert!(any_reading(&written, |reading| reading == path.as_bytes()));
            prop_assert_eq!(normal_path(&written), Ok(path.into_bytes()));
        }

        #[test]
        fn a_plain_path_is_its_own_and_only_reading(path in "/[a-z./]{0,20}") {
            let mut readings = Vec::new();
            let is_none = !any_reading(&path, |reading| {
                readings.push(reading.to_vec());
                false
            });
            prop_assert!(is_none);
            if is_plain_path(&path) {
                prop_assert_eq!(readings, [path.as_bytes()]);
                prop_assert_eq!(normal_path(&path), Ok(path.into_bytes()));
            }
        }

        #[test]
        fn what_is_normal_stays_so(path in "/[a-z.%2e5/]{0,20}") {
            if let Ok(normal) = normal_path(&path)
                && let Ok(text) = String::from_utf8(normal.clone())
                && !text.contains('%')
            {
                prop_assert_eq!(normal_path(&text), Ok(normal));
            }
        }

        #[test]
        fn an_escape_is_decoded_once(path in "/[a-z]{0,9}(%25[0-9a-f]{2}){1,3}") {
            let once = path.replace("%25", "%");
            prop_assert_eq!(normal_path(&path), Ok(once.clone().into_bytes()));
            prop_assert!(any_reading(&path, |reading| reading == once.as_bytes()));
            let twice = normal_path(&once);
            let is_twice = |reading: &[u8]| Ok(reading) == twice.as_deref();
            prop_assert!(once.contains("%00") || !any_reading(&path, is_twice));
        }

        #[test]
        fn no_path_panics(path in ".*", odd in "(/|\\.|%2[ef]|%5c|%c0%a[ef]|;|\\\\|a){0,40}") {
            any_reading(&path, |_| false);
            let _ = normal_path(&path);
            any_reading(&odd, |_| false);
            let _ = normal_path(&odd);
        }
    }
}
