//! Values, borrowed from the bytes they came in.

use super::header::{Aggregate, Blob, Header};

/// One value, borrowed from the bytes it came in.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'b> {
    /// A line of text, as `OK`.
    SimpleString(&'b [u8]),
    /// An error: a code in capital letters, and a text.
    Error(&'b [u8]),
    /// A 64-bit number.
    Number(i64),
    /// A floating-point number.
    Double(f64),
    /// The digits of a number of any size, with an optional sign.
    BigNumber(&'b [u8]),
    /// A truth value.
    Boolean(bool),
    /// Nothing: a key that is not there.
    Null,
    /// Bytes.
    BulkString(&'b [u8]),
    /// Text in a format.
    Verbatim {
        /// The format in three letters, as `txt`.
        format: &'b [u8],
        /// The text.
        text: &'b [u8],
    },
    /// Values in order.
    Array(Items<'b>),
    /// Keys and values in turn.
    Map(Items<'b>),
    /// Values without an order.
    Set(Items<'b>),
    /// Values that nothing asked for; the first one names their meaning.
    Push(Items<'b>),
}

impl<'b> Value<'b> {
    /// The text of a simple string, a bulk string or a verbatim string.
    pub fn text(&self) -> Option<&'b [u8]> {
        match *self {
            Self::SimpleString(text) | Self::BulkString(text) | Self::Verbatim { text, .. } => {
                Some(text)
            }
            _ => None,
        }
    }

    /// Reads the value at the front of `complete`, of which nothing is missing; returns the bytes
    /// after it too.
    pub(super) fn read(complete: &'b [u8]) -> Option<(Self, &'b [u8])> {
        let mut rest = complete;
        loop {
            let (used, header) = Header::read(rest, usize::MAX).ok()??;
            let after = &rest[used..];
            let line_value = match header {
                Header::Aggregate(Aggregate::Attribute, count) => {
                    rest = Items { count, rest: after }.into_iter().end();
                    continue;
                }
                Header::Aggregate(kind, count) => {
                    let end = Items { count, rest: after }.into_iter().end();
                    let rest = &after[..after.len() - end.len()];
                    return Some((Self::aggregate(kind, Items { count, rest }), end));
                }
                Header::Blob(kind, length) => {
                    let bytes = after.get(..length)?;
                    return Some((Self::blob(kind, bytes)?, after.get(length + 2..)?));
                }
                Header::Simple(line) => Self::SimpleString(line),
                Header::Error(line) => Self::Error(line),
                Header::Number(number) => Self::Number(number),
                Header::Double(number) => Self::Double(number),
                Header::BigNumber(digits) => Self::BigNumber(digits),
                Header::Boolean(truth) => Self::Boolean(truth),
                Header::Null => Self::Null,
            };
            return Some((line_value, after));
        }
    }

    fn aggregate(kind: Aggregate, items: Items<'b>) -> Self {
        match kind {
            Aggregate::Map => Self::Map(items),
            Aggregate::Set => Self::Set(items),
            Aggregate::Push => Self::Push(items),
            Aggregate::Array | Aggregate::Attribute => Self::Array(items),
        }
    }

    fn blob(kind: Blob, bytes: &'b [u8]) -> Option<Self> {
        Some(match kind {
            Blob::String => Self::BulkString(bytes),
            Blob::Error => Self::Error(bytes),
            Blob::Verbatim => Self::Verbatim {
                format: bytes.get(..3)?,
                text: bytes.get(4..)?,
            },
        })
    }
}

/// The values in an aggregate, read as they are asked for.
///
/// ```
/// use dwell_proto::resp::{Decoded, Decoder, Limits, Message, Value};
///
/// let input = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\nalice\r\n";
/// let decoded = Decoder::new(Limits::default()).decode(input).unwrap();
/// let Decoded::Message(_, Message::Value(Value::Push(items))) = decoded else {
///     panic!("{decoded:?}")
/// };
/// let mut items = items.into_iter();
/// assert_eq!(items.next(), Some(Value::BulkString(b"invalidate")));
/// let Some(Value::Array(keys)) = items.next() else { panic!() };
/// assert_eq!(keys.into_iter().next(), Some(Value::BulkString(b"alice")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Items<'b> {
    count: usize,
    rest: &'b [u8],
}

impl<'b> IntoIterator for Items<'b> {
    type Item = Value<'b>;
    type IntoIter = ItemIter<'b>;

    fn into_iter(self) -> ItemIter<'b> {
        ItemIter(self)
    }
}

/// The values of [`Items`], one after the other.
#[derive(Clone, Debug)]
pub struct ItemIter<'b>(Items<'b>);

impl<'b> ItemIter<'b> {
    /// The bytes after the last value.
    fn end(mut self) -> &'b [u8] {
        while self.next().is_some() {}
        self.0.rest
    }
}

impl<'b> Iterator for ItemIter<'b> {
    type Item = Value<'b>;

    fn next(&mut self) -> Option<Value<'b>> {
        let items = &mut self.0;
        items.count = items.count.checked_sub(1)?;
        let (value, rest) = Value::read(items.rest)?;
        items.rest = rest;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.0.count))
    }
}
