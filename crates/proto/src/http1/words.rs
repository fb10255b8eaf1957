//! Looking for bytes in short texts, eight at a time.
//!
//! Names, values and targets are mostly shorter than what a vector instruction takes, and a loop
//! over their bytes costs several instructions for each. The tests here take a word of eight bytes
//! and set the high bit of bytes that they find; which ones is right only up to the first, as it
//! borrows from those behind it, and so all that is asked is whether there are any.

/// Returns true if `find` finds a byte in `text`.
#[inline]
pub(super) fn contains(text: &[u8], find: impl Fn(u64) -> u64) -> bool {
    if let Some(last) = text.last_chunk() {
        let (words, _) = text.as_chunks();
        let found = words
            .iter()
            .fold(0, |found, word| found | find(u64::from_le_bytes(*word)));
        return found | find(u64::from_le_bytes(*last)) != 0;
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return find(u64::from(first) | u64::from(last) << 32) != 0;
    }
    match *text {
        [first, .., last] => {
            let middle = text[1];
            let word = [first, middle, last, last, last, last, last, last];
            find(u64::from_le_bytes(word)) != 0
        }
        [only] => find(word_of(only)) != 0,
        [] => false,
    }
}

/// Finds bytes below `limit`, which is at most 0x80.
#[inline]
pub(super) const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(word_of(limit)) & !word & HIGH_BITS
}

/// Finds bytes that are 0x80 or above.
#[inline]
pub(super) const fn beyond_ascii(word: u64) -> u64 {
    word & HIGH_BITS
}

/// Finds bytes that are `byte` in all bits but those of `ignored`.
#[inline]
pub(super) const fn equal(word: u64, byte: u8, ignored: u8) -> u64 {
    below((word ^ word_of(byte)) & !word_of(ignored), 1)
}

/// A word of one byte, eight times.
const fn word_of(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

const HIGH_BITS: u64 = word_of(0x80);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_byte_at_every_place_of_every_length() {
        for length in 0..40 {
            for place in 0..length {
                for byte in 0..=u8::MAX {
                    let mut text = vec![b'n'; length];
                    text[place] = byte;
                    let finds = |find: fn(u64) -> u64| contains(&text, find);
                    assert_eq!(finds(|word| below(word, b' ')), byte < b' ', "{text:?}");
                    assert_eq!(finds(beyond_ascii), byte >= 0x80, "{text:?}");
                    let is_colon = finds(|word| equal(word, b':', 0));
                    assert_eq!(is_colon, byte == b':', "{text:?}");
                    let is_either = finds(|word| equal(word, b'"', 1));
                    assert_eq!(is_either, matches!(byte, b'"' | b'#'), "{text:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn as_a_loop_over_the_bytes(text: Vec<u8>, limit in 0..=0x80_u8, byte: u8) {
            let is_below = contains(&text, |word| below(word, limit));
            prop_assert_eq!(is_below, text.iter().any(|byte| *byte < limit));
            let is_there = contains(&text, |word| equal(word, byte, 0));
            prop_assert_eq!(is_there, text.contains(&byte));
        }
    }
}
