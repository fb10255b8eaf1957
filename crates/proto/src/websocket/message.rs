//! From bytes to whole messages.

use std::borrow::Cow;

use super::close::Close;
use super::error::PeerError;
use super::frame_decoder::{FrameDecoder, PlacedPart};
use super::inflate::Inflater;
use super::opcode::{MessageKind, Opcode, Role};
use super::utf8::Utf8Validator;

/// Limits of what a peer may send in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// Units: bytes of a frame's payload. Default: 1 MiB.
    pub frame_bytes_max: u64,
    /// Units: bytes of a message, after decompression. Default: 1 MiB.
    pub message_bytes_max: usize,
    /// Units: frames of a message. Default: 131,072, because peers that stream may send a frame
    /// for every few bytes.
    pub fragments_max: u32,
}

impl Default for MessageLimits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 1 << 20,
            message_bytes_max: 1 << 20,
            fragments_max: 1 << 17,
        }
    }
}

/// Takes messages and control frames out of the bytes of a connection.
///
/// Shape: 32 bytes. A message that arrives in one piece is handed out where it lies in the input;
/// one that does not is put together in a buffer that exists until it is complete. Text is
/// checked as it arrives, so that a fault is found at the first byte that shows it.
///
/// ```
/// use dwell_proto::websocket::{Event, Inflater, MessageDecoder, MessageLimits, Role};
///
/// let (limits, mut inflater) = (MessageLimits::default(), Inflater::new());
/// let mut decoder = MessageDecoder::new(Role::Server, false);
/// // "Hello" as a client sends it, and the beginning of another frame.
/// let mut input = *b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58\x89";
/// let step = decoder.decode(&mut input, &limits, &mut inflater)?;
/// assert_eq!(step.consumed, 11);
/// let Some(Event::Message(message)) = step.event else { panic!("no message") };
/// assert_eq!(message.text(), Some("Hello"));
/// # Ok::<(), dwell_proto::websocket::PeerError>(())
/// ```
#[derive(Debug)]
pub struct MessageDecoder {
    frames: FrameDecoder,
    unfinished: Option<Box<Unfinished>>,
}

/// A message of which only a part has come.
#[derive(Debug)]
struct Unfinished {
    payload: Vec<u8>,
    kind: MessageKind,
    compressed: bool,
    fragments: u32,
    /// The UTF-8 state at the end of the text so far; not used if it is compressed.
    utf8: Utf8Validator,
}

/// The result of one call of [`MessageDecoder::decode`].
#[derive(Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// Bytes of the input that are used up; keep the rest.
    pub consumed: usize,
    /// The event that has come; `None` if more bytes are needed.
    pub event: Option<Event<'a>>,
}

/// Messages and control frames of a peer.
///
/// Shape: borrows the input, or the inflater, and never the decoder.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole message.
    Message(Message<'a>),
    /// A ping, to be answered by a pong with the same payload.
    Ping(&'a [u8]),
    /// A pong.
    Pong(&'a [u8]),
    /// The closing handshake, to be answered by a close frame if none was sent yet. Nothing
    /// comes after it.
    Close(Close<'a>),
}

/// A whole message, uncompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The kind: text or binary.
    pub kind: MessageKind,
    /// The content; of a text message it is valid UTF-8. Owned if it came in several pieces.
    pub payload: Cow<'a, [u8]>,
}

impl Message<'_> {
    /// The content of a text message; `None` for a binary one.
    ///
    /// Shape: reads the bytes once more, which costs little next to having received them. A caller
    /// that only passes the content on uses `payload`.
    pub fn text(&self) -> Option<&str> {
        match self.kind {
            MessageKind::Text => simdutf8::basic::from_utf8(&self.payload).ok(),
            MessageKind::Binary => None,
        }
    }
}

impl MessageDecoder {
    /// A decoder for the messages that the peer of `role` sends.
    ///
    /// Shape: `deflate` says whether permessage-deflate was agreed on.
    pub fn new(role: Role, deflate: bool) -> Self {
        Self {
            frames: FrameDecoder::new(role, deflate),
            unfinished: None,
        }
    }

    /// Takes the next message or control frame from the front of `input`.
    ///
    /// Shape: unmasks in place; a byte that was used up has changed, one that was not has not.
    /// Call again with the rest until there is no event, which means that more bytes are needed;
    /// at most [`REST_BYTES_MAX`](super::REST_BYTES_MAX) bytes are then left over. After a close
    /// frame everything is used up and nothing comes of it. `inflater` may be shared by all
    /// connections unless the peer keeps its context from message to message; without
    /// permessage-deflate it is not touched.
    ///
    /// # Errors
    /// [`PeerError`]; send its close code and close the connection. A message beyond a limit is
    /// refused when its header comes.
    ///
    /// Source: RFC 6455 sections 5 and 8.1; RFC 7692 section 7.2.2.
    pub fn decode<'a>(
        &mut self,
        input: &'a mut [u8],
        limits: &MessageLimits,
        inflater: &'a mut Inflater,
    ) -> Result<Step<'a>, PeerError> {
        let mut consumed = 0;
        let (part, data) = loop {
            let Some(part) = self.frames.advance(&mut input[consumed..], limits)? else {
                consumed += self.frames.consumed_without_part(input.len() - consumed);
                let event = None;
                return Ok(Step { consumed, event });
            };
            let data = consumed + part.data.start..consumed + part.data.end;
            consumed = data.end;
            if part.opcode.is_control() || self.completes(&part, &input[data.clone()], limits)? {
                break (part, data);
            }
        };
        let data = &input[data];
        let event = match part.opcode {
            Opcode::Ping => Event::Ping(data),
            Opcode::Pong => Event::Pong(data),
            Opcode::Close => Event::Close(Close::parse(data)?),
            _ => Event::Message(self.message(&part, data, limits, inflater)?),
        };
        let event = Some(event);
        Ok(Step { consumed, event })
    }

    /// Returns true if neither a frame nor a message is unfinished.
    ///
    /// ```
    /// use dwell_proto::websocket::{Inflater, MessageDecoder, MessageLimits, Role};
    ///
    /// let (limits, mut inflater) = (MessageLimits::default(), Inflater::new());
    /// let mut decoder = MessageDecoder::new(Role::Client, false);
    /// // The first of two fragments, and the end of everything.
    /// decoder.decode(&mut *b"\x01\x01a".to_vec(), &limits, &mut inflater)?;
    /// assert!(!decoder.is_idle() && decoder.held_bytes() > 0);
    /// decoder.decode(&mut *b"\x88\0".to_vec(), &limits, &mut inflater)?;
    /// assert!(decoder.is_closed());
    /// # Ok::<(), dwell_proto::websocket::PeerError>(())
    /// ```
    pub fn is_idle(&self) -> bool {
        self.frames.is_idle()
    }

    /// Returns true if a close frame has come.
    pub fn is_closed(&self) -> bool {
        self.frames.is_closed()
    }

    /// The bytes that the unfinished message takes in memory.
    pub fn held_bytes(&self) -> usize {
        let held = self.unfinished.as_ref();
        held.map_or(0, |held| size_of::<Unfinished>() + held.payload.capacity())
    }

    /// Takes a part of a message: whether that was all of it. A message in one part stays where
    /// it is.
    fn completes(
        &mut self,
        part: &PlacedPart,
        data: &[u8],
        limits: &MessageLimits,
    ) -> Result<bool, PeerError> {
        let (held, compressed) = match &self.unfinished {
            Some(held) => (held.payload.len(), held.compressed),
            None => (0, part.compressed),
        };
        let message_len = held as u64 + data.len() as u64 + part.payload_left;
        if message_len > bytes_max(limits, compressed) {
            let (limit, length) = (limits.message_bytes_max, message_len);
            return Err(PeerError::MessageTooBig { limit, length });
        }
        let is_last = part.fin && part.payload_left == 0;
        if is_last && self.unfinished.is_none() {
            return Ok(true);
        }
        let unfinished = self
            .unfinished
            .get_or_insert_with(|| Box::new(Unfinished::new(part)));
        unfinished.extend(part, data, limits)?;
        Ok(is_last)
    }

    /// The message that the part completes.
    fn message<'a>(
        &mut self,
        part: &PlacedPart,
        data: &'a [u8],
        limits: &MessageLimits,
        inflater: &'a mut Inflater,
    ) -> Result<Message<'a>, PeerError> {
        let (kind, compressed, received, utf8) = if let Some(held) = self.unfinished.take() {
            let received = Cow::Owned(held.payload);
            (held.kind, held.compressed, received, Some(held.utf8))
        } else {
            let kind = kind_of(part.opcode);
            (kind, part.compressed, Cow::Borrowed(data), None)
        };
        let (payload, checked) = if compressed {
            let output = inflater.inflate(&received, limits.message_bytes_max)?;
            (Cow::Borrowed(output), None)
        } else {
            (received, utf8)
        };
        let valid = match (kind, checked) {
            (MessageKind::Binary, _) => true,
            (MessageKind::Text, Some(utf8)) => utf8.is_complete(),
            (MessageKind::Text, None) => simdutf8::basic::from_utf8(&payload).is_ok(),
        };
        if !valid {
            return Err(PeerError::Utf8);
        }
        Ok(Message { kind, payload })
    }
}

impl Unfinished {
    fn new(part: &PlacedPart) -> Self {
        Self {
            payload: Vec::new(),
            kind: kind_of(part.opcode),
            compressed: part.compressed,
            fragments: 0,
            utf8: Utf8Validator::new(),
        }
    }

    fn extend(
        &mut self,
        part: &PlacedPart,
        data: &[u8],
        limits: &MessageLimits,
    ) -> Result<(), PeerError> {
        if part.is_first {
            self.fragments += 1;
            if self.fragments > limits.fragments_max {
                let limit = limits.fragments_max;
                return Err(PeerError::TooManyFragments { limit });
            }
        }
        let is_text = self.kind == MessageKind::Text && !self.compressed;
        if is_text && !self.utf8.push(data) {
            return Err(PeerError::Utf8);
        }
        self.reserve(part, data.len());
        self.payload.extend_from_slice(data);
        Ok(())
    }

    /// Makes room for `more` bytes: at most twice what has come, and never more than the message
    /// will need if that is known.
    fn reserve(&mut self, part: &PlacedPart, more: usize) {
        let needed = self.payload.len() + more;
        if needed <= self.payload.capacity() {
            return;
        }
        let still = usize::try_from(part.payload_left).unwrap_or(usize::MAX);
        let announced = needed.saturating_add(still);
        let doubled = (2 * self.payload.capacity()).max(needed).max(CAPACITY_MIN);
        let room = if part.fin {
            doubled.min(announced)
        } else {
            doubled
        };
        self.payload.reserve_exact(room - self.payload.len());
    }
}

/// The most bytes that the frames of a message may carry.
fn bytes_max(limits: &MessageLimits, compressed: bool) -> u64 {
    let plain = limits.message_bytes_max as u64;
    if compressed {
        // DEFLATE makes what it cannot compress a little longer.
        plain.saturating_add(plain / 64 + 64)
    } else {
        plain
    }
}

/// The kind of message that a frame with this opcode starts.
fn kind_of(opcode: Opcode) -> MessageKind {
    match opcode {
        Opcode::Text => MessageKind::Text,
        _ => MessageKind::Binary,
    }
}

/// The least room that is made for an unfinished message.
const CAPACITY_MIN: usize = 64;

#[cfg(test)]
mod tests;
