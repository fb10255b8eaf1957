//! Distinguished names as text (RFC 4514).

use super::{Der, Element, OBJECT_ID, SEQUENCE};
use std::fmt::Write;

/// Writes a name, the content of its sequence; `None` for anything else.
///
/// Shape: the last part of the name comes first, as RFC 4514 section 2.1 has it.
pub(super) fn text_of(name: &[u8]) -> Option<String> {
    let mut sets = Vec::new();
    let mut rest = Der(name);
    while !rest.0.is_empty() {
        sets.push(rest.expect(SET)?);
    }
    let mut text = String::new();
    for set in sets.into_iter().rev() {
        let mut attributes = Der(set);
        let mut separator = if text.is_empty() { "" } else { "," };
        while !attributes.0.is_empty() {
            text.push_str(separator);
            add_attribute(attributes.expect(SEQUENCE)?, &mut text)?;
            separator = "+";
        }
    }
    Some(text)
}

/// Each common name in a name, empty if it is no text; `None` for anything else than a name.
pub(super) fn common_names_of(name: &[u8]) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut sets = Der(name);
    while !sets.0.is_empty() {
        let mut attributes = Der(sets.expect(SET)?);
        while !attributes.0.is_empty() {
            let mut attribute = Der(attributes.expect(SEQUENCE)?);
            if attribute.expect(OBJECT_ID)? == COMMON_NAME {
                found.push(string_of(attribute.next()?).unwrap_or_default());
            }
        }
    }
    Some(found)
}

fn add_attribute(attribute: &[u8], text: &mut String) -> Option<()> {
    let mut attribute = Der(attribute);
    let id = attribute.expect(OBJECT_ID)?;
    let value_and_tag = attribute.0;
    let value = attribute.next()?;
    let known = KNOWN.iter().find(|(known, _)| *known == id);
    match (known, string_of(value)) {
        (Some((_, name)), Some(value)) => {
            text.push_str(name);
            text.push('=');
            escape(&value, text);
        }
        // Section 2.4: of an unknown attribute, or one that is no string, the bytes are shown.
        (known, _) => {
            match known {
                Some((_, name)) => text.push_str(name),
                None => add_dotted(id, text)?,
            }
            text.push_str("=#");
            let bytes = &value_and_tag[..value_and_tag.len() - attribute.0.len()];
            for byte in bytes {
                // Writing to a string cannot fail.
                let _ = write!(text, "{byte:02x}");
            }
        }
    }
    Some(())
}

/// The characters of a string; `None` for another type, or for an invalid string.
fn string_of((tag, bytes): Element<'_>) -> Option<String> {
    match tag {
        UTF8_STRING => str::from_utf8(bytes).ok().map(str::to_owned),
        PRINTABLE_STRING | IA5_STRING => {
            let text = str::from_utf8(bytes).ok()?;
            text.is_ascii().then(|| text.to_owned())
        }
        // T.61, which is Latin-1 wherever it is met.
        TELETEX_STRING => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
        BMP_STRING => {
            let (units, []) = bytes.as_chunks::<2>() else {
                return None;
            };
            let units: Vec<u16> = units.iter().map(|unit| u16::from_be_bytes(*unit)).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

/// Source: RFC 4514 section 2.4.
fn escape(value: &str, text: &mut String) {
    let last = value.len().saturating_sub(1);
    for (at, character) in value.char_indices() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', character]),
            '#' if at == 0 => text.push_str("\\#"),
            ' ' if at == 0 || at == last => text.push_str("\\ "),
            // Beyond what it asks for: no line of a log ends within a name.
            character if character.is_ascii_control() => {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\{:02x}", u32::from(character));
            }
            character => text.push(character),
        }
    }
}

/// Writes an object identifier in numbers.
fn add_dotted(id: &[u8], text: &mut String) -> Option<()> {
    let mut arc: u64 = 0;
    let mut is_first = true;
    for byte in id {
        arc = arc.checked_mul(128)? | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = if is_first {
            let root = (arc / 40).min(2);
            write!(text, "{root}.{}", arc - root * 40)
        } else {
            write!(text, ".{arc}")
        };
        is_first = false;
        arc = 0;
    }
    let is_whole = id.last().is_some_and(|byte| byte & 0x80 == 0);
    is_whole.then_some(())
}

const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const TELETEX_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const BMP_STRING: u8 = 0x1e;
const SET: u8 = 0x31;

/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 4, 3];

/// The names of attributes (RFC 4514 section 3).
const KNOWN: [(&[u8], &str); 9] = [
    (COMMON_NAME, "CN"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 9], "STREET"),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
        "DC",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1],
        "UID",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::slice::from_ref;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, content.len() as u8], content].concat()
    }

    fn attribute(id: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        let parts = [element(OBJECT_ID, id), element(tag, value)].concat();
        element(SEQUENCE, &parts)
    }

    const ORGANIZATION: &[u8] = &[0x55, 4, 10];
    /// 1.2.840.113549.1.9.1
    const EMAIL: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];

    #[test]
    fn the_last_part_comes_first() {
        let name = [
            element(SET, &attribute(ORGANIZATION, PRINTABLE_STRING, b"Example")),
            element(
                SET,
                &[
                    attribute(COMMON_NAME, UTF8_STRING, "älice".as_bytes()),
                    attribute(EMAIL, IA5_STRING, b"a@b"),
                ]
                .concat(),
            ),
        ];
        let expected = "CN=älice+1.2.840.113549.1.9.1=#1603614062,O=Example";
        assert_eq!(text_of(&name.concat()).unwrap(), expected);
        assert_eq!(text_of(b"").unwrap(), "");
    }

    #[test]
    fn each_common_name_is_found() {
        let set = |attributes: &[Vec<u8>]| element(SET, &attributes.concat());
        let cn = |tag, value: &[u8]| attribute(COMMON_NAME, tag, value);
        let organization = set(&[attribute(ORGANIZATION, UTF8_STRING, b"Example")]);
        let of = |sets: &[Vec<u8>]| common_names_of(&sets.concat()).unwrap();
        let alice = cn(UTF8_STRING, b"alice");
        assert_eq!(
            of(&[organization.clone(), set(from_ref(&alice))]),
            ["alice"]
        );
        let beside = [alice.clone(), attribute(EMAIL, IA5_STRING, b"a@b")];
        assert_eq!(of(&[set(&beside)]), ["alice"]);
        assert_eq!(of(&[set(&[cn(BMP_STRING, b"\0a\0\xe4")])]), ["a\u{e4}"]);
        assert_eq!(of(&[set(&[cn(UTF8_STRING, b"a\0b")])]), ["a\0b"]);
        assert!(of(&[organization]).is_empty());
        let bob = cn(UTF8_STRING, b"bob");
        assert_eq!(
            of(&[set(from_ref(&alice)), set(from_ref(&bob))]),
            ["alice", "bob"]
        );
        assert_eq!(of(&[set(&[alice.clone(), bob])]), ["alice", "bob"]);
        for (tag, wrong) in [
            (UTF8_STRING, &b"\xff"[..]),
            (PRINTABLE_STRING, b"\xe4"),
            (2, b"1"),
        ] {
            assert_eq!(of(&[set(&[cn(tag, wrong)])]), [""], "{wrong:?}");
        }
        assert_eq!(common_names_of(&element(SEQUENCE, &alice)), None);
    }

    #[test]
    fn what_would_be_read_as_another_name_is_escaped() {
        for (value, expected) in [
            ("a,O=b+c", "CN=a\\,O=b\\+c"),
            ("#a#", "CN=\\#a#"),
            (" a b ", "CN=\\ a b\\ "),
            (" ", "CN=\\ "),
            ("a\\\"<>;", "CN=a\\\\\\\"\\<\\>\\;"),
            ("a\nb\0", "CN=a\\0ab\\00"),
            ("", "CN="),
        ] {
            let name = element(SET, &attribute(COMMON_NAME, UTF8_STRING, value.as_bytes()));
            assert_eq!(text_of(&name).unwrap(), expected, "{value:?}");
        }
    }

    #[test]
    fn strings_have_several_types() {
        for (tag, value, expected) in [
            (BMP_STRING, &b"\0a\x20\xac"[..], "CN=a€"),
            (TELETEX_STRING, b"\xe4", "CN=ä"),
            (BMP_STRING, b"a", "CN=#1e0161"),
            (UTF8_STRING, b"\xff", "CN=#0c01ff"),
            (0x02, b"\x01", "CN=#020101"),
        ] {
            let name = element(SET, &attribute(COMMON_NAME, tag, value));
            assert_eq!(text_of(&name).unwrap(), expected);
        }
    }

    #[test]
    fn anything_else_is_no_name() {
        let whole = element(SET, &attribute(COMMON_NAME, UTF8_STRING, b"a"));
        for end in 1..whole.len() {
            assert_eq!(text_of(&whole[..end]), None, "{end}");
        }
        assert_eq!(text_of(&element(SEQUENCE, b"")), None);
        let unended = element(SET, &attribute(&[0x2a, 0x86], UTF8_STRING, b"a"));
        assert_eq!(text_of(&unended), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            let _ = text_of(&bytes);
            let _ = text_of(&element(SET, &attribute(&bytes[..bytes.len().min(50)], 0x0c, b"a")));
        }
    }
}
