//! Orders as bytes: a header and what belongs to it, one order behind the other.

use super::{Command, CommandError, FieldLines};

/// Orders written behind one another, for [`Engine::submit`](crate::embed::Engine::submit) and
/// [`Remote::submit`](crate::embed::Remote::submit).
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

    pub(in crate::embed) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// True where there are none.
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

/// Returns the longest front of it that is valid text: the orders of others must not end with one
/// reason.
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
}
