//! Orders as bytes: a header and what belongs to it, one order behind the other.

use super::{Command, CommandError, FieldLines, Operation};

/// Orders written behind one another, for [`Engine::submit`](crate::embed::Engine::submit) and
/// [`Remote::submit`](crate::embed::Remote::submit).
///
/// Shape: each is a header of 32 bytes in the machine's order (operation and status, 16 bits each;
/// flags, 32; handle and argument, 64 each; bytes of fields and of both fields and bytes, 32
/// each), then field lines, then bytes, then up to seven bytes that fill it up to a multiple of 8.
///
/// ```
/// use dwell_engine::embed::{Command, Commands, Operation};
///
/// let mut commands = Commands::new();
/// commands.push(&Command { argument: 4096, ..Operation::Grant.on(7) });
/// commands.push(&Command { flags: 1, bytes: b"hello", ..Operation::Send.on(9) });
/// let read: Result<Vec<_>, _> = Commands::iter(commands.as_bytes()).collect();
/// assert_eq!(read.map(|orders| orders.len()), Ok(2));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Commands {
    bytes: Vec<u8>,
}

const HEADER_BYTES: usize = 32;

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
        let (fields, bytes) = (command.fields.0, command.bytes);
        let length = fields.len() + bytes.len();
        assert!(
            u32::try_from(length).is_ok(),
            "order exceeds 4 GiB: {length}"
        );
        let output = &mut self.bytes;
        output.extend_from_slice(&(command.operation as u16).to_ne_bytes());
        output.extend_from_slice(&command.status.to_ne_bytes());
        output.extend_from_slice(&command.flags.to_ne_bytes());
        output.extend_from_slice(&command.handle.to_ne_bytes());
        output.extend_from_slice(&command.argument.to_ne_bytes());
        output.extend_from_slice(&(fields.len() as u32).to_ne_bytes());
        output.extend_from_slice(&(length as u32).to_ne_bytes());
        output.extend_from_slice(fields);
        output.extend_from_slice(bytes);
        output.resize(output.len().next_multiple_of(8), 0);
    }

    /// The orders as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(in crate::embed) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns true if there are no orders.
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
            let (read, left) =
                read(rest).map_or((None, &[][..]), |(command, left)| (Some(command), left));
            rest = left;
            Some(read.ok_or(CommandError::Malformed))
        })
    }
}

/// Reads the first order, and returns what is behind it.
fn read(bytes: &[u8]) -> Option<(Command<'_>, &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let half = |at: usize| header.get(at..at + 2)?.try_into().ok();
    let word = |at: usize| header.get(at..at + 4)?.try_into().ok();
    let double = |at: usize| header.get(at..at + 8)?.try_into().ok();
    let fields_length = u32::from_ne_bytes(word(24)?) as usize;
    let length = u32::from_ne_bytes(word(28)?) as usize;
    let (content, _) = rest.split_at_checked(length)?;
    let (fields, bytes) = content.split_at_checked(fields_length)?;
    let command = Command {
        operation: Operation::of_number(u16::from_ne_bytes(half(0)?))?,
        status: u16::from_ne_bytes(half(2)?),
        flags: u32::from_ne_bytes(word(4)?),
        handle: u64::from_ne_bytes(double(8)?),
        argument: u64::from_ne_bytes(double(16)?),
        fields: FieldLines(fields),
        bytes,
    };
    let padded = length.next_multiple_of(8).min(rest.len());
    Some((command, &rest[padded..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn orders_are_read_as_they_were_written(
            handle in any::<u64>(),
            (status, flags, argument) in any::<(u16, u32, u64)>(),
            fields in proptest::collection::vec(any::<u8>(), 0..40),
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let (mut commands, mut written) = (Commands::new(), Vec::new());
            for operation in (1..).map_while(Operation::of_number) {
                let command = Command {
                    operation,
                    handle,
                    status,
                    flags,
                    argument,
                    fields: FieldLines(&fields),
                    bytes: &bytes,
                };
                commands.push(&command);
                written.push(command);
            }
            prop_assert_eq!(written.len(), Operation::Done as usize);
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
