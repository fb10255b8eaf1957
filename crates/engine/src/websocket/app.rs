//! The seam: the trait that a program on WebSocket implements, and its events.

use super::WebSocketRef;
use dwell_evloop::{Context, Token};
use dwell_proto::websocket::{CloseCode, DeflateParameters, FramePart, Message, PeerError, Role};
use std::fmt;
use std::io;

/// A program on WebSocket connections: it is called for the events of each of them.
///
/// Shape: every connection that [`WebSockets::adopt`](super::WebSockets::adopt) took ends in
/// exactly one [`closed`](Self::closed). Nothing is handed over while output is full, so an answer
/// to what was handed over always finds room.
///
/// # Panics
/// A callback must not panic, as one of an [`App`](crate::App).
///
/// ```
/// use dwell_engine::websocket::{CloseCode, Message, WebSocketApp, WebSocketEnd, WebSocketRef};
/// use dwell_evloop::{Context, Token};
/// use std::time::Instant;
///
/// /// Sends every message back.
/// #[derive(Default)]
/// struct Echo {
///     turn: Option<Instant>,
///     frames: u32,
/// }
///
/// impl WebSocketApp for Echo {
///     fn message(
///         &mut self,
///         _: &mut Context,
///         socket: &mut WebSocketRef<'_>,
///         message: Message<'_>,
///     ) {
///         if socket.send(message.kind, &message.payload).is_err() {
///             socket.abort();
///         }
///     }
///
///     fn puts_off(&mut self, context: &Context) -> bool {
///         // A thousand frames in a turn; the loop has other clients.
///         if self.turn.replace(context.now()) != Some(context.now()) {
///             self.frames = 0;
///         }
///         self.frames += 1;
///         self.frames > 1000
///     }
///
///     fn closing(
///         &mut self,
///         _: &mut Context,
///         socket: &mut WebSocketRef<'_>,
///         code: CloseCode,
///         reason: &str,
///     ) {
///         println!("{:?} is closed with {code:?}: {reason}", socket.token());
///     }
///
///     fn closed(&mut self, _: &mut Context, _: Token, _: u64, end: WebSocketEnd<'_>) {
///         assert!(end.is_clean || end.code == 1006);
///     }
/// }
/// #
/// # let echo = dwell_testkit::talk_once(Echo::default(), Default::default(), |client| {
/// #     client.send("hello".into())?;
/// #     client.read()?.into_text()
/// # });
/// # assert_eq!(echo, "hello");
/// ```
pub trait WebSocketApp {
    /// A whole message came.
    ///
    /// Shape: one that came in a single piece is borrowed from the loop's input buffer or, if it
    /// was compressed, from the inflater; text is valid UTF-8.
    fn message(
        &mut self,
        context: &mut Context,
        socket: &mut WebSocketRef<'_>,
        message: Message<'_>,
    ) {
        let _ = (context, socket, message);
    }

    /// Puts off further messages to the next turn, by true, as they would be too much work for what
    /// is left of this one.
    ///
    /// Shape: asked before each frame, and of what waits again in the next turn:
    /// [`Context::is_repeating`] tells.
    fn puts_off(&mut self, context: &Context) -> bool {
        let _ = context;
        false
    }

    /// A data frame came, or a piece of one; with [`Delivery::Frames`] alone, and then instead of
    /// [`message`](Self::message).
    ///
    /// Shape: unmasked, but as compressed as it was sent, and text is not checked; the order of
    /// fragments is, and so is the size of frames.
    fn frame(&mut self, context: &mut Context, socket: &mut WebSocketRef<'_>, part: FramePart<'_>) {
        let _ = (context, socket, part);
    }

    /// A control frame came and was handled as the standard requires.
    fn control(
        &mut self,
        context: &mut Context,
        socket: &mut WebSocketRef<'_>,
        control: Control<'_>,
    ) {
        let _ = (context, socket, control);
    }

    /// The server closes, for something the peer has done or left undone: nothing that it sends is
    /// handed over from now on.
    ///
    /// Shape: [`closed`](Self::closed) follows, but as late as the peer likes within
    /// the timeout for closing.
    fn closing(
        &mut self,
        context: &mut Context,
        socket: &mut WebSocketRef<'_>,
        code: CloseCode,
        reason: &str,
    ) {
        let _ = (context, socket, code, reason);
    }

    /// All that was queued is out, after a time in which something was.
    fn drained(&mut self, context: &mut Context, socket: &mut WebSocketRef<'_>) {
        let _ = (context, socket);
    }

    /// The connection is gone; `token` names nothing from now on.
    fn closed(&mut self, context: &mut Context, token: Token, tag: u64, end: WebSocketEnd<'_>);
}

/// A control frame, in the form for an app.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control<'a> {
    /// A ping; it was answered.
    Ping(&'a [u8]),
    /// A pong.
    Pong(&'a [u8]),
    /// The peer closes; a close frame of our own is on its way, if none was before.
    Close {
        /// Its code, if it gave one.
        code: Option<CloseCode>,
        /// More about it, for people.
        reason: &'a str,
    },
}

/// The end of a WebSocket.
///
/// Shape: code, reason and cleanness are what a browser's `CloseEvent` would say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WebSocketEnd<'a> {
    /// The code of the peer's close frame: 1005 where that was empty, 1006 where none came.
    pub code: u16,
    /// The reason in the peer's close frame.
    pub reason: &'a str,
    /// True if both sides have sent a close frame.
    pub is_clean: bool,
    /// The cause of the end.
    pub cause: EndCause,
}

/// The cause of a WebSocket's end.
///
/// ```
/// use dwell_engine::websocket::{EndCause, WebSocketEnd};
///
/// /// What is worth a line of the log.
/// fn line(end: &WebSocketEnd<'_>) -> Option<String> {
///     match end.cause {
///         EndCause::Peer | EndCause::Closed if end.is_clean => None,
///         cause => Some(format!("{cause} (code {}, {:?})", end.code, end.reason)),
///     }
/// }
/// let end = WebSocketEnd {
///     code: 1006,
///     reason: "",
///     is_clean: false,
///     cause: EndCause::PongTimeout,
/// };
/// assert!(line(&end).is_some());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EndCause {
    /// The peer sent a close frame first.
    Peer,
    /// We closed it, by [`WebSocketRef::close`].
    Closed,
    /// Ended by [`WebSocketRef::abort`]; the queued output is lost.
    Aborted,
    /// The peer ended the connection without a close frame.
    Lost,
    /// The connection failed: a reset, for one.
    Failed(io::ErrorKind),
    /// The peer broke the protocol, or sent more than is allowed.
    Protocol(PeerError),
    /// No sign of life followed a ping.
    PongTimeout,
    /// A message did not come to its end in time.
    MessageTimeout,
    /// No message came or went for too long.
    IdleTimeout,
    /// The peer took nothing of what was queued for it.
    WriteTimeout,
    /// The peer did not answer our close frame in time.
    CloseTimeout,
    /// There was no room for a message, and the option is
    /// [`Overflow::Close`](super::Overflow::Close).
    OutputFull,
}

impl fmt::Display for EndCause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer => out.write_str("closed by the peer"),
            Self::Closed => out.write_str("closed"),
            Self::Aborted => out.write_str("aborted"),
            Self::Lost => out.write_str("ended without a close frame"),
            Self::Failed(kind) => write!(out, "connection failed: {kind}"),
            Self::Protocol(error) => error.fmt(out),
            Self::PongTimeout => out.write_str("no pong in time"),
            Self::MessageTimeout => out.write_str("message takes too long"),
            Self::IdleTimeout => out.write_str("idle for too long"),
            Self::WriteTimeout => out.write_str("peer takes no output"),
            Self::CloseTimeout => out.write_str("close frame not answered in time"),
            Self::OutputFull => out.write_str("no room for output"),
        }
    }
}

/// The result of a handshake: it decides how a connection is read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Negotiated {
    /// Our side of the connection.
    pub role: Role,
    /// The parameters of permessage-deflate, if it is used.
    pub deflate: Option<DeflateParameters>,
    /// The form in which messages reach the app.
    pub delivery: Delivery,
}

/// Forms in which the messages of a connection reach the app.
///
/// ```
/// use dwell_engine::websocket::{
///     Control, Delivery, FramePart, Message, Opcode, UpgradeOptions, WebSocketApp, WebSocketEnd,
///     WebSocketRef, WebSocketSendError,
/// };
/// use dwell_evloop::{Context, Token};
///
/// /// Passes frames on as they come, whatever the size of their messages.
/// struct Relay;
///
/// impl WebSocketApp for Relay {
///     fn message(&mut self, _: &mut Context, _: &mut WebSocketRef<'_>, _: Message<'_>) {
///         unreachable!("frames were asked for");
///     }
///
///     fn frame(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, part: FramePart<'_>) {
///         // A piece of a frame becomes a frame of its own.
///         let opcode = if part.is_first { part.opcode } else { Opcode::Continuation };
///         let fin = part.fin && part.payload_left == 0;
///         let sent = socket.frame(opcode, fin, part.compressed && part.is_first, part.data);
///         if let Err(WebSocketSendError::Full { .. }) = sent {
///             socket.close_without_code();
///         }
///     }
///
///     fn control(
///         &mut self,
///         _: &mut Context,
///         socket: &mut WebSocketRef<'_>,
///         control: Control<'_>,
///     ) {
///         println!("{:?}: {control:?}", socket.token());
///     }
///
///     fn closed(&mut self, _: &mut Context, _: Token, _: u64, _: WebSocketEnd<'_>) {}
/// }
///
/// let options = UpgradeOptions { delivery: Delivery::Frames, ..UpgradeOptions::default() };
/// assert_eq!(options.delivery, Delivery::Frames);
/// #
/// # let echo = dwell_testkit::talk_once(Relay, options.delivery, |client| {
/// #     client.send("hello".into())?;
/// #     client.read()?.into_text()
/// # });
/// # assert_eq!(echo, "hello");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Delivery {
    /// Whole messages, put together, inflated and checked.
    #[default]
    Messages,
    /// Data frames, and pieces of them, as they come.
    Frames,
}

impl Negotiated {
    /// A connection with whole messages.
    pub fn new(role: Role, deflate: Option<DeflateParameters>) -> Self {
        Self {
            role,
            deflate,
            delivery: Delivery::Messages,
        }
    }

    /// Makes a number of it, to travel in the tag of an
    /// [`Outcome::Detach`](crate::Outcome::Detach).
    ///
    /// ```
    /// use dwell_engine::websocket::{Negotiated, Role};
    ///
    /// let negotiated = Negotiated::new(Role::Server, None);
    /// assert_eq!(Negotiated::from_bits(negotiated.to_bits()), negotiated);
    /// ```
    pub fn to_bits(self) -> u32 {
        let flag = |is_set: bool, place: u32| u32::from(is_set) << place;
        // 8 to 15, or 0.
        let window = |bits: Option<u8>, place: u32| u32::from(bits.unwrap_or(0) & 0xf) << place;
        let mut bits = flag(self.role == Role::Client, 0);
        bits |= flag(self.delivery == Delivery::Frames, 1);
        if let Some(deflate) = self.deflate {
            bits |= flag(true, 2);
            bits |= flag(deflate.server_no_context_takeover, 3);
            bits |= flag(deflate.client_no_context_takeover, 4);
            bits |= window(deflate.server_max_window_bits, 8);
            bits |= window(deflate.client_max_window_bits, 12);
        }
        bits
    }

    /// The number of [`to_bits`](Self::to_bits), which no bit above the lower sixteen is part of.
    pub(super) fn to_short(self) -> u16 {
        self.to_bits() as u16
    }

    /// Restores the value from which [`to_bits`](Self::to_bits) made a number.
    pub fn from_bits(bits: u32) -> Self {
        let is_set = |place: u32| bits & 1 << place != 0;
        let window = |place: u32| Some((bits >> place) as u8 & 0xf).filter(|bits| *bits != 0);
        Self {
            role: if is_set(0) {
                Role::Client
            } else {
                Role::Server
            },
            delivery: if is_set(1) {
                Delivery::Frames
            } else {
                Delivery::Messages
            },
            deflate: is_set(2).then(|| DeflateParameters {
                server_no_context_takeover: is_set(3),
                client_no_context_takeover: is_set(4),
                server_max_window_bits: window(8),
                client_max_window_bits: window(12),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_negotiated_travels_as_a_number(
            is_client: bool,
            in_frames: bool,
            deflate in proptest::option::of((
                any::<bool>(),
                any::<bool>(),
                proptest::option::of(8..=15_u8),
                proptest::option::of(8..=15_u8),
            )),
        ) {
            let negotiated = Negotiated {
                role: if is_client { Role::Client } else { Role::Server },
                delivery: if in_frames { Delivery::Frames } else { Delivery::Messages },
                deflate: deflate.map(|(server, client, server_bits, client_bits)| {
                    DeflateParameters {
                        server_no_context_takeover: server,
                        client_no_context_takeover: client,
                        server_max_window_bits: server_bits,
                        client_max_window_bits: client_bits,
                    }
                }),
            };
            prop_assert_eq!(Negotiated::from_bits(negotiated.to_bits()), negotiated);
            prop_assert_eq!(Negotiated::from_bits(negotiated.to_short().into()), negotiated);
        }
    }
}
