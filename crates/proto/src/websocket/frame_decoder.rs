//! From bytes to frames: headers, order of fragments, unmasking.

use std::ops::Range;

use super::error::PeerError;
use super::frame::{FrameHeader, HEADER_BYTES_MAX};
use super::mask::{Mask, apply_mask};
use super::message::MessageLimits;
use super::opcode::{Opcode, Role};

/// The most bytes of input that a decoder leaves unused when it needs more: an incomplete header or
/// control frame.
pub const REST_BYTES_MAX: usize = HEADER_BYTES_MAX + super::frame::CONTROL_PAYLOAD_BYTES_MAX - 1;

/// Takes frames out of the bytes of a connection, as they come.
///
/// Shape: for streaming, where [`MessageDecoder`](super::MessageDecoder) would hold what is
/// unfinished. Owns no buffer. The order of fragments is checked; that text is UTF-8 is not,
/// which is what [`Utf8Validator`](super::Utf8Validator) is for, nor is DEFLATE undone.
///
/// ```
/// use dwell_proto::websocket::{FrameDecoder, MessageLimits, Opcode, Role};
///
/// let mut decoder = FrameDecoder::new(Role::Client, false);
/// let mut input = *b"\x82\x05he";
/// let step = decoder.decode(&mut input, &MessageLimits::default())?;
/// let part = step.part.expect("a beginning");
/// assert_eq!((part.opcode, part.data, part.payload_left), (Opcode::Binary, &b"he"[..], 3));
/// assert_eq!(step.consumed, 4);
/// # Ok::<(), dwell_proto::websocket::PeerError>(())
/// ```
#[derive(Debug)]
pub struct FrameDecoder {
    /// Bytes of the current data frame's payload that are still to come.
    payload_left: u64,
    /// The mask, turned so that it fits the next byte of that payload.
    mask: Mask,
    opcode: Opcode,
    fin: bool,
    compressed: bool,
    phase: Phase,
    role: Role,
    deflate: bool,
}

/// The kind of data frame that may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A frame that starts a message.
    Between,
    /// A continuation.
    Within,
    /// None: a close frame has come.
    Closed,
}

/// The result of one call of [`FrameDecoder::decode`].
///
/// ```
/// use dwell_proto::websocket::{FrameDecoder, FrameStep, MessageLimits, Role};
///
/// let mut decoder = FrameDecoder::new(Role::Client, false);
/// let mut input = *b"\x82";
/// let step: FrameStep<'_> = decoder.decode(&mut input, &MessageLimits::default())?;
/// assert_eq!((step.consumed, step.part), (0, None));
/// # Ok::<(), dwell_proto::websocket::PeerError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameStep<'a> {
    /// Bytes of the input that are used up; keep the rest.
    pub consumed: usize,
    /// A frame or a piece of one; `None` if more bytes are needed.
    pub part: Option<FramePart<'a>>,
}

/// A frame, or a piece of a data frame that has not arrived as a whole.
///
/// Shape: control frames always come whole. The last piece has nothing left to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePart<'a> {
    /// The kind of the frame.
    pub opcode: Opcode,
    /// True for the last fragment of a message.
    pub fin: bool,
    /// True if this frame starts a compressed message.
    pub compressed: bool,
    /// True at the beginning of the frame.
    pub is_first: bool,
    /// Units: bytes of this frame's payload that are still to come.
    pub payload_left: u64,
    /// The payload, unmasked; may be empty.
    pub data: &'a [u8],
}

/// A [`FramePart`] that names its payload by place, for the borrow checker's sake.
#[derive(Debug)]
pub(super) struct PlacedPart {
    pub(super) opcode: Opcode,
    pub(super) fin: bool,
    pub(super) compressed: bool,
    pub(super) is_first: bool,
    pub(super) payload_left: u64,
    /// Ends where the used up input ends.
    pub(super) data: Range<usize>,
}

impl FrameDecoder {
    /// A decoder for the frames that the peer of `role` sends.
    ///
    /// Shape: `deflate` says whether permessage-deflate was agreed on.
    pub fn new(role: Role, deflate: bool) -> Self {
        Self {
            payload_left: 0,
            mask: Mask::default(),
            opcode: Opcode::Continuation,
            fin: true,
            compressed: false,
            phase: Phase::Between,
            role,
            deflate,
        }
    }

    /// Takes the next frame, or what there is of it, from the front of `input`.
    ///
    /// Shape: unmasks in place; a byte that was used up has changed, one that was not has not. Call
    /// again with the rest until there is no part, which means that more bytes are needed; at most
    /// [`REST_BYTES_MAX`] bytes are then left over. After a close frame everything is used up and
    /// nothing comes of it. Only the limit on frames is checked.
    ///
    /// # Errors
    /// [`PeerError`]; close the connection.
    ///
    /// Source: RFC 6455 sections 5.2 to 5.5.
    pub fn decode<'a>(
        &mut self,
        input: &'a mut [u8],
        limits: &MessageLimits,
    ) -> Result<FrameStep<'a>, PeerError> {
        let part = self.advance(input, limits)?;
        Ok(FrameStep {
            consumed: match &part {
                Some(part) => part.data.end,
                None => self.consumed_without_part(input.len()),
            },
            part: part.map(|part| FramePart {
                opcode: part.opcode,
                fin: part.fin,
                compressed: part.compressed,
                is_first: part.is_first,
                payload_left: part.payload_left,
                data: &input[part.data],
            }),
        })
    }

    /// Returns true if neither a frame nor a message is unfinished.
    pub fn is_idle(&self) -> bool {
        self.payload_left == 0 && self.phase != Phase::Within
    }

    /// Returns true if a close frame has come.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Decodes as [`decode`](Self::decode) does, without borrowing.
    pub(super) fn advance(
        &mut self,
        input: &mut [u8],
        limits: &MessageLimits,
    ) -> Result<Option<PlacedPart>, PeerError> {
        if self.payload_left > 0 {
            return Ok((!input.is_empty()).then(|| self.take_payload(input, 0)));
        }
        if self.is_closed() {
            return Ok(None);
        }
        let parsed = FrameHeader::parse(input, self.role, self.deflate)?;
        let Some((header, header_len)) = parsed else {
            return Ok(None);
        };
        if header.opcode.is_control() {
            return Ok(self.take_control(header, input, header_len));
        }
        self.start_data(header, limits)?;
        Ok(Some(self.take_payload(input, header_len)))
    }

    /// Returns how much of an input that gave no part is used up.
    pub(super) fn consumed_without_part(&self, input_len: usize) -> usize {
        if self.is_closed() { input_len } else { 0 }
    }

    fn start_data(&mut self, header: FrameHeader, limits: &MessageLimits) -> Result<(), PeerError> {
        match (self.phase, header.opcode) {
            (Phase::Between, Opcode::Continuation) => {
                return Err(PeerError::ContinuationUnexpected);
            }
            (Phase::Within, Opcode::Text | Opcode::Binary) => {
                return Err(PeerError::ContinuationExpected);
            }
            _ => {}
        }
        if header.payload_len > limits.frame_bytes_max {
            let (limit, length) = (limits.frame_bytes_max, header.payload_len);
            return Err(PeerError::FrameTooBig { limit, length });
        }
        self.phase = if header.fin {
            Phase::Between
        } else {
            Phase::Within
        };
        self.opcode = header.opcode;
        self.fin = header.fin;
        self.compressed = header.compressed;
        self.mask = header.mask.unwrap_or_default();
        self.payload_left = header.payload_len;
        Ok(())
    }

    /// Takes what there is of the payload, which starts at `start`.
    fn take_payload(&mut self, input: &mut [u8], start: usize) -> PlacedPart {
        let present = input.len() - start;
        let taken = usize::try_from(self.payload_left).map_or(present, |left| left.min(present));
        let data = start..start + taken;
        if self.role == Role::Server {
            self.mask = apply_mask(&mut input[data.clone()], self.mask);
        }
        self.payload_left -= taken as u64;
        PlacedPart {
            opcode: self.opcode,
            fin: self.fin,
            compressed: self.compressed,
            is_first: start > 0,
            payload_left: self.payload_left,
            data,
        }
    }

    /// Takes a control frame if all of it is there.
    fn take_control(
        &mut self,
        header: FrameHeader,
        input: &mut [u8],
        start: usize,
    ) -> Option<PlacedPart> {
        let payload_len = usize::try_from(header.payload_len).ok()?;
        let data = start..start + payload_len;
        let payload = input.get_mut(data.clone())?;
        if let Some(mask) = header.mask {
            apply_mask(payload, mask);
        }
        if header.opcode == Opcode::Close {
            self.phase = Phase::Closed;
        }
        Some(PlacedPart {
            opcode: header.opcode,
            fin: true,
            compressed: false,
            is_first: true,
            payload_left: 0,
            data,
        })
    }
}

#[cfg(test)]
mod tests;
