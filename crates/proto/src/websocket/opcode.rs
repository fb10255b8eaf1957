//! Kinds of frames and messages.

/// The kind of a frame.
///
/// Source: RFC 6455 section 5.2.
///
/// ```
/// use dwell_proto::websocket::{MessageKind, Opcode};
///
/// assert_eq!(Opcode::from_number(9), Some(Opcode::Ping));
/// assert!(Opcode::Ping.is_control() && Opcode::from_number(3).is_none());
/// assert_eq!(MessageKind::Binary.opcode().number(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// A further fragment of a message.
    Continuation = 0x0,
    /// A text message, or its first fragment.
    Text = 0x1,
    /// A binary message, or its first fragment.
    Binary = 0x2,
    /// The closing handshake.
    Close = 0x8,
    /// A ping.
    Ping = 0x9,
    /// A pong.
    Pong = 0xa,
}

impl Opcode {
    /// The opcode with this number; `None` for a reserved one.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0x0 => Some(Self::Continuation),
            0x1 => Some(Self::Text),
            0x2 => Some(Self::Binary),
            0x8 => Some(Self::Close),
            0x9 => Some(Self::Ping),
            0xa => Some(Self::Pong),
            _ => None,
        }
    }

    /// Its number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns true for a close, ping or pong, which may stand between fragments.
    pub fn is_control(self) -> bool {
        self.number() & 0x8 != 0
    }
}

/// The kind of a message.
///
/// Source: RFC 6455 section 5.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// UTF-8 text.
    Text,
    /// Any bytes.
    Binary,
}

impl MessageKind {
    /// The opcode of the first frame of such a message.
    pub fn opcode(self) -> Opcode {
        match self {
            Self::Text => Opcode::Text,
            Self::Binary => Opcode::Binary,
        }
    }
}

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The one that accepted: it reads masked frames and writes unmasked ones.
    Server,
    /// The one that connected: it reads unmasked frames and writes masked ones.
    Client,
}
