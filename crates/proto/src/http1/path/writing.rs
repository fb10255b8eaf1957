//! The bytes of a path, as a program writes them down before it splits them into segments.

/// A way to write the bytes of a path down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    pub(super) escapes: Escapes,
    pub(super) drops_parameters: bool,
    /// A backslash is a slash, and overlong UTF-8 what it stands for.
    pub(super) is_lenient: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Escapes {
    Kept,
    Decoded,
    DecodedButSlashes,
}

impl Writing {
    /// Every escape is decoded, and that is all.
    pub(super) const DECODED: Self = Self {
        escapes: Escapes::Decoded,
        drops_parameters: false,
        is_lenient: false,
    };

    pub(super) fn write(self, path: &[u8], written: &mut Vec<u8>) {
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

/// The byte that an escape at the front of `text` stands for.
pub(super) fn escaped(text: &[u8]) -> Option<u8> {
    escaped_behind(text.strip_prefix(b"%")?)
}

/// Decodes as [`escaped`] does, behind the `%`.
pub(super) fn escaped_behind(text: &[u8]) -> Option<u8> {
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
