//! Errors of the peer, each with the close code or status that answers it.

use std::fmt;

use super::close::CloseCode;

/// Reasons why frames or messages were refused.
///
/// Shape: the connection can no longer be trusted to be in step; send a close frame with
/// [`PeerError::close_code`], close the connection, and do not use the decoder again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerError {
    /// A reserved bit is set without an extension that gives it a meaning there.
    ReservedBits,
    /// The opcode is reserved.
    ReservedOpcode {
        /// Its number.
        opcode: u8,
    },
    /// A control frame is only a fragment.
    ControlFragmented,
    /// The payload of a control frame is longer than any may be.
    ControlTooLong {
        /// The most bytes allowed.
        limit: u64,
        /// The bytes announced; one more than the limit if they are announced in a long form.
        length: u64,
    },
    /// The length of a payload is written in more bytes than it needs.
    LengthNotMinimal,
    /// The length of a payload has its highest bit set.
    LengthOverflow,
    /// A client sent a frame without a mask.
    MaskMissing,
    /// A server sent a frame with a mask.
    MaskUnexpected,
    /// A continuation came when no message was unfinished.
    ContinuationUnexpected,
    /// A new message came when another was unfinished.
    ContinuationExpected,
    /// The payload of a frame is longer than allowed.
    FrameTooBig {
        /// The most bytes allowed.
        limit: u64,
        /// The bytes announced.
        length: u64,
    },
    /// A message is longer than allowed.
    MessageTooBig {
        /// The most bytes allowed.
        limit: usize,
        /// The bytes there were or were announced, or that had been inflated until then.
        length: u64,
    },
    /// A message has more fragments than allowed.
    TooManyFragments {
        /// The most fragments allowed.
        limit: u32,
    },
    /// A text message or the reason of a close frame is not UTF-8.
    Utf8,
    /// A compressed message is not DEFLATE data.
    Deflate,
    /// The payload of a close frame is a single byte.
    ClosePayload,
    /// A close frame holds a code that none may hold.
    CloseCode {
        /// Its number.
        code: u16,
    },
}

impl PeerError {
    /// The code of the close frame that answers this fault.
    ///
    /// Source: RFC 6455 section 7.4.1.
    ///
    /// ```
    /// use dwell_proto::websocket::{CloseCode, PeerError};
    ///
    /// assert_eq!(PeerError::Utf8.close_code(), CloseCode::INVALID_PAYLOAD);
    /// ```
    pub fn close_code(self) -> CloseCode {
        match self {
            Self::FrameTooBig { .. } | Self::MessageTooBig { .. } => CloseCode::MESSAGE_TOO_BIG,
            Self::TooManyFragments { .. } => CloseCode::POLICY_VIOLATION,
            Self::Utf8 | Self::Deflate => CloseCode::INVALID_PAYLOAD,
            _ => CloseCode::PROTOCOL_ERROR,
        }
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::ReservedOpcode { opcode } => return write!(out, "reserved opcode: {opcode}"),
            Self::ControlTooLong { limit, length } => {
                return write!(out, "control frame exceeds {limit} bytes: {length}");
            }
            Self::FrameTooBig { limit, length } => {
                return write!(out, "frame exceeds {limit} bytes: {length}");
            }
            Self::MessageTooBig { limit, length } => {
                return write!(out, "message exceeds {limit} bytes: {length}");
            }
            Self::TooManyFragments { limit } => {
                return write!(out, "message exceeds {limit} fragments");
            }
            Self::CloseCode { code } => return write!(out, "close code not allowed: {code}"),
            Self::ReservedBits => "reserved bit set",
            Self::ControlFragmented => "fragmented control frame",
            Self::LengthNotMinimal => "payload length not in its shortest form",
            Self::LengthOverflow => "payload length with its highest bit set",
            Self::MaskMissing => "frame of a client without a mask",
            Self::MaskUnexpected => "frame of a server with a mask",
            Self::ContinuationUnexpected => "continuation without a message",
            Self::ContinuationExpected => "new message inside another",
            Self::Utf8 => "text is not UTF-8",
            Self::Deflate => "malformed compressed message",
            Self::ClosePayload => "close frame with a payload of one byte",
        };
        out.write_str(text)
    }
}

impl std::error::Error for PeerError {}
