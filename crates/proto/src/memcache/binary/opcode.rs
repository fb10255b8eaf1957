//! The second byte of a request.

use super::super::command::{ArithmeticMode, StoreVerb};

/// The choice to leave the nominal reply out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quiet {
    /// Every outcome is answered.
    No,
    /// A read leaves out the reply to a miss, other requests that to a success.
    Yes,
}

impl Quiet {
    /// Returns true if the nominal reply is left out.
    pub fn is_quiet(self) -> bool {
        self == Self::Yes
    }
}

/// The operation of an opcode.
///
/// Source: memcached `doc/protocol-binary.txt`, section 3.4; the others answer "Unknown command".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// `GET GETQ GETK GETKQ`, and with `touches` `GAT GATQ GATK GATKQ`.
    Get {
        /// True if the reply repeats the key.
        with_key: bool,
        /// True if the item gets a new exptime.
        touches: bool,
    },
    /// `TOUCH`.
    Touch,
    /// `SET ADD REPLACE APPEND PREPEND` and their quiet forms; never [`StoreVerb::Cas`].
    Store(StoreVerb),
    /// `DELETE` and `DELETEQ`.
    Delete,
    /// `INCREMENT DECREMENT` and their quiet forms.
    Arithmetic(ArithmeticMode),
    /// `QUIT` and `QUITQ`.
    Quit,
    /// `FLUSH` and `FLUSHQ`.
    Flush,
    /// `NOOP`.
    Noop,
    /// `VERSION`.
    Version,
    /// `STAT`.
    Stat,
}

impl Operation {
    /// Reads an opcode; `None` for one that is not known here.
    pub fn from_opcode(opcode: u8) -> Option<(Self, Quiet)> {
        let get = |with_key, touches| Self::Get { with_key, touches };
        let (up, down) = (ArithmeticMode::Increment, ArithmeticMode::Decrement);
        Some(match opcode {
            0x00 => (get(false, false), Quiet::No),
            0x01 => (Self::Store(StoreVerb::Set), Quiet::No),
            0x02 => (Self::Store(StoreVerb::Add), Quiet::No),
            0x03 => (Self::Store(StoreVerb::Replace), Quiet::No),
            0x04 => (Self::Delete, Quiet::No),
            0x05 => (Self::Arithmetic(up), Quiet::No),
            0x06 => (Self::Arithmetic(down), Quiet::No),
            0x07 => (Self::Quit, Quiet::No),
            0x08 => (Self::Flush, Quiet::No),
            0x09 => (get(false, false), Quiet::Yes),
            0x0a => (Self::Noop, Quiet::No),
            0x0b => (Self::Version, Quiet::No),
            0x0c => (get(true, false), Quiet::No),
            0x0d => (get(true, false), Quiet::Yes),
            0x0e => (Self::Store(StoreVerb::Append), Quiet::No),
            0x0f => (Self::Store(StoreVerb::Prepend), Quiet::No),
            0x10 => (Self::Stat, Quiet::No),
            0x11 => (Self::Store(StoreVerb::Set), Quiet::Yes),
            0x12 => (Self::Store(StoreVerb::Add), Quiet::Yes),
            0x13 => (Self::Store(StoreVerb::Replace), Quiet::Yes),
            0x14 => (Self::Delete, Quiet::Yes),
            0x15 => (Self::Arithmetic(up), Quiet::Yes),
            0x16 => (Self::Arithmetic(down), Quiet::Yes),
            0x17 => (Self::Quit, Quiet::Yes),
            0x18 => (Self::Flush, Quiet::Yes),
            0x19 => (Self::Store(StoreVerb::Append), Quiet::Yes),
            0x1a => (Self::Store(StoreVerb::Prepend), Quiet::Yes),
            0x1c => (Self::Touch, Quiet::No),
            0x1d => (get(false, true), Quiet::No),
            0x1e => (get(false, true), Quiet::Yes),
            0x23 => (get(true, true), Quiet::No),
            0x24 => (get(true, true), Quiet::Yes),
            _ => return None,
        })
    }

    /// Returns true if a request of this kind may have these lengths.
    ///
    /// Units: bytes; `body` is extras, key and value together.
    pub(super) fn allows(self, extras: usize, key: usize, body: usize) -> bool {
        let has_key = (1..=super::super::KEY_BYTES_MAX).contains(&key);
        let only_key = body == extras + key;
        match self {
            Self::Get { touches: false, .. } | Self::Delete => has_key && extras == 0 && only_key,
            Self::Get { touches: true, .. } | Self::Touch => has_key && extras == 4 && only_key,
            Self::Store(StoreVerb::Append | StoreVerb::Prepend) => has_key && extras == 0,
            Self::Store(_) => has_key && extras == 8,
            Self::Arithmetic(_) => has_key && extras == 20 && only_key,
            Self::Flush => key == 0 && only_key && matches!(extras, 0 | 4),
            Self::Quit | Self::Noop | Self::Version => body == 0,
            Self::Stat => extras == 0 && only_key && key <= super::super::KEY_BYTES_MAX,
        }
    }
}
