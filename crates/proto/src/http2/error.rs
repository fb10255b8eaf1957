//! Errors of the peer, each with the error code that answers it.

use std::fmt;

/// The reason for which a stream or a connection ends.
///
/// Shape: any number may come; those without a name here mean no more than
/// [`INTERNAL_ERROR`](Self::INTERNAL_ERROR).
///
/// ```
/// use dwell_proto::http2::ErrorCode;
///
/// assert_eq!(ErrorCode(0xb), ErrorCode::ENHANCE_YOUR_CALM);
/// assert_eq!(ErrorCode(0xb).to_string(), "ENHANCE_YOUR_CALM");
/// assert_eq!(ErrorCode(0x77).to_string(), "error code 0x77");
/// ```
///
/// Source: RFC 9113 section 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

macro_rules! error_codes {
    ($($(#[doc = $text:literal])+ $name:ident = $number:literal;)+) => {
        impl ErrorCode {
            $($(#[doc = $text])+ pub const $name: Self = Self($number);)+

            /// Its name in the registry, if it has one.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

error_codes! {
    /// Nothing went wrong.
    NO_ERROR = 0x0;
    /// The peer broke a rule that has no code of its own.
    PROTOCOL_ERROR = 0x1;
    /// The sender failed.
    INTERNAL_ERROR = 0x2;
    /// The peer sent more than a flow-control window allowed.
    FLOW_CONTROL_ERROR = 0x3;
    /// The peer did not acknowledge settings in time.
    SETTINGS_TIMEOUT = 0x4;
    /// The peer sent a frame for a stream that it had ended.
    STREAM_CLOSED = 0x5;
    /// The length of a frame is not one that it may have.
    FRAME_SIZE_ERROR = 0x6;
    /// The stream was refused before anything was done for it; the request may be sent again.
    REFUSED_STREAM = 0x7;
    /// The stream is not needed any more.
    CANCEL = 0x8;
    /// The compression of field sections is out of step.
    COMPRESSION_ERROR = 0x9;
    /// The connection of a CONNECT request failed.
    CONNECT_ERROR = 0xa;
    /// The peer causes more work than it should.
    ENHANCE_YOUR_CALM = 0xb;
    /// The connection under this one is not secure enough.
    INADEQUATE_SECURITY = 0xc;
    /// The request needs HTTP/1.1.
    HTTP_1_1_REQUIRED = 0xd;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => out.write_str(name),
            None => write!(out, "error code {:#x}", self.0),
        }
    }
}

/// Reasons why frames or field sections were refused.
///
/// Shape: those of [`stream`](PeerError::stream) end one stream, by `RST_STREAM`; after all others
/// the connection is out of step: send GOAWAY, close it, and do not use the decoder again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerError {
    /// The connection does not begin with the preface of HTTP/2.
    Preface,
    /// A frame is longer than allowed.
    FrameTooLong {
        /// The most bytes of payload allowed.
        limit: u32,
        /// The bytes announced.
        length: u32,
    },
    /// The length of a frame is not the one that its type has.
    FrameLength {
        /// The number of the type.
        kind: u8,
        /// The bytes announced.
        length: u32,
    },
    /// A frame of the connection names a stream, or one of a stream names none.
    StreamId {
        /// The number of the type.
        kind: u8,
        /// The stream.
        stream: u32,
    },
    /// The padding is longer than the frame.
    Padding,
    /// A field block goes on with another frame than its CONTINUATION.
    ContinuationExpected,
    /// A CONTINUATION continues nothing.
    ContinuationUnexpected,
    /// A field block comes in more frames than allowed.
    TooManyContinuations {
        /// The most frames allowed.
        limit: u16,
    },
    /// A field block is longer than allowed.
    BlockTooLong {
        /// The most bytes allowed, as they are sent.
        limit: u32,
    },
    /// The peer pushed a stream, which is never allowed here.
    Push,
    /// The value of a setting is not one that it may have.
    Setting {
        /// The number of the setting.
        id: u16,
        /// Its value.
        value: u32,
    },
    /// An increment of a window is 0.
    NoIncrement {
        /// The stream, or 0 for the window of the connection.
        stream: u32,
    },
    /// A window is larger than 2^31-1 bytes.
    WindowOverflow {
        /// The stream, or 0 for the window of the connection.
        stream: u32,
    },
    /// A stream depends on itself.
    DependsOnItself {
        /// The stream.
        stream: u32,
    },
    /// The length of a PRIORITY frame is not 5.
    PriorityLength {
        /// The stream.
        stream: u32,
    },
    /// A field block cannot be decompressed.
    Compression(HpackError),
}

impl PeerError {
    /// The code that tells the peer.
    ///
    /// Source: RFC 9113 sections 4 to 6; RFC 7540 section 5.3.1.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::FrameTooLong { .. } | Self::FrameLength { .. } | Self::PriorityLength { .. } => {
                ErrorCode::FRAME_SIZE_ERROR
            }
            Self::TooManyContinuations { .. } | Self::BlockTooLong { .. } => {
                ErrorCode::ENHANCE_YOUR_CALM
            }
            Self::WindowOverflow { .. } => ErrorCode::FLOW_CONTROL_ERROR,
            Self::Compression(_) => ErrorCode::COMPRESSION_ERROR,
            _ => ErrorCode::PROTOCOL_ERROR,
        }
    }

    /// The stream that the error ends; `None` if it ends the connection.
    pub fn stream(self) -> Option<u32> {
        match self {
            Self::NoIncrement { stream }
            | Self::WindowOverflow { stream }
            | Self::DependsOnItself { stream }
            | Self::PriorityLength { stream } => Some(stream).filter(|stream| *stream != 0),
            _ => None,
        }
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Preface => out.write_str("malformed preface of http/2"),
            Self::FrameTooLong { limit, length } => {
                write!(out, "frame exceeds {limit} bytes: {length}")
            }
            Self::FrameLength { kind, length } => {
                write!(out, "frame of type {kind:#x} with a length of {length}")
            }
            Self::StreamId { kind, stream } => {
                write!(out, "frame of type {kind:#x} on stream {stream}")
            }
            Self::Padding => out.write_str("padding exceeds the frame"),
            Self::ContinuationExpected => out.write_str("missing continuation of a field block"),
            Self::ContinuationUnexpected => out.write_str("continuation without a field block"),
            Self::TooManyContinuations { limit } => {
                write!(out, "field block exceeds {limit} frames")
            }
            Self::BlockTooLong { limit } => write!(out, "field block exceeds {limit} bytes"),
            Self::Push => out.write_str("pushed stream"),
            Self::Setting { id, value } => write!(out, "setting {id:#x} with the value {value}"),
            Self::NoIncrement { stream } => {
                write!(out, "increment of 0 for the window of stream {stream}")
            }
            Self::WindowOverflow { stream } => {
                write!(out, "window of stream {stream} exceeds 2147483647 bytes")
            }
            Self::DependsOnItself { stream } => write!(out, "stream {stream} depends on itself"),
            Self::PriorityLength { stream } => {
                write!(out, "priority frame of stream {stream} is not of 5 bytes")
            }
            Self::Compression(error) => write!(out, "field block: {error}"),
        }
    }
}

impl std::error::Error for PeerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Compression(error) => Some(error),
            _ => None,
        }
    }
}

impl From<HpackError> for PeerError {
    fn from(error: HpackError) -> Self {
        Self::Compression(error)
    }
}

/// Reasons why a field block cannot be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HpackError {
    /// An integer does not fit into 32 bits, or is written in more bytes than any needs.
    Integer,
    /// An index names no entry of the tables.
    Index {
        /// The index.
        index: u32,
    },
    /// A string is coded by what is no Huffman code.
    Huffman,
    /// The dynamic table is to be larger than allowed.
    TableSize {
        /// The most bytes allowed.
        limit: u32,
        /// The bytes asked for.
        size: u32,
    },
    /// The size of the dynamic table changes behind the first field of a block.
    LateTableSize,
    /// The block does not begin with the smaller table that settings asked for.
    MissingTableSize,
    /// The block ends inside of a field.
    Truncated,
}

impl fmt::Display for HpackError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Integer => out.write_str("integer exceeds 32 bits"),
            Self::Index { index } => write!(out, "no entry has the index {index}"),
            Self::Huffman => out.write_str("malformed huffman code"),
            Self::TableSize { limit, size } => {
                write!(out, "dynamic table exceeds {limit} bytes: {size}")
            }
            Self::LateTableSize => out.write_str("change of the table's size behind a field"),
            Self::MissingTableSize => out.write_str("missing change of the table's size"),
            Self::Truncated => out.write_str("block ends inside of a field"),
        }
    }
}

impl std::error::Error for HpackError {}
