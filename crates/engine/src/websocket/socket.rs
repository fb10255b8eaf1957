//! Operations on one WebSocket.

use super::app::{EndCause, Negotiated};
use super::connection::{Connection, State};
use super::options::{Overflow, WebSocketOptions};
use super::random::Masks;
use bytes::Bytes;
use dwell_evloop::{PeerCertificates, Token};
use dwell_proto::websocket::{
    Broadcast, CloseCode, Deflater, Deflaters, FrameHeader, Mask, MessageKind, Opcode, Role, encode,
};
use dwell_timers::Tick;
use std::fmt;
use std::net::SocketAddr;

/// Reasons why a message was not sent; no byte of it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WebSocketSendError {
    /// The queue of output for the peer is full.
    Full {
        /// [`WebSocketOptions::output_bytes_max`].
        limit: usize,
        /// Bytes that wait.
        queued: usize,
    },
    /// The connection is closing or gone.
    Closed,
}

impl fmt::Display for WebSocketSendError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { limit, queued } => {
                write!(out, "queued output exceeds {limit} bytes: {queued}")
            }
            Self::Closed => out.write_str("connection is closing or gone"),
        }
    }
}

impl std::error::Error for WebSocketSendError {}

/// The means of sending that the connections of a loop share.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) deflaters: Deflaters,
    pub(super) masks: Masks,
}

/// One WebSocket, for as long as a callback lasts.
///
/// Shape: what is sent in one callback is gathered and goes out together when it ends.
///
/// ```
/// use dwell_engine::websocket::{Message, WebSocketRef, WebSocketSendError as Refused};
///
/// /// Answers with what came before; the tag counts.
/// fn answer(socket: &mut WebSocketRef<'_>, message: &Message<'_>) -> Result<(), Refused> {
///     let count = socket.tag() + 1;
///     socket.set_tag(count);
///     if socket.negotiated().deflate.is_none() && socket.is_full() {
///         // Read again when `drained` is told.
///         socket.pause();
///         assert!(socket.is_paused() && !socket.is_closing());
///     }
///     socket.text(&format!("{count} from {:?}", socket.peer_address()))?;
///     socket.binary(&message.payload)?;
///     socket.ping(b"still there?")?;
///     assert!(socket.queued_bytes() > 0);
///     Ok(())
/// }
/// #
/// # use dwell_engine::websocket::MessageKind;
/// # let frame = dwell_testkit::socket_once(|sockets, context, token| {
/// #     let message = Message { kind: MessageKind::Text, payload: b"hello".into() };
/// #     let done = sockets.with_socket(context, token, |socket| answer(socket, &message));
/// #     done.expect("it was just adopted")
/// # });
/// # assert!(frame[2..].starts_with(b"1 from "));
/// ```
#[derive(Debug)]
pub struct WebSocketRef<'a> {
    pub(super) token: Token,
    pub(super) connection: &'a mut Connection,
    pub(super) options: &'a WebSocketOptions,
    pub(super) sending: &'a mut Sending,
    pub(super) output: &'a mut Vec<u8>,
    pub(super) now: Tick,
}

/// Shared messages up to this size are copied behind what was gathered; larger ones are written by
/// reference.
const COPY_BYTES_MAX: usize = 16 * 1024;
/// Output that is gathered before it is written.
const GATHERED_BYTES_MAX: usize = 64 * 1024;

impl WebSocketRef<'_> {
    /// Its name.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The app's own number of it.
    pub fn tag(&self) -> u64 {
        self.connection.tag
    }

    /// Gives it a number of the app's own.
    pub fn set_tag(&mut self, tag: u64) {
        self.connection.tag = tag;
    }

    /// Returns the result of the handshake.
    pub fn negotiated(&self) -> Negotiated {
        self.connection.negotiated()
    }

    /// Sends a text message.
    ///
    /// # Errors
    /// [`WebSocketSendError`].
    pub fn text(&mut self, text: &str) -> Result<(), WebSocketSendError> {
        self.send(MessageKind::Text, text.as_bytes())
    }

    /// Sends a binary message.
    ///
    /// # Errors
    /// [`WebSocketSendError`].
    pub fn binary(&mut self, payload: &[u8]) -> Result<(), WebSocketSendError> {
        self.send(MessageKind::Binary, payload)
    }

    /// Sends a message, compressed where that was agreed on and makes it shorter.
    ///
    /// Shape: text must be UTF-8, which is the caller's to know.
    ///
    /// # Errors
    /// [`WebSocketSendError`].
    pub fn send(&mut self, kind: MessageKind, payload: &[u8]) -> Result<(), WebSocketSendError> {
        self.admit()?;
        let mask = self.mask();
        let Negotiated { role, deflate, .. } = self.connection.negotiated();
        // What is too short to be compressed needs no compressor.
        let is_long = payload.len() >= self.options.deflate.message_bytes_min;
        let deflater = deflate.filter(|_| is_long).and_then(|agreed| {
            let window_bits = agreed.send_window_bits(role);
            if agreed.sends_afresh(role) {
                return self.sending.deflaters.with_window(window_bits);
            }
            let options = &self.options.deflate;
            let begin = || Deflater::with_context_takeover(options, window_bits);
            self.connection.beside.deflater_or_else(begin)
        });
        match deflater {
            Some(deflater) => {
                encode::compressed_message(self.output, kind, payload, mask, deflater);
            }
            None => encode::message(self.output, kind, payload, mask),
        }
        self.spill_if_long();
        Ok(())
    }

    /// Sends a message that goes to many, as it was encoded for all of them.
    ///
    /// # Errors
    /// [`WebSocketSendError`].
    pub fn send_shared(&mut self, message: &Broadcast) -> Result<(), WebSocketSendError> {
        if self.connection.negotiated().role == Role::Client {
            // Each frame of a client has a mask of its own.
            return self.send(message.kind(), message.payload());
        }
        let frame = self.shared_frame(message)?;
        if frame.len() <= COPY_BYTES_MAX {
            self.output.extend_from_slice(&frame);
            self.spill_if_long();
        } else {
            let written = self.connection.peer.stream.write_shared(self.output, frame);
            self.wrote(written);
        }
        Ok(())
    }

    /// Sends one frame, or what the caller calls one: the engine checks neither the order of
    /// fragments nor the compression. After a close frame the peer's is waited for, as after
    /// [`close`](Self::close).
    ///
    /// # Errors
    /// [`WebSocketSendError`].
    pub fn frame(
        &mut self,
        opcode: Opcode,
        fin: bool,
        compressed: bool,
        payload: &[u8],
    ) -> Result<(), WebSocketSendError> {
        self.admit()?;
        let header = FrameHeader {
            fin,
            compressed,
            opcode,
            mask: self.mask(),
            payload_len: payload.len() as u64,
        };
        encode::frame(self.output, header, payload);
        if opcode == Opcode::Close {
            self.await_close(EndCause::Closed);
        }
        self.spill_if_long();
        Ok(())
    }

    /// Sends a ping; what of the payload goes beyond 125 bytes is left out.
    ///
    /// # Errors
    /// [`WebSocketSendError`].
    pub fn ping(&mut self, payload: &[u8]) -> Result<(), WebSocketSendError> {
        self.has_room()?;
        let mask = self.mask();
        encode::ping(self.output, payload, mask);
        Ok(())
    }

    /// Sends an unsolicited pong; pings are answered without it.
    ///
    /// # Errors
    /// [`WebSocketSendError`].
    ///
    /// ```
    /// use dwell_engine::websocket::{WebSocketSendError, WebSocketRef};
    ///
    /// /// A sign of life that wants no answer.
    /// fn beat(socket: &mut WebSocketRef<'_>) -> Result<(), WebSocketSendError> {
    ///     socket.pong(b"")
    /// }
    /// #
    /// # let frame = dwell_testkit::socket_once(|sockets, context, token| {
    /// #     sockets.with_socket(context, token, beat).expect("it was just adopted")
    /// # });
    /// # assert_eq!(frame, [0x8a, 0]);
    /// ```
    pub fn pong(&mut self, payload: &[u8]) -> Result<(), WebSocketSendError> {
        self.has_room()?;
        let mask = self.mask();
        encode::pong(self.output, payload, mask);
        Ok(())
    }

    /// Answers a ping, behind a close frame of our own, too. There is room while the connection is
    /// open: it was looked for before the ping was decoded. A peer that is waited for only to close
    /// gets no answer beyond the bound.
    ///
    /// Source: RFC 6455 section 5.5.2.
    pub(super) fn answer_ping(&mut self, payload: &[u8]) {
        if !self.is_full() {
            let mask = self.mask();
            encode::pong(self.output, payload, mask);
        }
    }

    /// Closes it in order: a close frame goes out behind what is queued, and the peer's is waited
    /// for. Messages that come meanwhile are dropped. Does nothing where it is closing already.
    ///
    /// Shape: a reason longer than 123 bytes is cut off between two characters.
    ///
    /// Source: RFC 6455 section 7.1.2.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        self.begin_close(Some(code), reason, EndCause::Closed);
    }

    /// As [`close`](Self::close), with an empty close frame.
    pub fn close_without_code(&mut self) {
        self.begin_close(None, "", EndCause::Closed);
    }

    /// Ends it without sending what is queued: the peer reads a reset, not the end.
    pub fn abort(&mut self) {
        if self.connection.state != State::Ended {
            self.connection.peer.stream.reset_on_drop();
            self.cut();
        }
    }

    /// Ends it without sending what is queued, other than what the system has taken.
    pub(super) fn cut(&mut self) {
        if self.connection.state != State::Ended {
            self.output.clear();
            self.connection.beside.take_ending();
            self.connection.end(EndCause::Aborted);
        }
    }

    /// Stops reading, so that the peer's sending is held back by the kernel's window. Its silence
    /// is not held against it meanwhile.
    pub fn pause(&mut self) {
        self.connection.paused = true;
    }

    /// Reads again.
    pub fn resume(&mut self) {
        self.connection.paused = false;
    }

    /// Returns true if reading is paused.
    pub fn is_paused(&self) -> bool {
        self.connection.paused
    }

    /// Bytes that wait for the socket to take them.
    pub fn queued_bytes(&self) -> usize {
        self.connection.peer.stream.queued_bytes() + self.output.len()
    }

    /// Returns true if a message would be refused until the peer has taken some output.
    pub fn is_full(&self) -> bool {
        self.queued_bytes() >= self.options.output_bytes_max
    }

    /// Returns true if it is closing or closed.
    pub fn is_closing(&self) -> bool {
        self.connection.state != State::Open
    }

    /// Returns the peer's address, asked of the system at each call; `None` when it is gone or
    /// unix.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.connection.peer.stream.peer_address().ok().flatten()
    }

    /// Returns the certificates that a client under TLS has shown, of which the first was verified.
    pub fn peer_certificates(&self) -> Option<&PeerCertificates> {
        self.connection.peer.stream.peer_certificates()
    }

    /// The address of our end; `None` for a unix stream.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.connection.peer.stream.local_address().ok().flatten()
    }

    /// As [`send_shared`](Self::send_shared), but at once and never by a copy.
    pub(super) fn write_shared(&mut self, message: &Broadcast) -> Result<(), WebSocketSendError> {
        if self.connection.negotiated().role == Role::Client {
            return self.send(message.kind(), message.payload());
        }
        let frame = self.shared_frame(message)?;
        let written = self.connection.peer.stream.write_shared(self.output, frame);
        self.wrote(written);
        Ok(())
    }

    /// The frame of a server for this connection, if there is room for it.
    fn shared_frame(&mut self, message: &Broadcast) -> Result<Bytes, WebSocketSendError> {
        self.admit()?;
        let deflate = self.connection.negotiated().deflate;
        let frame = message.frame_for(deflate, &mut self.sending.deflaters);
        Ok(frame.clone())
    }

    /// Writes a close frame; the peer's is to follow.
    pub(super) fn begin_close(&mut self, code: Option<CloseCode>, reason: &str, cause: EndCause) {
        if self.connection.state != State::Open {
            return;
        }
        let mask = self.mask();
        encode::close(self.output, code, reason, mask);
        self.await_close(cause);
    }

    /// Our close frame is written.
    fn await_close(&mut self, cause: EndCause) {
        self.connection.ending(cause).sent = true;
        self.connection.state = State::Closing;
    }

    /// Checks that another message may be sent. If not, the overflow option takes effect.
    fn admit(&mut self) -> Result<(), WebSocketSendError> {
        let admitted = self.has_room();
        match (admitted, self.options.overflow) {
            (Ok(()), _) => self.connection.active = self.now,
            (Err(WebSocketSendError::Full { .. }), Overflow::Close(code)) => {
                self.begin_close(Some(code), "output is full", EndCause::OutputFull);
            }
            (Err(_), _) => {}
        }
        admitted
    }

    /// Checks that the connection is open and takes output.
    fn has_room(&mut self) -> Result<(), WebSocketSendError> {
        if self.connection.state != State::Open {
            return Err(WebSocketSendError::Closed);
        }
        if self.is_full() {
            self.spill();
        }
        if self.is_full() {
            return Err(WebSocketSendError::Full {
                limit: self.options.output_bytes_max,
                queued: self.queued_bytes(),
            });
        }
        Ok(())
    }

    fn mask(&mut self) -> Option<Mask> {
        let is_client = self.connection.negotiated().role == Role::Client;
        is_client.then(|| self.sending.masks.draw())
    }

    fn spill_if_long(&mut self) {
        if self.output.len() >= GATHERED_BYTES_MAX {
            self.spill();
        }
    }

    /// Writes what is gathered.
    pub(super) fn spill(&mut self) {
        if !self.output.is_empty() {
            let written = self.connection.peer.stream.write(self.output);
            self.wrote(written);
        }
    }

    fn wrote(&mut self, written: std::io::Result<()>) {
        self.output.clear();
        match written {
            Ok(()) => self.connection.blocked |= !self.connection.peer.stream.is_flushed(),
            Err(error) => self.connection.end(EndCause::Failed(error.kind())),
        }
    }
}
