//! Large values in the forms in which streams, WebSockets and polls of several keys bring them.
//!
//! Each is encoded once for all who are sent that content of that key, at the same time or later:
//! they have references to the same bytes, so a reader that takes nothing holds no copy. An
//! encoding is found here as long as a reader has it; of those without a reader only the newest are
//! kept, and only for a while.

use super::answers::Found;
use super::{events, frames, json};
use crate::cursor::Cursor;
use bytes::Bytes;
use dwell_engine::websocket::Broadcast;
use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Encoded values of one loop.
#[derive(Debug, Default)]
pub(crate) struct Encodings {
    known: HashTable<Encoding>,
    /// Keys are chosen by clients, so the hash is keyed against chosen collisions.
    hasher: RandomState,
    /// Counts uses, so that the newest are known.
    uses: u64,
    /// Bytes encoded since encodings without a reader were last dropped.
    fresh_bytes: usize,
    /// Bytes that were encoded or copied, and not counted as work yet.
    work: usize,
}

/// One content of one key in one form.
#[derive(Debug)]
struct Encoding {
    name: Box<[u8]>,
    cursor: Cursor,
    form: Form,
    encoded: Encoded,
    used: u64,
}

/// Form of an encoded value.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
enum Form {
    /// As it is.
    Plain,
    /// The end of an event, which is its lines.
    Lines,
    /// The members of a JSON object that describe it.
    Members,
    /// A frame that gives the key this name.
    Frame(Option<Box<str>>),
}

#[derive(Clone, Debug)]
enum Encoded {
    Bytes(Bytes),
    Frame(Arc<Broadcast>),
}

/// Values of this size are encoded for all; what smaller ones become is as soon made again.
const VALUE_BYTES_MIN: usize = 4 * 1024;
/// Most bytes of encodings without a reader, which are kept for the next one; fewer in unit tests.
const KEPT_BYTES_MAX: usize = if cfg!(test) { 512 << 10 } else { 4 << 20 };

impl Encodings {
    /// The end of the event that has a value: its lines, and the empty one.
    pub(super) fn lines(&mut self, name: &[u8], found: &Found<'_>) -> Bytes {
        self.bytes(name, found, &Form::Lines, |_| {
            of_its_size(events::lines(&String::from_utf8_lossy(found.bytes())))
        })
    }

    /// The members of a JSON object that describe a value.
    pub(super) fn members(&mut self, name: &[u8], found: &Found<'_>) -> Bytes {
        self.bytes(name, found, &Form::Members, |_| members(found))
    }

    /// The frame that has a value under this name of its key.
    pub(super) fn frame(
        &mut self,
        name: &[u8],
        label: Option<&str>,
        found: &Found<'_>,
    ) -> Arc<Broadcast> {
        let form = Form::Frame(label.map(Box::from));
        let make = |encodings: &mut Self| {
            let members = encodings.members(name, found);
            Encoded::Frame(Arc::new(frames::of_members(label, &members)))
        };
        match self.encoding(name, found, &form, make) {
            Encoded::Frame(frame) => frame,
            // No other form is made of bytes.
            Encoded::Bytes(_) => Arc::new(frames::of_members(label, &members(found))),
        }
    }

    /// A large value as one that any number of answers share: the one that others have already,
    /// where there is one.
    pub(super) fn share(&mut self, name: &[u8], found: &mut Found<'_>) {
        if found.is_owned() || !found.is_large() {
            return found.share();
        }
        let shared = self.bytes(name, found, &Form::Plain, |_| {
            Bytes::copy_from_slice(found.bytes())
        });
        found.share_as(shared);
    }

    fn bytes(
        &mut self,
        name: &[u8],
        found: &Found<'_>,
        form: &Form,
        make: impl FnOnce(&mut Self) -> Bytes,
    ) -> Bytes {
        let make = |encodings: &mut Self| Encoded::Bytes(make(encodings));
        match self.encoding(name, found, form, make) {
            Encoded::Bytes(bytes) => bytes,
            Encoded::Frame(frame) => frame.plain().clone(),
        }
    }

    fn encoding(
        &mut self,
        name: &[u8],
        found: &Found<'_>,
        form: &Form,
        make: impl FnOnce(&mut Self) -> Encoded,
    ) -> Encoded {
        if found.bytes().len() < VALUE_BYTES_MIN {
            return make(self);
        }
        self.uses += 1;
        let (cursor, used) = (found.content.cursor, self.uses);
        let hash = self.hasher.hash_one((name, cursor, form));
        let is_it = |known: &Encoding| {
            known.cursor == cursor && *known.name == *name && known.form == *form
        };
        if let Some(known) = self.known.find_mut(hash, is_it) {
            known.used = used;
            return known.encoded.clone();
        }
        let encoded = make(self);
        let bytes = encoded.bytes();
        self.work += found.bytes().len() + bytes;
        self.fresh_bytes += bytes;
        if self.fresh_bytes > KEPT_BYTES_MAX {
            self.let_go(KEPT_BYTES_MAX);
        }
        let encoding = Encoding {
            name: name.into(),
            cursor,
            form: form.clone(),
            encoded: encoded.clone(),
            used,
        };
        let hasher = &self.hasher;
        let hash_of = |known: &Encoding| hasher.hash_one((&*known.name, known.cursor, &known.form));
        self.known.insert_unique(hash, encoding, hash_of);
        encoded
    }

    /// Forgets what no reader has any more, but for the newest `bytes_max` bytes of it.
    pub(crate) fn let_go(&mut self, bytes_max: usize) {
        let unused = self.known.iter().filter(|known| !known.encoded.is_in_use());
        let mut unused: Vec<_> = unused
            .map(|known| (known.used, known.encoded.bytes()))
            .collect();
        unused.sort_unstable_by_key(|(used, _)| std::cmp::Reverse(*used));
        let (mut bytes, mut oldest) = (0, u64::MAX);
        for (used, of_it) in unused {
            bytes += of_it;
            if bytes > bytes_max {
                break;
            }
            oldest = used;
        }
        self.known
            .retain(|known| known.used >= oldest || known.encoded.is_in_use());
        self.fresh_bytes = 0;
        if self.known.is_empty() {
            self.known = HashTable::new();
        }
    }

    /// Returns true if nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Bytes that were encoded since this was last asked.
    pub(super) fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.work)
    }
}

impl Encoded {
    fn bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Frame(frame) => frame.encoded_bytes(),
        }
    }

    /// Returns true if anything besides this table refers to it.
    fn is_in_use(&self) -> bool {
        match self {
            Self::Bytes(bytes) => !bytes.is_unique(),
            Self::Frame(frame) => Arc::strong_count(frame) > 1 || frame.is_in_use(),
        }
    }
}

/// The members of a JSON object that describe a value.
pub(super) fn members(found: &Found<'_>) -> Bytes {
    let mut out = Vec::new();
    json::value(&mut out, found.bytes(), found.content.cursor);
    of_its_size(out)
}

/// Bytes without room for more.
fn of_its_size(bytes: Vec<u8>) -> Bytes {
    bytes.into_boxed_slice().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: &[u8] = &[b'\n'; 20_000];

    fn text(bytes: &Bytes) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_large_value_is_encoded_once_for_all_who_are_told() {
        let mut encodings = Encodings::default();
        let found = Found::borrowed(LARGE, 0);
        let lines = encodings.lines(b"a", &found);
        assert_eq!(text(&lines), "data: \n".repeat(LARGE.len() + 1) + "\n");
        assert_eq!(encodings.take_work(), LARGE.len() + lines.len());
        // Another reading of the same content is as good.
        let copy = Bytes::copy_from_slice(LARGE);
        let again = encodings.lines(b"a", &Found::borrowed(&copy, 0));
        assert_eq!((again.as_ptr(), encodings.take_work()), (lines.as_ptr(), 0));
        let members = encodings.members(b"a", &found);
        assert!(text(&members).starts_with("\"v\":\"\\n\\n"));
        let frame = encodings.frame(b"a", Some("x"), &found);
        let same = encodings.frame(b"a", Some("x"), &found);
        assert!(Arc::ptr_eq(&frame, &same));
        let other = encodings.frame(b"a", None, &found);
        assert_eq!(other.payload()[1..=members.len()], members[..]);
        assert_eq!(frame.payload()[9..members.len() + 9], members[..]);
    }

    #[test]
    fn what_another_key_has_is_never_found() {
        let mut encodings = Encodings::default();
        // As if the hash of one were the hash of another.
        let cursor = Found::borrowed(LARGE, 0).content;
        let other = vec![b'x'; LARGE.len()];
        let forged = Found::shared(cursor, &other.clone().into());
        let _first = encodings.lines(b"a", &Found::borrowed(LARGE, 0));
        assert!(text(&encodings.lines(b"b", &forged)).starts_with("data: xxx"));
    }

    #[test]
    fn what_no_reader_has_is_let_go_of() {
        let mut encodings = Encodings::default();
        let kept = encodings.lines(b"kept", &Found::borrowed(LARGE, 0));
        for number in 0..40 {
            let name = format!("{number}");
            encodings.lines(name.as_bytes(), &Found::borrowed(LARGE, 0));
            let held: usize = encodings
                .known
                .iter()
                .map(|known| known.encoded.bytes())
                .sum();
            assert!(held <= 2 * KEPT_BYTES_MAX + 2 * kept.len(), "{held}");
        }
        encodings.take_work();
        encodings.lines(b"39", &Found::borrowed(LARGE, 0));
        assert_eq!(encodings.take_work(), 0, "the newest is kept");
        encodings.let_go(0);
        assert_eq!(encodings.known.len(), 1, "a reader has it");
        let again = encodings.lines(b"kept", &Found::borrowed(LARGE, 0));
        assert_eq!(again.as_ptr(), kept.as_ptr());
        drop((kept, again));
        encodings.let_go(0);
        assert!(encodings.is_empty());
    }

    #[test]
    fn a_frame_that_waits_in_a_connection_is_in_use() {
        let mut encodings = Encodings::default();
        let frame = encodings.frame(b"a", None, &Found::borrowed(LARGE, 0));
        let queued = frame.plain().slice(10..);
        drop(frame);
        encodings.let_go(0);
        assert_eq!(encodings.known.len(), 1);
        drop(queued);
        encodings.let_go(0);
        assert!(encodings.is_empty());
    }

    #[test]
    fn a_value_that_was_read_is_shared_with_who_has_it() {
        let mut encodings = Encodings::default();
        let mut one = Found::borrowed(LARGE, 0);
        encodings.share(b"a", &mut one);
        let copy = LARGE.to_vec();
        let mut two = Found::borrowed(&copy, 0);
        encodings.share(b"a", &mut two);
        assert_eq!(one.bytes().as_ptr(), two.bytes().as_ptr());
        let mut small = Found::borrowed(b"small", 0);
        encodings.share(b"a", &mut small);
        assert!(!small.is_owned());
    }
}
