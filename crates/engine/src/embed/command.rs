//! The orders of a host: one at a time, or many written behind one another.

mod written;

pub use written::Commands;

use std::fmt;

/// An order of the host.
///
/// Shape: one whose handle names nothing any more is a cheap no-op that results in
/// [`CommandError::Stale`]. Fields that its operation does not use are 0 or empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command<'a> {
    /// The operation, with which the use of the rest stands.
    pub operation: Operation,
    /// The name that an event gave what it is for.
    pub handle: u64,
    /// A status, or a close code.
    pub status: u16,
    /// Bits of [`write_flags`] or [`upgrade_flags`].
    pub flags: u32,
    /// A number of bytes, or a mark.
    pub argument: u64,
    /// Fields of an answer but those of framing.
    pub fields: FieldLines<'a>,
    /// Bytes: a body, a message.
    pub bytes: &'a [u8],
}

/// Operations of orders, by their numbers; one that was given is never given again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
#[non_exhaustive]
pub enum Operation {
    /// Writes `bytes`: of an answer that was begun, as the body; of one that was not, as the answer
    /// just as it is, status line and all; of a raw stream, as they are. `argument` is the mark
    /// that [`Writable`](super::EventKind::Writable) of a raw stream reports. `fields` are the
    /// trailers of an answer that was begun without a length, and that this ends. An answer on a
    /// stream of HTTP/2 has to be begun.
    Write = 1,
    /// Sends a whole answer to a request, which the engine frames: `status` from 200 to 599,
    /// `fields`, and `bytes` as its body. The flag [`CLOSE`](write_flags::CLOSE) alone counts.
    Answer,
    /// Begins an answer as [`Answer`](Self::Answer) sends one; [`Write`](Self::Write) brings its
    /// body of `argument` bytes, or in chunks for `u64::MAX`.
    Begin,
    /// Sends an informational answer before the final one: `status` 100 or 102 to 199, `fields`.
    Informational,
    /// Lets `argument` more bytes of a body come; the first one sends a 100 (Continue) that the
    /// client waits for. The end of a chunked body comes only while some are granted.
    Grant,
    /// Ends the connection of anything at once, whatever is queued for it. A request of HTTP/2 ends
    /// with its stream alone, by `INTERNAL_ERROR`.
    Abort,
    /// Closes anything in order, behind the queued output: a WebSocket with a close frame of code
    /// `status`, 0 for none, and `bytes` as its reason. For a request it closes the connection, and
    /// so cuts off the response; for one of HTTP/2 it does as [`Abort`](Self::Abort).
    Close,
    /// Takes the connection of a request out of the engine, once what was written is out. A request
    /// of HTTP/2 shares its connection: its stream ends by `HTTP_1_1_REQUIRED`, upon which a
    /// browser tries again over HTTP/1.1, and [`Gone`](super::EventKind::Gone) follows.
    Detach,
    /// Makes a WebSocket of the connection of a request, if the handshake is in order. No answer
    /// may have been begun. `flags` are of [`upgrade_flags`], `fields` further ones of the answer,
    /// `bytes` the head of the request, as it came.
    Upgrade,
    /// Sends `bytes` as a WebSocket message: with the flag 1 of text, which must be UTF-8. A mark
    /// in `argument` is reported by [`Writable`](super::EventKind::Writable) when this message, and
    /// all before it, is out, even if that is at once.
    Send,
    /// Sends a ping of at most 125 `bytes` on a WebSocket.
    Ping,
    /// Stops reading from a WebSocket or a raw stream.
    Pause,
    /// Reads again.
    Resume,
    /// The host has done with a request of HTTP/2 to which it gave no last order: with
    /// [`counts_work`](super::Options::counts_work).
    Done,
}

impl Operation {
    /// Makes an order of it, for what `handle` names.
    pub fn on<'a>(self, handle: u64) -> Command<'a> {
        Command {
            operation: self,
            handle,
            status: 0,
            flags: 0,
            argument: 0,
            fields: FieldLines(&[]),
            bytes: &[],
        }
    }

    fn of_number(number: u16) -> Option<Self> {
        const ALL: [Operation; 14] = [
            Operation::Write,
            Operation::Answer,
            Operation::Begin,
            Operation::Informational,
            Operation::Grant,
            Operation::Abort,
            Operation::Close,
            Operation::Detach,
            Operation::Upgrade,
            Operation::Send,
            Operation::Ping,
            Operation::Pause,
            Operation::Resume,
            Operation::Done,
        ];
        ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

impl<'a> Command<'a> {
    /// Returns the longest front of its bytes that is valid text: the orders of others must not end
    /// with one reason.
    pub(super) fn text(&self) -> &'a str {
        let mut chunks = self.bytes.utf8_chunks();
        chunks.next().map_or("", |chunk| chunk.valid())
    }
}

/// Flags of a write, as bits.
pub mod write_flags {
    /// The bytes are the last ones of the answer.
    pub const FINISH: u32 = 1;
    /// The connection closes after the answer.
    pub const CLOSE: u32 = 1 << 1;
    /// Reports [`Writable`](super::super::EventKind::Writable), once, when all is out. It is not
    /// reported for a response that this write ends, as its handle names nothing then.
    pub const NOTIFY: u32 = 1 << 2;
}

/// Flags of an upgrade, as bits.
pub mod upgrade_flags {
    /// Pages of any origin may connect, not only those of the same host.
    pub const ANY_ORIGIN: u32 = 1;
    /// Messages are not compressed.
    pub const PLAIN: u32 = 1 << 1;
}

/// Reasons why an order was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CommandError {
    /// The handle names nothing any more.
    Stale,
    /// It cannot be done with what the handle names, or not now: a write where no answer is open
    /// or beyond its announced size, for one.
    Misplaced,
    /// The queue of output for the peer is full.
    Full,
    /// The bytes are no valid orders.
    Malformed,
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "handle names nothing any more",
            Self::Misplaced => "order does not fit what the handle names",
            Self::Full => "peer takes no more for now",
            Self::Malformed => "bytes are not orders",
        })
    }
}

impl std::error::Error for CommandError {}

/// Field lines: `name:value` and a line feed for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FieldLines<'a>(pub &'a [u8]);

impl<'a> FieldLines<'a> {
    /// The fields in order; what has no colon or no name is left out.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.0.split(|byte| *byte == b'\n').filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = std::str::from_utf8(&line[..colon]).ok()?;
            (!name.is_empty()).then(|| (name, line[colon + 1..].trim_ascii()))
        })
    }

    /// The fields as a response takes them.
    pub(super) fn to_vec(self) -> Vec<(&'a str, &'a [u8])> {
        self.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_lines_without_a_name_are_left_out() {
        let lines = FieldLines(b"X-One: 1\nnonsense\n:2\nX-Two:\n");
        let fields: Vec<_> = lines.iter().collect();
        assert_eq!(fields, [("X-One", &b"1"[..]), ("X-Two", b"")]);
    }
}
