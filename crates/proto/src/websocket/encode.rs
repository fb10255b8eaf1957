//! Writing frames and messages.
//!
//! Everything appends to a `Vec<u8>`. A server masks nothing; a client gives each frame a mask of
//! its own, four random bytes.

use super::close::CloseCode;
use super::deflate::Deflater;
use super::frame::{CONTROL_PAYLOAD_BYTES_MAX, FrameHeader};
use super::mask::{Mask, apply_mask};
use super::opcode::{MessageKind, Opcode};

/// Appends a message as one frame.
///
/// ```
/// use dwell_proto::websocket::{MessageKind, encode};
///
/// let mut out = Vec::new();
/// encode::message(&mut out, MessageKind::Text, b"Hello", None);
/// assert_eq!(out, b"\x81\x05Hello");
/// ```
pub fn message(out: &mut Vec<u8>, kind: MessageKind, payload: &[u8], mask: Option<Mask>) {
    frame(out, header(kind.opcode(), mask), payload);
}

/// Appends a message as one frame, compressed if that makes it shorter.
///
/// Source: RFC 7692 section 7.2.1.
///
/// ```
/// use dwell_proto::websocket::{DeflateOptions, Deflater, MessageKind, encode};
///
/// let options = DeflateOptions { message_bytes_min: 0, ..DeflateOptions::default() };
/// let mut deflater = Deflater::new(&options, 15).expect("a usable window");
/// let mut out = Vec::new();
/// encode::compressed_message(&mut out, MessageKind::Text, &[b'a'; 1000], None, &mut deflater);
/// assert!(out[0] == 0xc1 && out.len() < 50);
/// ```
pub fn compressed_message(
    out: &mut Vec<u8>,
    kind: MessageKind,
    payload: &[u8],
    mask: Option<Mask>,
    deflater: &mut Deflater,
) {
    let header = header(kind.opcode(), mask);
    match deflater.deflate(payload) {
        Some(compressed) => {
            let header = FrameHeader {
                compressed: true,
                ..header
            };
            frame(out, header, compressed);
        }
        None => frame(out, header, payload),
    }
}

/// Appends a ping; what of the payload goes beyond 125 bytes is left out.
pub fn ping(out: &mut Vec<u8>, payload: &[u8], mask: Option<Mask>) {
    control(out, Opcode::Ping, payload, mask);
}

/// Appends a pong, which repeats the payload of the ping it answers; what goes beyond 125 bytes
/// is left out.
pub fn pong(out: &mut Vec<u8>, payload: &[u8], mask: Option<Mask>) {
    control(out, Opcode::Pong, payload, mask);
}

/// Appends a close frame.
///
/// Shape: without a code there is no reason either; a reason longer than 123 bytes is cut off
/// between two characters.
///
/// Source: RFC 6455 section 5.5.1.
///
/// ```
/// use dwell_proto::websocket::{CloseCode, encode};
///
/// let mut out = Vec::new();
/// encode::ping(&mut out, b"?", None);
/// encode::pong(&mut out, b"!", None);
/// encode::close(&mut out, Some(CloseCode::NORMAL), "bye", None);
/// assert_eq!(out, b"\x89\x01?\x8a\x01!\x88\x05\x03\xe8bye");
/// ```
pub fn close(out: &mut Vec<u8>, code: Option<CloseCode>, reason: &str, mask: Option<Mask>) {
    let mut payload = [0; CONTROL_PAYLOAD_BYTES_MAX];
    let mut payload_len = 0;
    if let Some(code) = code {
        let (number, text) = payload.split_at_mut(size_of::<u16>());
        number.copy_from_slice(&code.number().to_be_bytes());
        let reason_len = boundary_within(reason, text.len());
        text[..reason_len].copy_from_slice(&reason.as_bytes()[..reason_len]);
        payload_len = number.len() + reason_len;
    }
    control(out, Opcode::Close, &payload[..payload_len], mask);
}

/// Appends one frame; the header's own length is ignored.
///
/// Shape: for frames that the other functions do not make. Only the peer checks it.
///
/// ```
/// use dwell_proto::websocket::{FrameHeader, Opcode, encode};
///
/// let header = FrameHeader {
///     fin: false,
///     compressed: false,
///     opcode: Opcode::Text,
///     mask: Some([0; 4]),
///     payload_len: 0,
/// };
/// let mut out = Vec::new();
/// encode::frame(&mut out, header, b"beginning");
/// assert_eq!(out, b"\x01\x89\0\0\0\0beginning");
/// ```
pub fn frame(out: &mut Vec<u8>, header: FrameHeader, payload: &[u8]) {
    let header = FrameHeader {
        payload_len: payload.len() as u64,
        ..header
    };
    let header_bytes = header.encode();
    out.reserve(header_bytes.len() + payload.len());
    out.extend_from_slice(&header_bytes);
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(mask) = header.mask {
        apply_mask(&mut out[start..], mask);
    }
}

/// Writes a message fragment by fragment, when its length is not known or it is long.
///
/// Shape: control frames may be written between the fragments, other messages may not.
///
/// ```
/// use dwell_proto::websocket::MessageKind;
/// use dwell_proto::websocket::encode::Fragments;
///
/// let mut out = Vec::new();
/// let mut fragments = Fragments::new(MessageKind::Text);
/// fragments.push(&mut out, b"Hel", None);
/// fragments.finish(&mut out, b"lo", None);
/// assert_eq!(out, b"\x01\x03Hel\x80\x02lo");
/// ```
///
/// Source: RFC 6455 section 5.4.
#[derive(Debug)]
pub struct Fragments {
    /// The opcode of the next fragment.
    opcode: Opcode,
}

impl Fragments {
    /// A message of which nothing was written yet.
    pub fn new(kind: MessageKind) -> Self {
        let opcode = kind.opcode();
        Self { opcode }
    }

    /// Appends a fragment that is not the last.
    ///
    /// Shape: text may be parted within a character.
    pub fn push(&mut self, out: &mut Vec<u8>, payload: &[u8], mask: Option<Mask>) {
        let opcode = std::mem::replace(&mut self.opcode, Opcode::Continuation);
        let header = FrameHeader {
            fin: false,
            ..header(opcode, mask)
        };
        frame(out, header, payload);
    }

    /// Appends the last fragment, which may be empty.
    pub fn finish(self, out: &mut Vec<u8>, payload: &[u8], mask: Option<Mask>) {
        frame(out, header(self.opcode, mask), payload);
    }
}

/// The most bytes of the text, up to a limit, that part no character.
fn boundary_within(text: &str, limit: usize) -> usize {
    let lengths = (0..=text.len().min(limit)).rev();
    let mut whole = lengths.filter(|length| text.is_char_boundary(*length));
    whole.next().unwrap_or(0)
}

fn control(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: Option<Mask>) {
    let payload = &payload[..payload.len().min(CONTROL_PAYLOAD_BYTES_MAX)];
    frame(out, header(opcode, mask), payload);
}

/// The header of a frame that stands alone; its length is filled in by [`frame`].
fn header(opcode: Opcode, mask: Option<Mask>) -> FrameHeader {
    FrameHeader {
        fin: true,
        compressed: false,
        opcode,
        mask,
        payload_len: 0,
    }
}

#[cfg(test)]
mod tests;
