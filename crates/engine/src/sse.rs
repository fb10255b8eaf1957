//! Server-sent events, as streaming answers.
//!
//! A handler of a [`Manager`](crate::manager::Manager) begins a stream by
//! [`Conn::sse`](crate::manager::Conn::sse). In an [`App`](crate::App) [`begin`] opens the stream,
//! [`send`] or [`SharedEvent::send`] bring events, and [`keep_alive`] is what the timeout of the
//! hold is for. A client that comes back says where it was: [`last_event_id`].
//!
//! ```
//! use dwell_engine::{Outcome, Reply, Request, sse};
//! use std::time::Duration;
//!
//! const HEARTBEAT: Duration = Duration::from_secs(15);
//!
//! /// What an app's `request` does for its stream of events. Its `expired` is then
//! /// `sse::keep_alive(reply, tag, HEARTBEAT)`, and `Http::with_reply` brings the events.
//! fn events(request: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
//!     let seen = sse::last_event_id(request.head.fields).unwrap_or("none");
//!     sse::begin(reply, &[]);
//!     let hello = sse::Event { id: Some("1"), ..sse::Event::new(seen) };
//!     if sse::send(reply, &hello).is_err() {
//!         return Outcome::Close;
//!     }
//!     Outcome::Held { tag: 0, timeout: Some(HEARTBEAT) }
//! }
//! #
//! # let request = "GET / HTTP/1.0\r\nLast-Event-ID: 7\r\n\r\n";
//! # let answer = dwell_testkit::serve_beginning(request, events);
//! # assert!(answer.ends_with("id: 1\ndata: 7\n\n"), "{answer}");
//! ```
//!
//! Source: <https://html.spec.whatwg.org/multipage/server-sent-events.html>

use crate::{Body, Outcome, Reply, Response, SharedPiece, WriteError};
use std::fmt;
use std::time::Duration;

pub use dwell_proto::sse::{CONTENT_TYPE, Event, SseError, last_event_id};

/// Reasons why an event was not sent; no byte of it was.
///
/// ```
/// use dwell_engine::sse::{self, Event, SendEventError};
/// use dwell_engine::{Reply, WriteError};
///
/// /// Whether a stream can go on after an event.
/// fn tell(reply: &mut Reply<'_>, event: &Event<'_>) -> bool {
///     match sse::send(reply, event) {
///         Ok(()) | Err(SendEventError::Write(WriteError::Full { .. })) => true,
///         Err(error) => {
///             println!("{error}");
///             false
///         }
///     }
/// }
/// #
/// # let answer = dwell_testkit::serve_once(|reply| {
/// #     sse::begin(reply, &[]);
/// #     assert!(tell(reply, &Event::new("hi")));
/// # });
/// # assert!(answer.ends_with("\r\ndata: hi\n\n\r\n0\r\n\r\n"), "{answer}");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SendEventError {
    /// The format cannot carry it.
    Event(SseError),
    /// The answer does not take it.
    Write(WriteError),
}

impl fmt::Display for SendEventError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(_) => out.write_str("event cannot be encoded"),
            Self::Write(_) => out.write_str("event cannot be written"),
        }
    }
}

impl std::error::Error for SendEventError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Event(error) => Some(error),
            Self::Write(error) => Some(error),
        }
    }
}

/// Sends the head of an event stream, with further fields of the app's own.
///
/// Shape: the outcome of the request is then an [`Outcome::Held`]. Caches are told to keep their
/// hands off, and nginx not to gather the stream.
pub fn begin(reply: &mut Reply<'_>, fields: &[(&str, &[u8])]) {
    let own = [
        ("Content-Type", CONTENT_TYPE.as_bytes()),
        ("Cache-Control", b"no-store"),
        ("X-Accel-Buffering", b"no"),
    ];
    let all: Vec<_> = own.iter().chain(fields).copied().collect();
    reply.send(&Response {
        status: 200,
        fields: &all,
        body: Body::Stream(None),
    });
}

/// Sends one event to one client.
///
/// # Errors
/// [`SendEventError`].
pub fn send(reply: &mut Reply<'_>, event: &Event<'_>) -> Result<(), SendEventError> {
    let mut encoded = Vec::new();
    event.encode(&mut encoded).map_err(SendEventError::Event)?;
    reply.write(&encoded).map_err(SendEventError::Write)
}

/// Sends a comment, which clients pass over, so that nothing on the way takes the stream for dead.
///
/// # Errors
/// As [`Reply::write`].
///
/// ```
/// use dwell_engine::{ExchangeId, Http, sse};
/// use dwell_evloop::Context;
///
/// /// A comment for every stream, so that nothing on the way takes them for dead.
/// fn beat(http: &mut Http, context: &mut Context, streams: &mut Vec<ExchangeId>) {
///     streams.retain(|stream| http.with_reply(context, *stream, sse::heartbeat).is_some());
/// }
/// #
/// # let answer = dwell_testkit::stream_once(|http, context, exchange| {
/// #     let mut streams = vec![exchange];
/// #     beat(http, context, &mut streams);
/// #     assert_eq!(streams, [exchange]);
/// # });
/// # assert!(answer.ends_with("\r\n\r\n:\n\n"), "{answer}");
/// ```
pub fn heartbeat(reply: &mut Reply<'_>) -> Result<(), WriteError> {
    reply.write(HEARTBEAT)
}

/// Sends a [`heartbeat`] and holds on for another `interval`: all that an
/// [`App::expired`](crate::App::expired) has to do for a stream of events. A stream that is over is
/// closed.
pub fn keep_alive(reply: &mut Reply<'_>, tag: u64, interval: Duration) -> Outcome {
    match heartbeat(reply) {
        // What is full is not quiet.
        Ok(()) | Err(WriteError::Full { .. }) => Outcome::Held {
            tag,
            timeout: Some(interval),
        },
        Err(_) => Outcome::Close,
    }
}

/// An event that goes to many, encoded and framed once for all of them.
///
/// ```
/// use dwell_engine::sse::{Event, SharedEvent};
///
/// let event = SharedEvent::new(&Event::new("news"))?;
/// assert_eq!(event.piece().data(), &b"data: news\n\n"[..]);
/// # Ok::<(), dwell_engine::sse::SseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedEvent {
    piece: SharedPiece,
}

impl SharedEvent {
    /// Encodes an event.
    ///
    /// # Errors
    /// [`SseError`] for what the format cannot carry.
    pub fn new(event: &Event<'_>) -> Result<Self, SseError> {
        let mut encoded = Vec::new();
        event.encode(&mut encoded)?;
        Ok(Self {
            piece: SharedPiece::new(&encoded),
        })
    }

    /// Sends it to one of its clients; what the socket refuses is kept by reference.
    ///
    /// # Errors
    /// As [`Reply::write`].
    pub fn send(&self, reply: &mut Reply<'_>) -> Result<(), WriteError> {
        reply.write_piece(&self.piece)
    }

    /// The event as a piece of an answer.
    pub fn piece(&self) -> &SharedPiece {
        &self.piece
    }
}

/// The shortest comment.
const HEARTBEAT: &[u8] = b":\n\n";
