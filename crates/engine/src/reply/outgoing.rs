//! The framing of the pieces of an open streaming response.

use dwell_proto::http1::encode;

/// The streaming answer of a connection.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// None is open.
    None,
    /// Each piece is a chunk.
    Chunked,
    /// The pieces are as they are, and so many bytes are to come.
    Length(Left),
    /// The pieces are as they are; the end of the connection ends the answer.
    UntilClose,
    /// The answer has a head only, whatever is written.
    Bodiless,
    /// The pieces are as they are, on a stream that has an end of its own.
    Framed,
    /// The app writes the answer byte for byte, and determines its end.
    Verbatim,
}

/// Bytes of an answer that are to come.
///
/// Shape: aligned as half of it would be, so that each connection is eight bytes smaller.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
pub(crate) struct Left(pub(super) u64);

impl Left {
    pub(super) fn bytes(self) -> u64 {
        self.0
    }
}

impl Outgoing {
    /// Makes one for an answer on a stream of HTTP/2.
    pub(super) fn of_stream(length: Option<u64>, bodiless: bool) -> Self {
        match length {
            _ if bodiless => Self::Bodiless,
            Some(length) => Self::Length(Left(length)),
            None => Self::Framed,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns true if its client would take the end of the connection for the end of the response.
    pub(crate) fn ends_with_connection(&self) -> bool {
        matches!(self, Self::UntilClose | Self::Verbatim)
    }

    /// Appends what comes before a piece of `length` bytes, and counts it.
    pub(super) fn before(&mut self, length: usize, output: &mut Vec<u8>) {
        match self {
            Self::Chunked => encode::chunk_size(output, length),
            Self::Length(left) => *left = Left(left.bytes() - length as u64),
            Self::None | Self::UntilClose | Self::Bodiless | Self::Framed | Self::Verbatim => {}
        }
    }

    /// Appends what comes after a piece.
    pub(super) fn after(&self, output: &mut Vec<u8>) {
        if matches!(self, Self::Chunked) {
            output.extend_from_slice(b"\r\n");
        }
    }

    /// Ends the response. Returns false if the client finds the end, or that bytes are missing,
    /// only by the end of the connection.
    pub(crate) fn end(&mut self, trailers: &[(&str, &[u8])], output: &mut Vec<u8>) -> bool {
        match std::mem::replace(self, Self::None) {
            Self::Chunked if trailers.is_empty() => encode::last_chunk(output),
            Self::Chunked => encode::last_chunk_with(output, trailers),
            Self::Length(left) => return left.bytes() == 0,
            Self::UntilClose => return false,
            Self::None | Self::Bodiless | Self::Framed | Self::Verbatim => {}
        }
        true
    }
}
