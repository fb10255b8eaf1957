//! Events of handlers.

use super::message::HttpMessage;
use std::fmt;

/// Events of a connection.
///
/// Shape: what it borrows is valid while the handler runs. The order on one connection is
/// `Open`, `Accept` or (`Resolve`,) `Connect`, then what its protocol brings, then `Close`, which
/// comes once and last. `docs/manager.md` has the table.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The connection failed, or [`Conn::error`](super::Conn::error) was called; `Close` follows.
    Error(&'a str),
    /// The connection or listener exists.
    Open,
    /// A turn of [`Manager::poll`](super::Manager::poll) ends; only with
    /// [`Conn::set_poll_events`](super::Conn::set_poll_events).
    Poll,
    /// The host name of an outbound connection is resolved.
    Resolve,
    /// An outbound connection is established.
    Connect,
    /// A client came.
    Accept,
    /// Bytes came. On a raw connection they are here, and are used up unless
    /// [`Conn::keep`](super::Conn::keep) keeps some; with HTTP it follows what they caused, and
    /// `data` is empty. A WebSocket has none.
    Read {
        /// The number of bytes that came.
        bytes: usize,
        /// The bytes that were kept before, and the new ones behind them.
        data: &'a [u8],
    },
    /// Output was written to the socket, of a raw or an HTTP connection.
    Write,
    /// The connection is gone. Nothing can be sent on it any more.
    Close,
    /// The head of a request (or, on a client, of a response) is complete; once for each, before
    /// its `HttpMessage`.
    HttpHeaders(HttpMessage<'a>),
    /// A request (or response) is complete.
    HttpMessage(HttpMessage<'a>),
    /// A WebSocket is open.
    WebSocketOpen,
    /// A whole WebSocket message.
    WebSocketMessage {
        /// True for text, which is valid UTF-8 then.
        is_text: bool,
        /// The payload.
        data: &'a [u8],
    },
    /// A WebSocket control frame.
    WebSocketControl {
        /// 8 close, 9 ping, 10 pong (RFC 6455 section 5.2).
        opcode: u8,
        /// The payload; of a close, its code and reason.
        data: &'a [u8],
    },
    /// [`Waker::wakeup_with`](super::Waker::wakeup_with) was called for this connection.
    Wakeup(&'a [u8]),
    /// A piece of a request body that is streamed, by
    /// [`Conn::stream_body`](super::Conn::stream_body).
    HttpBody {
        /// The piece; empty with the last one.
        data: &'a [u8],
        /// True if the body is complete.
        is_last: bool,
    },
    /// All output that waited for the peer is out; more can be written.
    Drained,
}

/// Kinds of [`Event`]s.
///
/// Units: the discriminants of those Mongoose has are Mongoose's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum EventKind {
    /// [`Event::Error`].
    Error = 0,
    /// [`Event::Open`].
    Open = 1,
    /// [`Event::Poll`].
    Poll = 2,
    /// [`Event::Resolve`].
    Resolve = 3,
    /// [`Event::Connect`].
    Connect = 4,
    /// [`Event::Accept`].
    Accept = 5,
    /// [`Event::Read`].
    Read = 7,
    /// [`Event::Write`].
    Write = 8,
    /// [`Event::Close`].
    Close = 9,
    /// [`Event::HttpHeaders`].
    HttpHeaders = 10,
    /// [`Event::HttpMessage`].
    HttpMessage = 11,
    /// [`Event::WebSocketOpen`].
    WebSocketOpen = 12,
    /// [`Event::WebSocketMessage`].
    WebSocketMessage = 13,
    /// [`Event::WebSocketControl`].
    WebSocketControl = 14,
    /// [`Event::Wakeup`].
    Wakeup = 19,
    /// [`Event::HttpBody`].
    HttpBody = 32,
    /// [`Event::Drained`].
    Drained = 33,
}

impl Event<'_> {
    /// Returns its kind.
    ///
    /// ```
    /// use dwell_engine::manager::{Event, EventKind};
    /// assert_eq!(Event::Close.kind(), EventKind::Close);
    /// assert_eq!(EventKind::Close as u8, 9);
    /// ```
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Error(_) => EventKind::Error,
            Self::Open => EventKind::Open,
            Self::Poll => EventKind::Poll,
            Self::Resolve => EventKind::Resolve,
            Self::Connect => EventKind::Connect,
            Self::Accept => EventKind::Accept,
            Self::Read { .. } => EventKind::Read,
            Self::Write => EventKind::Write,
            Self::Close => EventKind::Close,
            Self::HttpHeaders(_) => EventKind::HttpHeaders,
            Self::HttpMessage(_) => EventKind::HttpMessage,
            Self::WebSocketOpen => EventKind::WebSocketOpen,
            Self::WebSocketMessage { .. } => EventKind::WebSocketMessage,
            Self::WebSocketControl { .. } => EventKind::WebSocketControl,
            Self::Wakeup(_) => EventKind::Wakeup,
            Self::HttpBody { .. } => EventKind::HttpBody,
            Self::Drained => EventKind::Drained,
        }
    }
}

/// A set of events: those a manager calls its handlers for.
///
/// ```
/// use dwell_engine::manager::{EventKind, EventSet};
/// let set = EventSet::ALL.without(EventKind::Read).without(EventKind::Write);
/// assert!(!set.contains(EventKind::Read));
/// assert!(set.contains(EventKind::HttpMessage));
/// assert!(EventSet::NONE.with(EventKind::Close).contains(EventKind::Close));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EventSet(u64);

impl EventSet {
    /// No event.
    pub const NONE: Self = Self(0);
    /// Every event. `Poll` still comes only with `set_poll_events`.
    pub const ALL: Self = Self(u64::MAX);

    /// This set and `kind`.
    #[must_use]
    pub const fn with(self, kind: EventKind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }

    /// This set but `kind`.
    #[must_use]
    pub const fn without(self, kind: EventKind) -> Self {
        Self(self.0 & !(1 << kind as u8))
    }

    /// Returns true if `kind` is in it.
    pub const fn contains(self, kind: EventKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }
}

impl Default for EventSet {
    fn default() -> Self {
        Self::ALL
    }
}

impl fmt::Debug for EventSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "EventSet({:#x})", self.0)
    }
}
