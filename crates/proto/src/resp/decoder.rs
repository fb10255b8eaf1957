//! The decoder: one message at a time out of the bytes a server sent.

use super::header::{Aggregate, Blob, Header};
use super::{PeerError, Value};

/// Bounds of what a client takes from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest bulk string that is a whole reply; a longer one is read and dropped. Units: bytes.
    /// Default: 1 MiB.
    pub value_bytes_max: usize,
    /// Longest message of any other type, with its attributes. Units: bytes. Default: 64 KiB.
    pub aggregate_bytes_max: usize,
    /// Longest first line of a value. Units: bytes. Default: 4096.
    pub line_bytes_max: usize,
    /// Aggregates in one another; no more than 8. Default: 8.
    pub depth_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            value_bytes_max: 1 << 20,
            aggregate_bytes_max: 64 * 1024,
            line_bytes_max: 4096,
            depth_max: DEPTH_MAX,
        }
    }
}

/// One message of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Message<'b> {
    /// A reply or a push.
    Value(Value<'b>),
    /// A bulk string beyond [`Limits::value_bytes_max`], which was dropped.
    Oversized {
        /// Its length in bytes.
        length: usize,
    },
}

/// The result of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decoded<'b> {
    /// A message, and the bytes used with it.
    Message(usize, Message<'b>),
    /// The message is not complete: call again with more. Only the given number of bytes is used;
    /// it is more than 0 while an oversized value is dropped.
    Incomplete(usize),
}

/// Cuts the bytes of a server into messages.
///
/// Shape: holds a few numbers and no bytes. Each call is given every byte that has not been used
/// yet, contiguous; values of an aggregate that were seen already are not read again.
///
/// ```
/// use dwell_proto::resp::{Decoded, Decoder, Limits, Message, Value};
///
/// let mut decoder = Decoder::new(Limits::default());
/// assert_eq!(decoder.decode(b"$5\r\nhel"), Ok(Decoded::Incomplete(0)));
/// let hello = Message::Value(Value::BulkString(b"hello"));
/// assert_eq!(decoder.decode(b"$5\r\nhello\r\n:1"), Ok(Decoded::Message(11, hello)));
/// ```
#[derive(Clone, Debug)]
pub struct Decoder {
    limits: Limits,
    /// Bytes of the message that were read.
    position: usize,
    /// The aggregates that the next value is in, the innermost last.
    open: [Open; DEPTH_MAX],
    depth: usize,
    dropping: Option<Dropping>,
}

/// An aggregate that is not complete.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    /// Values that are missing.
    left: usize,
    /// True of attributes, which are no value of what they are in.
    is_attribute: bool,
}

/// An oversized value whose bytes are dropped as they come.
#[derive(Clone, Copy, Debug)]
struct Dropping {
    length: usize,
    /// Bytes that are missing, with the line end.
    left: usize,
}

/// A step inside of a message.
enum Step {
    /// The message is complete.
    Complete,
    /// Further values belong to the message.
    More,
    /// The bytes end inside of a value.
    Missing,
    Oversized(usize),
}

impl Decoder {
    /// Makes a decoder at the beginning of a connection.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits: Limits {
                depth_max: limits.depth_max.min(DEPTH_MAX),
                ..limits
            },
            position: 0,
            open: [Open::default(); DEPTH_MAX],
            depth: 0,
            dropping: None,
        }
    }

    /// Decodes the message at the front of `input`.
    ///
    /// # Errors
    /// [`PeerError`] when the server broke the protocol: close the connection.
    ///
    /// Source: RESP3 specification, "RESP3 overview".
    pub fn decode<'b>(&mut self, input: &'b [u8]) -> Result<Decoded<'b>, PeerError> {
        if let Some(dropping) = self.dropping {
            return Ok(self.drop_bytes(dropping, input));
        }
        loop {
            match self.step(input)? {
                Step::Missing => return Ok(Decoded::Incomplete(0)),
                Step::Oversized(length) => {
                    let used = std::mem::take(&mut self.position);
                    let Some(left) = length.checked_add(2) else {
                        return Err(PeerError::Malformed { part: "length" });
                    };
                    return Ok(
                        match self.drop_bytes(Dropping { length, left }, &input[used..]) {
                            Decoded::Message(more, message) => {
                                Decoded::Message(used + more, message)
                            }
                            Decoded::Incomplete(more) => Decoded::Incomplete(used + more),
                        },
                    );
                }
                Step::More => {}
                Step::Complete => {
                    let used = std::mem::take(&mut self.position);
                    let malformed = PeerError::Malformed { part: "value" };
                    let (value, _) = Value::read(&input[..used]).ok_or(malformed)?;
                    return Ok(Decoded::Message(used, Message::Value(value)));
                }
            }
        }
    }

    fn drop_bytes(&mut self, dropping: Dropping, input: &[u8]) -> Decoded<'static> {
        let used = dropping.left.min(input.len());
        let left = dropping.left - used;
        let length = dropping.length;
        if left == 0 {
            self.dropping = None;
            return Decoded::Message(used, Message::Oversized { length });
        }
        self.dropping = Some(Dropping { length, left });
        Decoded::Incomplete(used)
    }

    /// Reads one value that is no aggregate, or the first line of one that is.
    fn step(&mut self, input: &[u8]) -> Result<Step, PeerError> {
        let rest = &input[self.position.min(input.len())..];
        let Some((used, header)) = Header::read(rest, self.limits.line_bytes_max)? else {
            return Ok(Step::Missing);
        };
        match header {
            Header::Aggregate(kind, count) => return self.enter(kind, count, used),
            Header::Blob(kind, length) => {
                let is_reply = self.position == 0 && kind == Blob::String;
                if is_reply && length > self.limits.value_bytes_max {
                    self.position = used;
                    return Ok(Step::Oversized(length));
                }
                let whole = used.saturating_add(length).saturating_add(2);
                if !is_reply {
                    self.check_length(whole)?;
                }
                let Some(blob) = rest.get(used..whole) else {
                    return Ok(Step::Missing);
                };
                if !blob.ends_with(b"\r\n") {
                    return Err(PeerError::Malformed { part: "line end" });
                }
                if kind == Blob::Verbatim && (length < 4 || blob[3] != b':') {
                    return Err(PeerError::Malformed { part: "format" });
                }
                self.position += whole;
            }
            _ => {
                self.check_length(used)?;
                self.position += used;
            }
        }
        Ok(self.value_ended())
    }

    /// Enters an aggregate.
    fn enter(&mut self, kind: Aggregate, count: usize, used: usize) -> Result<Step, PeerError> {
        if kind == Aggregate::Push && self.depth > 0 {
            return Err(PeerError::NestedPush);
        }
        self.check_length(used.saturating_add(count.saturating_mul(VALUE_BYTES_MIN)))?;
        if self.depth == self.limits.depth_max {
            let limit = self.limits.depth_max;
            return Err(PeerError::TooDeep { limit });
        }
        self.position += used;
        let is_attribute = kind == Aggregate::Attribute;
        if count == 0 {
            return Ok(if is_attribute {
                Step::More
            } else {
                self.value_ended()
            });
        }
        self.open[self.depth] = Open {
            left: count,
            is_attribute,
        };
        self.depth += 1;
        Ok(Step::More)
    }

    /// Counts a value that is complete, and leaves the aggregates that are complete with it.
    fn value_ended(&mut self) -> Step {
        while let Some(innermost) = self.depth.checked_sub(1) {
            self.open[innermost].left -= 1;
            if self.open[innermost].left > 0 {
                return Step::More;
            }
            self.depth = innermost;
            if self.open[innermost].is_attribute {
                return Step::More;
            }
        }
        Step::Complete
    }

    fn check_length(&self, more: usize) -> Result<(), PeerError> {
        let limit = self.limits.aggregate_bytes_max;
        let length = self.position.saturating_add(more);
        if length > limit {
            return Err(PeerError::AggregateTooLong { limit, length });
        }
        Ok(())
    }
}

/// Aggregates in one another that a decoder can follow.
const DEPTH_MAX: usize = 8;
/// A null is the shortest value.
const VALUE_BYTES_MIN: usize = 3;
