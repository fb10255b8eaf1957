//! Frame headers, both ways.

use std::ops::Deref;

use super::error::PeerError;
use super::mask::Mask;
use super::opcode::{Opcode, Role};

/// The most bytes that the payload of a control frame may have.
///
/// Source: RFC 6455 section 5.5.
pub const CONTROL_PAYLOAD_BYTES_MAX: usize = 125;

/// The most bytes that a frame header can have.
pub(super) const HEADER_BYTES_MAX: usize = 14;

/// The header of one frame.
///
/// ```
/// use dwell_proto::websocket::{FrameHeader, Opcode, Role};
///
/// let header = FrameHeader {
///     fin: true,
///     compressed: false,
///     opcode: Opcode::Text,
///     mask: None,
///     payload_len: 300,
/// };
/// assert_eq!(*header.encode(), [0x81, 126, 0x01, 0x2c]);
/// assert_eq!(FrameHeader::parse(&header.encode(), Role::Client, false)?, Some((header, 4)));
/// # Ok::<(), dwell_proto::websocket::PeerError>(())
/// ```
///
/// Source: RFC 6455 section 5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// FIN: true for the last fragment of a message.
    pub fin: bool,
    /// RSV1: whether this starts a message compressed by permessage-deflate.
    pub compressed: bool,
    /// The kind of the frame.
    pub opcode: Opcode,
    /// The mask of the payload, if it is masked.
    pub mask: Option<Mask>,
    /// Units: bytes of payload.
    pub payload_len: u64,
}

impl FrameHeader {
    /// Reads the frame header at the front of `input`, as the peer of `role` must write it.
    ///
    /// Shape: returns the header and the bytes it took, 2 to 14, or `None` if more are needed. RSV1
    /// is let through on data frames if `deflate` was agreed on. The order of frames is not
    /// checked; [`FrameDecoder`](super::FrameDecoder) does that.
    ///
    /// # Errors
    /// [`PeerError`], as soon as a part of the header is there that breaks a rule.
    pub fn parse(
        input: &[u8],
        role: Role,
        deflate: bool,
    ) -> Result<Option<(Self, usize)>, PeerError> {
        let [first, rest @ ..] = input else {
            return Ok(None);
        };
        let (opcode, compressed) = check_first_byte(*first, deflate)?;
        let [second, rest @ ..] = rest else {
            return Ok(None);
        };
        let is_masked = check_second_byte(*second, opcode, role)?;
        let Some((payload_len, rest)) = payload_len(second & 0x7f, rest)? else {
            return Ok(None);
        };
        let (mask, rest) = match rest.split_first_chunk() {
            _ if !is_masked => (None, rest),
            Some((mask, rest)) => (Some(*mask), rest),
            None => return Ok(None),
        };
        let header = Self {
            fin: first & FIN != 0,
            compressed,
            opcode,
            mask,
            payload_len,
        };
        Ok(Some((header, input.len() - rest.len())))
    }

    /// The header as bytes.
    pub fn encode(&self) -> HeaderBytes {
        let mut header = HeaderBytes {
            bytes: [0; HEADER_BYTES_MAX],
            len: 0,
        };
        let fin = if self.fin { FIN } else { 0 };
        let rsv1 = if self.compressed { RSV1 } else { 0 };
        let masked = if self.mask.is_some() { MASKED } else { 0 };
        header.push(&[fin | rsv1 | self.opcode.number()]);
        match (
            u8::try_from(self.payload_len),
            u16::try_from(self.payload_len),
        ) {
            (Ok(length @ 0..LENGTH_16_BITS), _) => header.push(&[masked | length]),
            (_, Ok(length)) => {
                header.push(&[masked | LENGTH_16_BITS]);
                header.push(&length.to_be_bytes());
            }
            _ => {
                header.push(&[masked | LENGTH_64_BITS]);
                header.push(&self.payload_len.to_be_bytes());
            }
        }
        if let Some(mask) = self.mask {
            header.push(&mask);
        }
        header
    }
}

/// An encoded frame header: 2 to 14 bytes on the stack, to be written before the payload.
///
/// ```
/// use dwell_proto::websocket::{FrameHeader, HeaderBytes, Role};
///
/// let (header, length) = FrameHeader::parse(b"\x81\x05Hello", Role::Client, false)?
///     .expect("a whole header");
/// let bytes: HeaderBytes = header.encode();
/// assert_eq!((&bytes[..], length), (&b"\x81\x05"[..], 2));
/// # Ok::<(), dwell_proto::websocket::PeerError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HeaderBytes {
    bytes: [u8; HEADER_BYTES_MAX],
    len: u8,
}

impl HeaderBytes {
    fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.len);
        let end = start + bytes.len();
        self.bytes[start..end].copy_from_slice(bytes);
        self.len = end as u8;
    }
}

impl Deref for HeaderBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

fn check_first_byte(byte: u8, deflate: bool) -> Result<(Opcode, bool), PeerError> {
    let number = byte & 0x0f;
    let opcode = Opcode::from_number(number).ok_or(PeerError::ReservedOpcode { opcode: number })?;
    let compressed = byte & RSV1 != 0;
    let may_compress = deflate && matches!(opcode, Opcode::Text | Opcode::Binary);
    if byte & (RSV2 | RSV3) != 0 || (compressed && !may_compress) {
        return Err(PeerError::ReservedBits);
    }
    if opcode.is_control() && byte & FIN == 0 {
        return Err(PeerError::ControlFragmented);
    }
    Ok((opcode, compressed))
}

fn check_second_byte(byte: u8, opcode: Opcode, role: Role) -> Result<bool, PeerError> {
    let is_masked = byte & MASKED != 0;
    match role {
        Role::Server if !is_masked => return Err(PeerError::MaskMissing),
        Role::Client if is_masked => return Err(PeerError::MaskUnexpected),
        _ => {}
    }
    let length = byte & 0x7f;
    let limit = CONTROL_PAYLOAD_BYTES_MAX as u64;
    if opcode.is_control() && u64::from(length) > limit {
        return Err(PeerError::ControlTooLong {
            limit,
            length: limit + 1,
        });
    }
    Ok(is_masked)
}

/// The length of the payload, and what of `rest` follows it.
fn payload_len(short: u8, rest: &[u8]) -> Result<Option<(u64, &[u8])>, PeerError> {
    let (length, rest, least) = match short {
        LENGTH_16_BITS => match rest.split_first_chunk() {
            Some((bytes, rest)) => (
                u64::from(u16::from_be_bytes(*bytes)),
                rest,
                u64::from(LENGTH_16_BITS),
            ),
            None => return Ok(None),
        },
        LENGTH_64_BITS => match rest.split_first_chunk() {
            Some((bytes, rest)) => (u64::from_be_bytes(*bytes), rest, 1 << 16),
            None => return Ok(None),
        },
        _ => (u64::from(short), rest, 0),
    };
    if length < least {
        return Err(PeerError::LengthNotMinimal);
    }
    if length >> 63 != 0 {
        return Err(PeerError::LengthOverflow);
    }
    Ok(Some((length, rest)))
}

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const RSV2: u8 = 0x20;
const RSV3: u8 = 0x10;
const MASKED: u8 = 0x80;
/// The short length for a length in the two bytes that follow.
const LENGTH_16_BITS: u8 = 0x7e;
/// The short length for a length in the eight bytes that follow.
const LENGTH_64_BITS: u8 = 0x7f;

#[cfg(test)]
mod tests;
