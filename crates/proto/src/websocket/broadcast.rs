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
    /// The compressed frame for each window, or `None` if it would not be shorter.
    by_window: [OnceLock<Option<Bytes>>; WINDOWS],
}

impl Broadcast {
    /// Encodes a message. Text must be UTF-8.
    pub fn new(kind: MessageKind, payload: &[u8]) -> Self {
        let mut plain = Vec::with_capacity(payload.len() + HEADER_BYTES_MAX);
        encode::message(&mut plain, kind, payload, None);
        Self {
            kind,
            payload_start: plain.len() - payload.len(),
            // What it keeps is of its size.
            plain: plain.into_boxed_slice().into(),
            by_window: Default::default(),
        }
    }

    /// Bytes of its frames, compressed ones among them.
    ///
    /// ```
    /// use dwell_proto::websocket::{Broadcast, MessageKind};
    ///
    /// let news = Broadcast::new(MessageKind::Text, b"news");
    /// assert_eq!((news.encoded_bytes(), news.is_in_use()), (6, false));
    /// let waits = news.plain().clone();
    /// assert!(news.is_in_use());
    /// # drop(waits);
    /// ```
    pub fn encoded_bytes(&self) -> usize {
        self.plain.len() + self.compressed().map(Bytes::len).sum::<usize>()
    }

    /// Returns true if one of its frames is referred to elsewhere, as by a connection that has not
    /// sent it yet.
    pub fn is_in_use(&self) -> bool {
        !self.plain.is_unique() || self.compressed().any(|frame| !frame.is_unique())
    }

    /// Returns true if [`frame_for`](Self::frame_for) would have to compress it first.
    ///
    /// ```
    /// use dwell_proto::websocket::{Broadcast, MessageKind};
    ///
    /// let news = Broadcast::new(MessageKind::Text, b"news");
    /// assert!(!news.is_to_compress(None), "nothing was agreed on");
    /// ```
    pub fn is_to_compress(&self, deflate: Option<DeflateParameters>) -> bool {
        window_of(deflate).is_some_and(|(_, index)| self.by_window[index].get().is_none())
    }

    fn compressed(&self) -> impl Iterator<Item = &Bytes> {
        self.by_window
            .iter()
            .filter_map(|frame| frame.get()?.as_ref())
    }

    /// Returns the kind: text or binary.
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
    /// Shape: uncompressed for a connection with context takeover on the server's side. Its own
    /// compressor would have to see every message that is compressed.
    pub fn frame_for(
        &self,
        deflate: Option<DeflateParameters>,
        deflaters: &mut Deflaters,
    ) -> &Bytes {
        let Some((window_bits, index)) = window_of(deflate) else {
            return &self.plain;
        };
        let compressed = self.by_window[index]
            .get_or_init(|| self.compress(deflaters.with_window(window_bits)?));
        compressed.as_ref().unwrap_or(&self.plain)
    }

    fn compress(&self, deflater: &mut Deflater) -> Option<Bytes> {
        let mut out = Vec::new();
        encode::compressed_message(&mut out, self.kind, self.payload(), None, deflater);
        (out.len() < self.plain.len()).then(|| out.into_boxed_slice().into())
    }
}

/// The window that messages of a server are compressed with for such a connection, and its place;
/// none where they are sent as they are.
fn window_of(deflate: Option<DeflateParameters>) -> Option<(u8, usize)> {
    let afresh = deflate.filter(|agreed| agreed.sends_afresh(Role::Server))?;
    let window_bits = afresh.send_window_bits(Role::Server);
    Some((window_bits, window_index(window_bits)?))
}

/// Bytes before the payload of a frame of a server, at most.
const HEADER_BYTES_MAX: usize = 10;

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
