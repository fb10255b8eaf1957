//! Frame headers, both ways, and what frames say.

use super::error::{ErrorCode, PeerError};

/// The most bytes of payload that a side takes before it allows more.
///
/// Source: RFC 9113 section 4.2.
pub const FRAME_BYTES_MAX: u32 = 1 << 14;
/// The most bytes of payload that a side may allow.
pub(super) const FRAME_BYTES_CEILING: u32 = (1 << 24) - 1;
/// The length of a frame header.
pub const FRAME_HEADER_BYTES: usize = 9;

/// The type of a frame.
///
/// Source: RFC 9113 section 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameType(pub u8);

impl FrameType {
    /// Bytes of a message.
    pub const DATA: Self = Self(0x0);
    /// The beginning of a field block.
    pub const HEADERS: Self = Self(0x1);
    /// A priority, which means nothing any more.
    pub const PRIORITY: Self = Self(0x2);
    /// The end of a stream, at once.
    pub const RST_STREAM: Self = Self(0x3);
    /// Settings, or that they have been taken in.
    pub const SETTINGS: Self = Self(0x4);
    /// A request that a server makes in the name of its client.
    pub const PUSH_PROMISE: Self = Self(0x5);
    /// Something to be sent back.
    pub const PING: Self = Self(0x6);
    /// The end of the connection, in order.
    pub const GOAWAY: Self = Self(0x7);
    /// Room for more DATA.
    pub const WINDOW_UPDATE: Self = Self(0x8);
    /// The rest of a field block.
    pub const CONTINUATION: Self = Self(0x9);
}

/// Flags of frames.
pub(super) mod flags {
    /// SETTINGS and PING: the frame answers one.
    pub(in super::super) const ACK: u8 = 0x1;
    /// DATA and HEADERS: the last of the stream.
    pub(in super::super) const END_STREAM: u8 = 0x1;
    /// HEADERS and CONTINUATION: the last of the block.
    pub(in super::super) const END_HEADERS: u8 = 0x4;
    /// DATA and HEADERS: padding follows.
    pub(in super::super) const PADDED: u8 = 0x8;
    /// HEADERS: a priority stands before the block.
    pub(in super::super) const PRIORITY: u8 = 0x20;
}

/// The header of one frame.
///
/// ```
/// use dwell_proto::http2::{FrameHeader, FrameType};
///
/// let header = FrameHeader { length: 8, kind: FrameType::PING, flags: 1, stream: 0 };
/// assert_eq!(header.encode(), [0, 0, 8, 6, 1, 0, 0, 0, 0]);
/// assert_eq!(FrameHeader::parse(header.encode()), header);
/// ```
///
/// Source: RFC 9113 section 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Units: bytes of payload; 24 bits of it are sent.
    pub length: u32,
    /// The type.
    pub kind: FrameType,
    /// Flags, whose meaning depends on the type.
    pub flags: u8,
    /// The stream, of 31 bits; 0 for the connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads a header. The reserved bit is ignored.
    pub fn parse(bytes: [u8; FRAME_HEADER_BYTES]) -> Self {
        let [high, middle, low, kind, flags, stream @ ..] = bytes;
        Self {
            length: u32::from_be_bytes([0, high, middle, low]),
            kind: FrameType(kind),
            flags,
            stream: stream_id(stream),
        }
    }

    /// The header as bytes.
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[..4].copy_from_slice(&(self.length << 8).to_be_bytes());
        bytes[3] = self.kind.0;
        bytes[4] = self.flags;
        bytes[5..].copy_from_slice(&self.stream.to_be_bytes());
        bytes
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A frame, or a piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// Bytes of the message of a stream.
    Data {
        /// The stream.
        stream: u32,
        /// True for the first piece of a frame.
        is_first: bool,
        /// Units: bytes that the frame takes from the windows; 0 but in its first piece.
        window_bytes: u32,
        /// Units: bytes of that which are padding.
        padding_bytes: u32,
        /// The bytes; may be empty.
        data: &'a [u8],
        /// True for the last piece of the stream.
        ends_stream: bool,
    },
    /// A part of a field block.
    Block {
        /// The stream.
        stream: u32,
        /// True for the first part of the block.
        is_first: bool,
        /// The part; may be empty.
        fragment: &'a [u8],
        /// True for the last part of the block.
        ends_block: bool,
        /// True if nothing but the block comes on the stream; the same for all parts.
        ends_stream: bool,
    },
    /// A priority of RFC 7540, without a meaning.
    Priority {
        /// The stream.
        stream: u32,
    },
    /// The end of a stream.
    Reset {
        /// The stream.
        stream: u32,
        /// The reason.
        code: ErrorCode,
    },
    /// One setting; [`SettingsEnd`](Frame::SettingsEnd) follows the last of a frame.
    Setting {
        /// Its number.
        id: u16,
        /// Its value.
        value: u32,
    },
    /// All settings of a frame have come, and are to be acknowledged.
    SettingsEnd,
    /// The settings of this side have been taken in.
    SettingsAck,
    /// Bytes to be sent back.
    Ping {
        /// The bytes.
        data: [u8; 8],
    },
    /// The answer to a PING.
    Pong {
        /// The bytes.
        data: [u8; 8],
    },
    /// The connection ends.
    GoAway {
        /// The last stream of this side that was or will be answered.
        last_stream: u32,
        /// The reason.
        code: ErrorCode,
    },
    /// Room for more DATA.
    WindowUpdate {
        /// The stream, or 0 for the connection.
        stream: u32,
        /// Units: bytes.
        increment: u32,
    },
    /// A frame that ends its stream, by an error of the peer.
    Broken {
        /// The stream.
        stream: u32,
        /// The error.
        error: PeerError,
    },
    /// A frame of a type that is not known, and is ignored.
    Unknown {
        /// The type.
        kind: FrameType,
    },
}

/// Reads a stream or an increment, without the bit in front of it.
pub(super) fn stream_id(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & (u32::MAX >> 1)
}
