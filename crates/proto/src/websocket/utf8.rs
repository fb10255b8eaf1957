//! UTF-8 checked as it arrives.

/// Checks text that comes in pieces, and refuses it at the first byte that no continuation could
/// make valid.
///
/// Shape: four bytes of state, which hold the beginning of a character that a piece ended in.
///
/// ```
/// use dwell_proto::websocket::Utf8Validator;
///
/// let mut validator = Utf8Validator::new();
/// assert!(validator.push(b"caf\xc3"), "the rest of the character may come");
/// assert!(!validator.is_complete());
/// assert!(validator.push(b"\xa9"));
/// assert!(validator.is_complete());
/// assert!(!validator.push(b"\xff"));
/// ```
///
/// Source: RFC 3629; RFC 6455 section 8.1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Utf8Validator {
    /// The first bytes of an unfinished character.
    pending: [u8; 3],
    pending_len: u8,
}

impl Utf8Validator {
    /// A validator at the beginning of a text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece; returns true if the text so far can still become valid.
    ///
    /// Shape: after `false` the validator is of no more use.
    #[must_use]
    pub fn push(&mut self, piece: &[u8]) -> bool {
        let mut piece = piece;
        while self.pending_len > 0 {
            let Some((byte, rest)) = piece.split_first() else {
                return true;
            };
            piece = rest;
            if !self.extend_pending(*byte) {
                return false;
            }
        }
        let (whole, rest) = piece.split_at(piece.len() - unfinished_len(piece));
        if simdutf8::basic::from_utf8(whole).is_err() {
            return false;
        }
        rest.iter().all(|byte| self.extend_pending(*byte))
    }

    /// Returns true if the text may end here.
    pub fn is_complete(self) -> bool {
        self.pending_len == 0
    }

    /// Adds a byte to the unfinished character: whether it can still become one, or is one now.
    fn extend_pending(&mut self, byte: u8) -> bool {
        let [a, b, c] = self.pending;
        let mut character = [a, b, c, 0];
        let place = usize::from(self.pending_len);
        character[place] = byte;
        match std::str::from_utf8(&character[..=place]) {
            Ok(_) => self.pending_len = 0,
            Err(error) if error.error_len().is_none() && place < self.pending.len() => {
                self.pending[place] = byte;
                self.pending_len += 1;
            }
            Err(_) => return false,
        }
        true
    }
}

/// Returns how many bytes at the end begin a character that is longer than they are.
fn unfinished_len(text: &[u8]) -> usize {
    for (before, byte) in text.iter().rev().take(3).enumerate() {
        let character_len = match byte {
            0x80..=0xbf => continue,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xff => 4,
            _ => 1,
        };
        let present = before + 1;
        return if present < character_len { present } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the verdict of std: can the text still become valid, and is it complete?
    fn twin(text: &[u8]) -> (bool, bool) {
        match std::str::from_utf8(text) {
            Ok(_) => (true, true),
            Err(error) => (error.error_len().is_none(), false),
        }
    }

    /// Feeds byte by byte and compares with std at each of them.
    fn check_every_prefix(text: &[u8]) {
        let mut validator = Utf8Validator::new();
        for end in 1..=text.len() {
            let (possible, complete) = twin(&text[..end]);
            assert_eq!(
                validator.push(&text[end - 1..end]),
                possible,
                "{text:x?} to {end}"
            );
            if !possible {
                return;
            }
            assert_eq!(validator.is_complete(), complete, "{text:x?} to {end}");
        }
    }

    #[test]
    fn each_character_and_its_neighbours_are_judged_as_by_std() {
        for text in [
            "a", "\u{7f}", "\u{80}", "\u{7ff}", "\u{800}", "\u{d7ff}", "\u{e000}",
        ] {
            check_every_prefix(text.as_bytes());
        }
        for text in [
            "\u{ffff}",
            "\u{10000}",
            "\u{10ffff}",
            "κόσμε",
            "a\u{1f600}b",
        ] {
            check_every_prefix(text.as_bytes());
        }
        for text in [
            &b"\x80"[..],
            b"\xc0\x80",
            b"\xc1\xbf",
            b"\xe0\x9f\xbf",
            b"\xed\xa0\x80",
            b"\xed\xbf",
            b"\xf0\x8f\xbf\xbf",
            b"\xf4\x90\x80\x80",
            b"\xf5\x80",
            b"\xf8\x88",
            b"\xfe",
            b"\xff",
            b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited",
        ] {
            check_every_prefix(text);
        }
    }

    #[test]
    fn what_cannot_become_valid_fails_before_the_character_ends() {
        let mut validator = Utf8Validator::new();
        assert!(!validator.push(b"ok \xf4\x90"));
        let mut validator = Utf8Validator::new();
        assert!(validator.push(b"ok \xf4"));
        assert!(!validator.push(b"\x90"));
    }

    fn nearly_text() -> impl Strategy<Value = Vec<u8>> {
        let mut text = proptest::collection::vec(any::<char>(), 0..40)
            .prop_map(|text| text.into_iter().collect::<String>().into_bytes())
            .boxed();
        let damage = proptest::option::of((any::<prop::sample::Index>(), any::<u8>()));
        text = (text, damage)
            .prop_map(|(mut text, damage)| {
                if let (Some((place, byte)), false) = (damage, text.is_empty()) {
                    let place = place.index(text.len());
                    text[place] = byte;
                }
                text
            })
            .boxed();
        text
    }

    proptest! {
        #[test]
        fn any_pieces_are_judged_as_the_whole(
            text in nearly_text(),
            cuts in proptest::collection::vec(0_usize..30, 0..8),
        ) {
            let mut validator = Utf8Validator::new();
            let (mut start, mut possible) = (0, true);
            for cut in cuts.into_iter().chain([text.len()]) {
                let end = text.len().min(start + cut);
                possible = validator.push(&text[start..end]);
                prop_assert_eq!(possible, twin(&text[..end]).0);
                if !possible {
                    break;
                }
                start = end;
            }
            prop_assert_eq!(possible && validator.is_complete(), twin(&text).1);
        }

        #[test]
        fn a_byte_at_a_time_is_judged_as_by_std(text in nearly_text()) {
            check_every_prefix(&text);
        }
    }
}
