//! The orders of a host: one at a time, or many written behind one another.

mod written;

pub use written::Commands;

use std::fmt;

/// An order of the host.
///
/// Shape: `handle` is what an event named; one that names nothing any more makes the order a cheap
/// no-op that says [`CommandError::Stale`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Command<'a> {
    /// Writes bytes: of an answer that was begun, as the body; of one that was not, as the answer
    /// just as it is, status line and all; of a raw stream, as they are.
    Write {
        /// A request or a raw stream.
        handle: u64,
        /// Bits of [`write_flags`].
        flags: u32,
        /// The mark that [`Writable`](super::EventKind::Writable) of a raw stream reports; 0
        /// otherwise.
        mark: u32,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Sends a whole answer, which the engine frames.
    Answer {
        /// A request.
        handle: u64,
        /// 200 to 599.
        status: u16,
        /// Bits of [`write_flags`]; [`CLOSE`](write_flags::CLOSE) alone counts.
        flags: u32,
        /// Its fields but those of framing.
        fields: FieldLines<'a>,
        /// Its body.
        body: &'a [u8],
    },
    /// Begins a response. The engine frames it, and [`Write`](Self::Write) brings its body.
    Begin {
        /// A request.
        handle: u64,
        /// 200 to 599.
        status: u16,
        /// Bits of [`write_flags`]; [`CLOSE`](write_flags::CLOSE) alone counts.
        flags: u32,
        /// Its fields but those of framing.
        fields: FieldLines<'a>,
        /// The size of its body; chunks if it is not known.
        length: Option<u64>,
    },
    /// Sends an informational answer before the final one.
    Informational {
        /// A request.
        handle: u64,
        /// 100 or 102 to 199.
        status: u16,
        /// Its fields.
        fields: FieldLines<'a>,
    },
    /// Lets so many more bytes of a body come; the first one sends a 100 (Continue) that the
    /// client waits for. The end of a chunked body comes only while some are granted.
    Grant {
        /// A request.
        handle: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// Ends the connection at once, whatever is queued for it.
    Abort {
        /// Anything.
        handle: u64,
    },
    /// Closes in order, behind the queued output: a WebSocket with a close frame. For a request it
    /// closes the connection, and so cuts off the response.
    Close {
        /// Anything.
        handle: u64,
        /// The close code of a WebSocket; 0 for none.
        code: u16,
        /// The reason, for people.
        reason: &'a str,
    },
    /// Takes the connection out of the engine, once what was written is out.
    Detach {
        /// A request.
        handle: u64,
    },
    /// Makes a WebSocket of the connection, if the handshake is in order. No answer may have been
    /// begun.
    Upgrade {
        /// A request.
        handle: u64,
        /// Bits of [`upgrade_flags`].
        flags: u32,
        /// Further fields of the answer.
        fields: FieldLines<'a>,
        /// The head of the request, as it came.
        head: &'a [u8],
    },
    /// Sends a WebSocket message.
    Send {
        /// A WebSocket.
        handle: u64,
        /// True for text, which must be UTF-8.
        is_text: bool,
        /// The mark that [`Writable`](super::EventKind::Writable) reports when this message, and
        /// all before it, is out, even if that is at once; 0 for no event.
        mark: u32,
        /// The message.
        payload: &'a [u8],
    },
    /// Sends a ping.
    Ping {
        /// A WebSocket.
        handle: u64,
        /// At most 125 bytes.
        payload: &'a [u8],
    },
    /// Stops reading.
    Pause {
        /// A WebSocket or a raw stream.
        handle: u64,
    },
    /// Reads again.
    Resume {
        /// A WebSocket or a raw stream.
        handle: u64,
    },
}

impl Command<'_> {
    /// The handle that it is for.
    pub fn handle(&self) -> u64 {
        match *self {
            Self::Write { handle, .. }
            | Self::Answer { handle, .. }
            | Self::Begin { handle, .. }
            | Self::Informational { handle, .. }
            | Self::Grant { handle, .. }
            | Self::Abort { handle }
            | Self::Close { handle, .. }
            | Self::Detach { handle }
            | Self::Upgrade { handle, .. }
            | Self::Send { handle, .. }
            | Self::Ping { handle, .. }
            | Self::Pause { handle }
            | Self::Resume { handle } => handle,
        }
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
