//! Strings of JSON (RFC 8259), for what is written without a serializer.

/// Appends a string with its quotes.
///
/// Shape: what has to be escaped is escaped as short as JSON can, and nothing else is; memory is
/// made once, of just the size.
///
/// ```
/// use dwell_proto::json;
///
/// let mut out = Vec::new();
/// json::string(&mut out, "say \"hi\"\n\u{1}");
/// assert_eq!(out, br#""say \"hi\"\n\u0001""#);
/// ```
///
/// Source: RFC 8259 section 7.
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + escapes(text.as_bytes()) + 2);
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if is_plain(*first) {
            let (plain, after) = rest.split_at(plain_bytes(rest));
            out.extend_from_slice(plain);
            rest = after;
        } else {
            escape(out, *first);
            rest = after;
        }
    }
    out.push(b'"');
}

/// Bytes that escaping adds to a text.
fn escapes(text: &[u8]) -> usize {
    let added = |byte: &u8| {
        let control = 5 * u32::from(*byte < 0x20);
        let short = 4 * u32::from(matches!(*byte, 8 | 9 | 10 | 12 | 13));
        let mark = u32::from(*byte == b'"' || *byte == b'\\');
        control - short + mark
    };
    let parts = text.chunks(SUM_BYTES);
    parts
        .map(|part| part.iter().map(added).sum::<u32>() as usize)
        .sum()
}

/// Returns the number of bytes at the front of `text` that stand unescaped in a string.
fn plain_bytes(text: &[u8]) -> usize {
    let (blocks, _) = text.as_chunks::<BLOCK_BYTES>();
    let is_all_plain =
        |block: &[u8; BLOCK_BYTES]| block.iter().fold(true, |all, byte| all & is_plain(*byte));
    let whole = blocks
        .iter()
        .take_while(|block| is_all_plain(block))
        .count()
        * BLOCK_BYTES;
    let rest = &text[whole..];
    whole + rest.iter().take_while(|byte| is_plain(**byte)).count()
}

fn is_plain(byte: u8) -> bool {
    byte >= 0x20 && byte != b'"' && byte != b'\\'
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' => b"\\\"",
        b'\\' => b"\\\\",
        8 => b"\\b",
        b'\t' => b"\\t",
        b'\n' => b"\\n",
        12 => b"\\f",
        b'\r' => b"\\r",
        _ => {
            let digit = |value: u8| DIGITS[usize::from(value & 15)];
            let escaped = [b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)];
            return out.extend_from_slice(&escaped);
        }
    };
    out.extend_from_slice(short);
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// Bytes that are compared together.
const BLOCK_BYTES: usize = 32;
/// Bytes whose escapes are added up in a small number.
const SUM_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The twin: one character after the other.
    fn naive(text: &str) -> Vec<u8> {
        let mut out = String::from('"');
        for character in text.chars() {
            match character {
                '"' | '\\' => out.extend(['\\', character]),
                '\u{8}' => out.push_str("\\b"),
                '\t' => out.push_str("\\t"),
                '\n' => out.push_str("\\n"),
                '\u{c}' => out.push_str("\\f"),
                '\r' => out.push_str("\\r"),
                '\0'..' ' => {
                    let code = format!("\\u{:04x}", character as u32);
                    out.push_str(&code);
                }
                _ => out.push(character),
            }
        }
        out.push('"');
        out.into_bytes()
    }

    #[test]
    fn every_character_of_one_byte_is_as_json_wants_it() {
        for byte in 0..128_u8 {
            let text = char::from(byte).to_string().repeat(70);
            let mut out = Vec::new();
            string(&mut out, &text);
            assert_eq!(out, naive(&text), "{byte}");
            assert_eq!(out.capacity(), out.len(), "{byte}");
        }
    }

    proptest! {
        #[test]
        fn a_string_is_what_the_naive_twin_makes_of_it(
            text in "([ -~]{0,40}|[\0-\u{1f}\"\\\\]{1,9}|é€😀|\u{7f}){0,12}",
        ) {
            let mut out = b"before".to_vec();
            string(&mut out, &text);
            prop_assert_eq!(&out[..6], b"before");
            prop_assert_eq!(&out[6..], &naive(&text)[..]);
        }
    }
}
