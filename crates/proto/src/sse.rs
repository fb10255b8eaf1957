//! Server-sent events: the `text/event-stream` format, both ways (WHATWG HTML).
//!
//! A server writes [`Event`]s, and now and then a [`comment`] so that nothing on the way takes the
//! stream for dead. A client gives what it reads to an [`EventStreamDecoder`], and after the loss
//! of a connection sends the last id it has seen, which the server reads by [`last_event_id`].
//!
//! ```
//! use dwell_proto::sse::{Event, EventStreamDecoder};
//!
//! let mut out = Vec::new();
//! let event = Event { id: Some("7"), ..Event::new("two\nlines") };
//! event.encode(&mut out)?;
//! assert_eq!(out, b"id: 7\ndata: two\ndata: lines\n\n");
//!
//! let mut decoder = EventStreamDecoder::new(1024);
//! let step = decoder.decode(&out)?;
//! let received = step.event.expect("an event");
//! assert_eq!((received.data, received.last_event_id), ("two\nlines", "7"));
//! # Ok::<(), dwell_proto::sse::SseError>(())
//! ```
//!
//! Source: <https://html.spec.whatwg.org/multipage/server-sent-events.html>

mod decode;
mod encode;

use std::fmt;

use crate::http1::Fields;

pub use decode::{EventStreamDecoder, EventStreamStep, ReceivedEvent};
pub use encode::{Event, comment, data};

/// The media type of an event stream.
pub const CONTENT_TYPE: &str = "text/event-stream";

/// The id of the last event that a client has seen, if it sent one.
///
/// Shape: `None` also for what no event can have as its id: bytes that are not UTF-8, or a NUL.
///
/// ```
/// use dwell_proto::http1::{self, FieldStorage, HeadLimits};
/// use dwell_proto::sse;
///
/// let input = b"GET /events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 7\r\n\r\n";
/// let mut storage = FieldStorage::new();
/// let head = http1::parse_request(input, &mut storage, &HeadLimits::default())?;
/// assert_eq!(sse::last_event_id(head.fields), Some("7"));
/// # Ok::<(), http1::HeadError>(())
/// ```
pub fn last_event_id<'b>(fields: Fields<'_, 'b>) -> Option<&'b str> {
    let value = fields.find("last-event-id")?;
    let id = simdutf8::basic::from_utf8(value).ok()?;
    (!id.contains('\0')).then_some(id)
}

/// Reasons why an event cannot be written, or a stream was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SseError {
    /// The type of an event holds a line end.
    EventType,
    /// The id of an event holds a line end or a NUL.
    Id,
    /// An event, or a line of one, is longer than allowed.
    EventTooBig {
        /// The most bytes allowed.
        limit: usize,
        /// The bytes that had arrived.
        length: usize,
    },
}

impl fmt::Display for SseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EventType => out.write_str("line end in the type of an event"),
            Self::Id => out.write_str("line end or NUL in the id of an event"),
            Self::EventTooBig { limit, length } => {
                write!(out, "event exceeds {limit} bytes: {length}")
            }
        }
    }
}

impl std::error::Error for SseError {}

#[cfg(test)]
mod tests;
