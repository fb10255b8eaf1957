//! Errors of a message, each with the status that answers it.

use std::fmt;

/// Reasons why a head was refused.
///
/// Shape: the connection can no longer be trusted to be in step; answer with
/// [`HeadError::status`] where one is still owed, and close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeadError {
    /// The method is longer than any that there is.
    MethodTooLong {
        /// The most bytes allowed.
        limit: usize,
        /// The bytes there were, or that had arrived.
        length: usize,
    },
    /// The request target is longer than allowed.
    TargetTooLong {
        /// The most bytes allowed.
        limit: usize,
        /// The bytes there were, or that had arrived.
        length: usize,
    },
    /// The head, from its first byte to its empty line, is longer than allowed.
    HeadTooLong {
        /// The most bytes allowed.
        limit: usize,
        /// The bytes there were, or that had arrived.
        length: usize,
    },
    /// There are more field lines than allowed.
    TooManyFields {
        /// The most field lines allowed.
        limit: usize,
    },
    /// The bytes given are not exactly one head.
    NotOneHead,
    /// A line does not end with carriage return and line feed.
    LineEnd,
    /// The method or the request target is not one, or they are not parted by one space.
    RequestLine,
    /// The request target is in no form that this method may use.
    Target,
    /// The protocol version is not written as `HTTP/digit.digit`.
    VersionSyntax,
    /// The protocol version is well formed, but of another major version than 1.
    VersionUnsupported,
    /// The status code is not three digits from 100.
    StatusCode,
    /// A field name is not a token followed at once by a colon.
    FieldName,
    /// A field value holds a control byte.
    FieldValue,
    /// An HTTP/1.1 request has no `Host`.
    HostMissing,
    /// There are several `Host` fields.
    HostRepeated,
    /// `Host`, or the authority of the target, is not a host with an optional port.
    HostInvalid,
    /// `Content-Length` is not a plain decimal number of at most 19 digits.
    LengthInvalid,
    /// There are several `Content-Length` fields.
    LengthRepeated,
    /// `Content-Length` and `Transfer-Encoding` are both there.
    LengthAndCoding,
    /// `Transfer-Encoding` is empty, repeated, or names `chunked` anywhere but last.
    CodingInvalid,
    /// `Transfer-Encoding` names a coding other than `chunked`.
    CodingUnsupported,
    /// `Transfer-Encoding` in an HTTP/1.0 message.
    CodingOnHttp10,
    /// `Expect` has another value than `100-continue`.
    Expectation,
    /// `CONNECT`: there are no tunnels here.
    Connect,
}

impl HeadError {
    /// The status that answers a request with this fault.
    ///
    /// Shape: for a fault in a response it has no meaning; a gateway answers 502 to those.
    pub fn status(self) -> u16 {
        match self {
            Self::TargetTooLong { .. } => 414,
            Self::Expectation => 417,
            Self::HeadTooLong { .. } | Self::TooManyFields { .. } => 431,
            Self::MethodTooLong { .. } | Self::CodingUnsupported | Self::Connect => 501,
            Self::VersionUnsupported => 505,
            _ => 400,
        }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::MethodTooLong { limit, length } => {
                return write!(out, "method exceeds {limit} bytes: {length}");
            }
            Self::TargetTooLong { limit, length } => {
                return write!(out, "request target exceeds {limit} bytes: {length}");
            }
            Self::HeadTooLong { limit, length } => {
                return write!(out, "header section exceeds {limit} bytes: {length}");
            }
            Self::TooManyFields { limit } => {
                return write!(out, "header section exceeds {limit} field lines");
            }
            Self::NotOneHead => "bytes before or after the head",
            Self::LineEnd => "line does not end with carriage return and line feed",
            Self::RequestLine => "malformed method or request target",
            Self::Target => "request target in a form this method may not use",
            Self::VersionSyntax => "malformed protocol version",
            Self::VersionUnsupported => "protocol version is not HTTP/1",
            Self::StatusCode => "malformed status code",
            Self::FieldName => "malformed field name",
            Self::FieldValue => "control byte in a field value",
            Self::HostMissing => "missing host field",
            Self::HostRepeated => "repeated host field",
            Self::HostInvalid => "malformed host",
            Self::LengthInvalid => "malformed content-length",
            Self::LengthRepeated => "repeated content-length",
            Self::LengthAndCoding => "both content-length and transfer-encoding",
            Self::CodingInvalid => "malformed transfer-encoding",
            Self::CodingUnsupported => "transfer coding other than chunked",
            Self::CodingOnHttp10 => "transfer-encoding in an HTTP/1.0 message",
            Self::Expectation => "expectation other than 100-continue",
            Self::Connect => "method CONNECT is not supported",
        };
        out.write_str(text)
    }
}

impl std::error::Error for HeadError {}

/// Reasons why a body was refused.
///
/// Shape: where the message ends is no longer known; answer with [`BodyError::status`] where
/// one is still owed, close the connection, and do not use the decoder again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// The body is, or announces itself to be, longer than allowed.
    TooLarge {
        /// The most bytes allowed.
        limit: u64,
    },
    /// A chunk size is not one to sixteen hexadecimal digits.
    ChunkSize,
    /// A chunk extension is not a semicolon and a name, with or without a value.
    ChunkExtension,
    /// The chunk extensions of one body are longer than allowed.
    ChunkExtensionsTooLong {
        /// The most bytes allowed.
        limit: usize,
    },
    /// A carriage return and line feed are missing after a size, chunk or trailer field.
    ChunkLineEnd,
    /// A trailer field is malformed.
    Trailer,
    /// The trailer section is longer than allowed.
    TrailerTooLong {
        /// The most bytes allowed.
        limit: usize,
    },
    /// The connection ended inside the body.
    Truncated,
}

impl BodyError {
    /// The status that answers a request with this fault.
    pub fn status(self) -> u16 {
        match self {
            Self::TooLarge { .. } => 413,
            Self::TrailerTooLong { .. } => 431,
            _ => 400,
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::TooLarge { limit } => return write!(out, "body exceeds {limit} bytes"),
            Self::ChunkExtensionsTooLong { limit } => {
                return write!(out, "chunk extensions exceed {limit} bytes");
            }
            Self::TrailerTooLong { limit } => {
                return write!(out, "trailer section exceeds {limit} bytes");
            }
            Self::ChunkSize => "malformed chunk size",
            Self::ChunkExtension => "malformed chunk extension",
            Self::ChunkLineEnd => "missing line end in the chunked body",
            Self::Trailer => "malformed trailer field",
            Self::Truncated => "connection closed inside the body",
        };
        out.write_str(text)
    }
}

impl std::error::Error for BodyError {}

/// Reasons why a response was refused, or never came.
///
/// Shape: the connection is out of step and must be closed; do not use the decoder again. A
/// gateway answers 502.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseError {
    /// A head is not valid, or exceeds a limit.
    Head(HeadError),
    /// The body is not valid, exceeds a limit, or was cut short.
    Body(BodyError),
    /// There are more interim responses than allowed before the final one.
    TooManyInterim {
        /// The most interim responses allowed.
        limit: u16,
    },
    /// The connection ended before the final response's head was complete.
    Unanswered,
}

impl fmt::Display for ResponseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(_) => out.write_str("invalid response head"),
            Self::Body(_) => out.write_str("invalid response body"),
            Self::TooManyInterim { limit } => write!(out, "interim responses exceed {limit}"),
            Self::Unanswered => out.write_str("connection closed before the response"),
        }
    }
}

impl std::error::Error for ResponseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Head(error) => Some(error),
            Self::Body(error) => Some(error),
            Self::TooManyInterim { .. } | Self::Unanswered => None,
        }
    }
}
