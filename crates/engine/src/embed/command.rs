//! What a host orders: one at a time, or many written behind one another.

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
        /// What [`Writable`](super::EventKind::Writable) of a raw stream says; 0 otherwise.
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
    /// Begins an answer, which the engine frames, and whose body [`Write`](Self::Write) brings.
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
        /// How many.
        bytes: u64,
    },
    /// Ends the connection at once, whatever is queued for it.
    Abort {
        /// Anything.
        handle: u64,
    },
    /// Closes in order, behind what is queued: a WebSocket with a close frame; of a request, the
    /// connection, whose answer is cut off.
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
        /// Whether it is text, which must be UTF-8.
        is_text: bool,
        /// What [`Writable`](super::EventKind::Writable) says when this message, and all before
        /// it, is out, even where that is at once; 0 to hear nothing of it.
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
    /// Whom it is for.
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
    /// [`Writable`](super::super::EventKind::Writable) is told, once, when all is out; not of an
    /// answer that this write ends, as its handle names nothing then.
    pub const NOTIFY: u32 = 1 << 2;
}

/// Flags of an upgrade, as bits.
pub mod upgrade_flags {
    /// Pages of any origin may connect, not only those of the same host.
    pub const ANY_ORIGIN: u32 = 1;
    /// Messages are not compressed.
    pub const PLAIN: u32 = 1 << 1;
}

/// Why an order was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CommandError {
    /// The handle names nothing any more.
    Stale,
    /// It cannot be done with what the handle names, or not now: a write where no answer is open
    /// or beyond its announced size, for one.
    Misplaced,
    /// So much waits for the peer that no more is taken.
    Full,
    /// What should be orders cannot be read.
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

/// Orders written behind one another, for [`Engine::submit`](super::Engine::submit) and
/// [`Remote::submit`](super::Remote::submit).
///
/// Shape: each is a header of 32 bytes in the machine's order (operation and status, 16 bits each;
/// flags, 32; handle and argument, 64 each; bytes of fields and of both fields and bytes, 32
/// each), then field lines, then bytes, then up to seven bytes that fill it up to a multiple of 8.
///
/// ```
/// use dwell_engine::embed::{Command, Commands};
///
/// let mut commands = Commands::new();
/// commands.push(&Command::Grant { handle: 7, bytes: 4096 });
/// commands.push(&Command::Send { handle: 9, is_text: true, mark: 0, payload: b"hello" });
/// let read: Result<Vec<_>, _> = Commands::iter(commands.as_bytes()).collect();
/// assert_eq!(read.map(|orders| orders.len()), Ok(2));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Commands {
    bytes: Vec<u8>,
}

const HEADER_BYTES: usize = 32;

/// One order as it is written.
#[derive(Clone, Copy, Default)]
struct Record<'a> {
    operation: u16,
    status: u16,
    flags: u32,
    handle: u64,
    argument: u64,
    fields: &'a [u8],
    bytes: &'a [u8],
}

/// The operations' numbers; one that was given is never given again.
mod operation {
    pub(super) const WRITE: u16 = 1;
    pub(super) const ANSWER: u16 = 2;
    pub(super) const BEGIN: u16 = 3;
    pub(super) const INFORMATIONAL: u16 = 4;
    pub(super) const GRANT: u16 = 5;
    pub(super) const ABORT: u16 = 6;
    pub(super) const CLOSE: u16 = 7;
    pub(super) const DETACH: u16 = 8;
    pub(super) const UPGRADE: u16 = 9;
    pub(super) const SEND: u16 = 10;
    pub(super) const PING: u16 = 11;
    pub(super) const PAUSE: u16 = 12;
    pub(super) const RESUME: u16 = 13;
}

impl Commands {
    /// No orders.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an order.
    ///
    /// # Panics
    /// When its fields and bytes are 4 GiB or more.
    pub fn push(&mut self, command: &Command<'_>) {
        let record = Record::of(command);
        let length = record.fields.len() + record.bytes.len();
        assert!(
            u32::try_from(length).is_ok(),
            "order exceeds 4 GiB: {length}"
        );
        let output = &mut self.bytes;
        output.extend_from_slice(&record.operation.to_ne_bytes());
        output.extend_from_slice(&record.status.to_ne_bytes());
        output.extend_from_slice(&record.flags.to_ne_bytes());
        output.extend_from_slice(&record.handle.to_ne_bytes());
        output.extend_from_slice(&record.argument.to_ne_bytes());
        output.extend_from_slice(&(record.fields.len() as u32).to_ne_bytes());
        output.extend_from_slice(&(length as u32).to_ne_bytes());
        output.extend_from_slice(record.fields);
        output.extend_from_slice(record.bytes);
        output.resize(output.len().next_multiple_of(8), 0);
    }

    /// The orders as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Reads orders back; ends with [`CommandError::Malformed`] where they cannot be read.
    pub fn iter(bytes: &[u8]) -> impl Iterator<Item = Result<Command<'_>, CommandError>> {
        let mut rest = bytes;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let read = read_record(rest).and_then(|(record, left)| {
                rest = left;
                record.command()
            });
            if read.is_none() {
                rest = &[];
            }
            Some(read.ok_or(CommandError::Malformed))
        })
    }
}

impl<'a> Record<'a> {
    #[expect(clippy::too_many_lines, reason = "a table, with a row for each order")]
    fn of(command: &Command<'a>) -> Self {
        let plain = |operation, handle| Self {
            operation,
            handle,
            ..Self::default()
        };
        match *command {
            Command::Write {
                handle,
                flags,
                mark,
                bytes,
            } => Self {
                flags,
                argument: u64::from(mark),
                bytes,
                ..plain(operation::WRITE, handle)
            },
            Command::Answer {
                handle,
                status,
                flags,
                fields,
                body,
            } => Self {
                status,
                flags,
                fields: fields.0,
                bytes: body,
                ..plain(operation::ANSWER, handle)
            },
            Command::Begin {
                handle,
                status,
                flags,
                fields,
                length,
            } => Self {
                status,
                flags,
                argument: length.unwrap_or(u64::MAX),
                fields: fields.0,
                ..plain(operation::BEGIN, handle)
            },
            Command::Informational {
                handle,
                status,
                fields,
            } => Self {
                status,
                fields: fields.0,
                ..plain(operation::INFORMATIONAL, handle)
            },
            Command::Grant { handle, bytes } => Self {
                argument: bytes,
                ..plain(operation::GRANT, handle)
            },
            Command::Close {
                handle,
                code,
                reason,
            } => Self {
                status: code,
                bytes: reason.as_bytes(),
                ..plain(operation::CLOSE, handle)
            },
            Command::Upgrade {
                handle,
                flags,
                fields,
                head,
            } => Self {
                flags,
                fields: fields.0,
                bytes: head,
                ..plain(operation::UPGRADE, handle)
            },
            Command::Send {
                handle,
                is_text,
                mark,
                payload,
            } => Self {
                flags: u32::from(is_text),
                argument: u64::from(mark),
                bytes: payload,
                ..plain(operation::SEND, handle)
            },
            Command::Ping { handle, payload } => Self {
                bytes: payload,
                ..plain(operation::PING, handle)
            },
            Command::Abort { handle } => plain(operation::ABORT, handle),
            Command::Detach { handle } => plain(operation::DETACH, handle),
            Command::Pause { handle } => plain(operation::PAUSE, handle),
            Command::Resume { handle } => plain(operation::RESUME, handle),
        }
    }

    fn command(self) -> Option<Command<'a>> {
        let Self {
            status,
            flags,
            handle,
            bytes,
            ..
        } = self;
        let fields = FieldLines(self.fields);
        Some(match self.operation {
            operation::WRITE => Command::Write {
                handle,
                flags,
                mark: self.argument as u32,
                bytes,
            },
            operation::ANSWER => Command::Answer {
                handle,
                status,
                flags,
                fields,
                body: bytes,
            },
            operation::BEGIN => Command::Begin {
                handle,
                status,
                flags,
                fields,
                length: Some(self.argument).filter(|length| *length != u64::MAX),
            },
            operation::INFORMATIONAL => Command::Informational {
                handle,
                status,
                fields,
            },
            operation::GRANT => Command::Grant {
                handle,
                bytes: self.argument,
            },
            operation::ABORT => Command::Abort { handle },
            operation::CLOSE => Command::Close {
                handle,
                code: status,
                reason: text_at(bytes),
            },
            operation::DETACH => Command::Detach { handle },
            operation::UPGRADE => Command::Upgrade {
                handle,
                flags,
                fields,
                head: bytes,
            },
            operation::SEND => Command::Send {
                handle,
                is_text: flags & 1 != 0,
                mark: self.argument as u32,
                payload: bytes,
            },
            operation::PING => Command::Ping {
                handle,
                payload: bytes,
            },
            operation::PAUSE => Command::Pause { handle },
            operation::RESUME => Command::Resume { handle },
            _ => return None,
        })
    }
}

/// As much at the front of it as is text: the orders of others must not end with one reason.
fn text_at(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

fn read_record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let half = |at: usize| header.get(at..at + 2)?.try_into().ok();
    let word = |at: usize| header.get(at..at + 4)?.try_into().ok();
    let double = |at: usize| header.get(at..at + 8)?.try_into().ok();
    let fields_length = u32::from_ne_bytes(word(24)?) as usize;
    let length = u32::from_ne_bytes(word(28)?) as usize;
    let (content, _) = rest.split_at_checked(length)?;
    let (fields, bytes) = content.split_at_checked(fields_length)?;
    let record = Record {
        operation: u16::from_ne_bytes(half(0)?),
        status: u16::from_ne_bytes(half(2)?),
        flags: u32::from_ne_bytes(word(4)?),
        handle: u64::from_ne_bytes(double(8)?),
        argument: u64::from_ne_bytes(double(16)?),
        fields,
        bytes,
    };
    let padded = length.next_multiple_of(8).min(rest.len());
    Some((record, &rest[padded..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn orders<'a>(handle: u64, number: u64, bytes: &'a [u8], text: &'a str) -> Vec<Command<'a>> {
        let (status, flags, fields) = (number as u16, number as u32, FieldLines(bytes));
        vec![
            Command::Write {
                handle,
                flags,
                mark: number as u32,
                bytes,
            },
            Command::Answer {
                handle,
                status,
                flags,
                fields,
                body: bytes,
            },
            Command::Begin {
                handle,
                status,
                flags,
                fields,
                length: None,
            },
            Command::Begin {
                handle,
                status,
                flags,
                fields,
                length: Some(number >> 1),
            },
            Command::Informational {
                handle,
                status,
                fields,
            },
            Command::Grant {
                handle,
                bytes: number,
            },
            Command::Abort { handle },
            Command::Close {
                handle,
                code: status,
                reason: text,
            },
            Command::Detach { handle },
            Command::Upgrade {
                handle,
                flags,
                fields,
                head: bytes,
            },
            Command::Send {
                handle,
                is_text: number & 1 == 0,
                mark: number as u32,
                payload: bytes,
            },
            Command::Ping {
                handle,
                payload: bytes,
            },
            Command::Pause { handle },
            Command::Resume { handle },
        ]
    }

    proptest! {
        #[test]
        fn orders_are_read_as_they_were_written(
            handle: u64,
            number: u64,
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            text in ".{0,20}",
        ) {
            let written = orders(handle, number, &bytes, &text);
            let mut commands = Commands::new();
            for order in &written {
                commands.push(order);
            }
            let read: Result<Vec<_>, _> = Commands::iter(commands.as_bytes()).collect();
            prop_assert_eq!(read, Ok(written));
        }

        #[test]
        fn whatever_bytes_come_reading_ends(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            prop_assert!(Commands::iter(&bytes).count() <= bytes.len() / HEADER_BYTES + 1);
        }
    }

    #[test]
    fn field_lines_without_a_name_are_left_out() {
        let lines = FieldLines(b"X-One: 1\nnonsense\n:2\nX-Two:\n");
        let fields: Vec<_> = lines.iter().collect();
        assert_eq!(fields, [("X-One", &b"1"[..]), ("X-Two", b"")]);
    }
}
