//! One message for many connections.

use std::sync::OnceLock;

use bytes::Bytes;

use super::deflate::{Deflater, Deflaters, WINDOWS, window_index};
use super::encode;
use super::extension::DeflateParameters;
use super::opcode::{MessageKind, Role};

/// A message of a server, encoded once for all the connections it goes to.
///
/// Shape: the frames are shared by reference. A compressed form is made when the first connection
/// needs it, and once for all loops of a process; put it into an `Arc` to share it.
///
/// ```
/// use dwell_proto::websocket::{Broadcast, DeflateOptions, Deflaters, MessageKind};
///
/// let broadcast = Broadcast::new(MessageKind::Text, b"news");
/// let mut deflaters = Deflaters::new(DeflateOptions::default());
/// assert_eq!(broadcast.frame_for(None, &mut deflaters), &b"\x81\x04news"[..]);
/// ```
#[derive(Debug)]
pub struct Broadcast {
    kind: MessageKind,
    plain: Bytes,
    payload_start: usize,
    /// For each window: the compressed frame, or none if it would not be shorter.
    by_window: [OnceLock<Option<Bytes>>; WINDOWS],
}

impl Broadcast {
    /// Encodes a message. Text must be UTF-8.
    pub fn new(kind: MessageKind, payload: &[u8]) -> Self {
        let mut plain = Vec::new();
        encode::message(&mut plain, kind, payload, None);
        Self {
            kind,
            payload_start: plain.len() - payload.len(),
            plain: plain.into(),
            by_window: Default::default(),
        }
    }

    /// Whether it is text or bytes.
    pub fn kind(&self) -> MessageKind {
        self.kind
    }

    /// The message as one frame that is not compressed.
    pub fn plain(&self) -> &Bytes {
        &self.plain
    }

    /// The content of the message.
    ///
    /// ```
    /// use dwell_proto::websocket::{Broadcast, MessageKind};
    ///
    /// let news = Broadcast::new(MessageKind::Binary, b"news");
    /// assert_eq!((news.kind(), news.payload()), (MessageKind::Binary, &b"news"[..]));
    /// assert_eq!(news.plain(), &b"\x82\x04news"[..]);
    /// ```
    pub fn payload(&self) -> &[u8] {
        &self.plain[self.payload_start..]
    }

    /// The frame for a connection that agreed on these parameters, or on no compression.
    ///
    /// Shape: plain for a connection whose server does not start every message afresh: its own
    /// compressor would have to see every message that is compressed.
    pub fn frame_for(
        &self,
        deflate: Option<DeflateParameters>,
        deflaters: &mut Deflaters,
    ) -> &Bytes {
        let afresh = deflate.filter(|agreed| agreed.sends_afresh(Role::Server));
        let window_bits = afresh.map(|agreed| agreed.send_window_bits(Role::Server));
        let Some((window_bits, index)) =
            window_bits.and_then(|bits| Some((bits, window_index(bits)?)))
        else {
            return &self.plain;
        };
        let compressed = self.by_window[index]
            .get_or_init(|| self.compress(deflaters.with_window(window_bits)?));
        compressed.as_ref().unwrap_or(&self.plain)
    }

    fn compress(&self, deflater: &mut Deflater) -> Option<Bytes> {
        let mut out = Vec::new();
        encode::compressed_message(&mut out, self.kind, self.payload(), None, deflater);
        (out.len() < self.plain.len()).then(|| out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websocket::{DeflateOptions, Event, Inflater, MessageDecoder, MessageLimits};

    fn agreed(window_bits: u8, afresh: bool) -> DeflateParameters {
        DeflateParameters {
            server_no_context_takeover: afresh,
            client_no_context_takeover: true,
            server_max_window_bits: Some(window_bits),
            client_max_window_bits: None,
        }
    }

    /// The content of a frame that a server sent.
    fn read(frame: &Bytes) -> Vec<u8> {
        let mut inflater = Inflater::new();
        let mut decoder = MessageDecoder::new(Role::Client, true);
        let mut input = frame.to_vec();
        let step = decoder.decode(&mut input, &MessageLimits::default(), &mut inflater);
        match step.unwrap().event {
            Some(Event::Message(message)) => message.payload.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_window_is_compressed_for_once() {
        let text = "waiting for news, ".repeat(40).into_bytes();
        let broadcast = Broadcast::new(MessageKind::Text, &text);
        assert_eq!(broadcast.payload(), text);
        let mut deflaters = Deflaters::new(DeflateOptions::default());
        for bits in 9..=15 {
            let first = broadcast
                .frame_for(Some(agreed(bits, true)), &mut deflaters)
                .clone();
            let second = broadcast
                .frame_for(Some(agreed(bits, true)), &mut deflaters)
                .clone();
            assert_eq!(first.as_ptr(), second.as_ptr());
            assert!(first.len() < broadcast.plain().len() / 4);
            assert_eq!(read(&first), text);
        }
    }

    #[test]
    fn who_cannot_share_gets_it_as_it_is() {
        let broadcast = Broadcast::new(MessageKind::Binary, &[7; 1_000]);
        let mut deflaters = Deflaters::new(DeflateOptions::default());
        for deflate in [None, Some(agreed(15, false)), Some(agreed(8, true))] {
            let frame = broadcast.frame_for(deflate, &mut deflaters);
            assert_eq!(frame, broadcast.plain());
        }
        let short = Broadcast::new(MessageKind::Text, b"short");
        let frame = short.frame_for(Some(agreed(15, true)), &mut deflaters);
        assert_eq!((frame, read(frame)), (short.plain(), b"short".to_vec()));
    }
}
