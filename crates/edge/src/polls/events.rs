//! Events of an event stream.

use super::answers::{FETCHED, HIT, NOSNIFF};
use super::parts::Parts;
use crate::cursor::Cursor;
use crate::responder::Responder;
use bytes::Bytes;
use dwell_engine::{Body, Reply, Response, SharedPiece, WriteError};
use dwell_evloop::Context;
use dwell_proto::sse::{self, Event};

/// The type of the event for a value that is gone.
pub(super) const DELETE: &str = "delete";

/// An event for many streams.
pub(super) enum SharedEvent {
    /// A small one, which is kept by reference, however many wait for it.
    Piece(SharedPiece, usize),
    Parts(Vec<Bytes>),
}

impl SharedEvent {
    pub(super) fn new(event: Vec<Bytes>) -> Self {
        match event.as_slice() {
            [text] => Self::Piece(SharedPiece::new(text), text.len()),
            _ => Self::Parts(event),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Piece(_, bytes) => *bytes,
            Self::Parts(parts) => parts.iter().map(Bytes::len).sum(),
        }
    }

    pub(super) fn write(&self, reply: &mut Reply<'_>) -> Result<(), WriteError> {
        match self {
            Self::Piece(piece, _) => reply.write_piece(piece),
            Self::Parts(parts) => reply.write_parts(parts),
        }
    }
}

/// Begins a stream with its first events; `is_fetched` says that the application has given them.
pub(super) fn begin(
    to: &mut Responder<'_, '_>,
    context: &mut Context,
    is_fetched: bool,
    first: Parts,
) {
    let status = if is_fetched { FETCHED } else { HIT };
    let response = Response {
        status: 200,
        fields: &[
            ("Content-Type", sse::CONTENT_TYPE.as_bytes()),
            NOSNIFF,
            ("Cache-Control", b"no-cache"),
            // nginx would gather what has to reach the client at once.
            ("X-Accel-Buffering", b"no"),
            ("Cache-Status", status),
        ],
        body: Body::Stream(None),
    };
    to.stream(context, &response, &first.finish());
}

/// Appends the event of a value, of which these are the lines: its id is its cursor.
///
/// Shape: an event carries text, so what is not UTF-8 becomes U+FFFD, as it would at the client,
/// and line ends of any kind become line feeds.
pub(super) fn value(out: &mut Parts, cursor: Cursor, lines: Bytes) {
    let cursor = cursor.text();
    let event = Event {
        id: std::str::from_utf8(cursor.bare()).ok(),
        ..Event::new("")
    };
    append(out, &event, lines);
}

/// Appends the event for a value that is gone, and takes back the id, as its client has nothing
/// now.
pub(super) fn deleted(out: &mut Parts) {
    let event = Event {
        event: Some(DELETE),
        id: Some(""),
        ..Event::new("")
    };
    append(out, &event, lines("").into());
}

/// Appends the event of a value of one of several keys, which names the key; the id is that of all.
pub(super) fn value_of(out: &mut Parts, label: &str, id: &str, lines: Bytes) {
    let event = Event {
        event: Some(label),
        id: Some(id),
        ..Event::new("")
    };
    append(out, &event, lines);
}

/// Appends the event that the value of one of several keys is gone.
pub(super) fn deleted_of(out: &mut Parts, label: &str, id: &str) {
    let event = Event {
        event: Some(DELETE),
        id: Some(id),
        ..Event::new("")
    };
    append(out, &event, lines(label).into());
}

/// Appends how many milliseconds the client is to wait when the stream has ended.
pub(super) fn retry(out: &mut Vec<u8>, milliseconds: u64) {
    out.extend_from_slice(b"retry: ");
    out.extend_from_slice(milliseconds.to_string().as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Ends a stream; its client is to come back after so many milliseconds.
pub(super) fn end(reply: &mut Reply<'_>, milliseconds: u64) {
    let mut last = Vec::new();
    retry(&mut last, milliseconds);
    // A client that does not keep up keeps the time it was told first.
    let _ = reply.write(&last);
    let _ = reply.finish(&[]);
}

/// The event that tells that there is no value any more.
pub(super) fn deletion() -> Vec<Bytes> {
    let mut event = Parts::default();
    deleted(&mut event);
    event.finish()
}

fn append(out: &mut Parts, event: &Event<'_>, lines: Bytes) {
    // Neither a cursor nor the name of an event has a line end, the only thing that is refused.
    if event.encode_fields(out.text()).is_ok() {
        out.share(lines);
    }
}

/// The end of an event with this text: its lines, and the empty one.
pub(super) fn lines(text: &str) -> Vec<u8> {
    let mut lines = Vec::new();
    sse::data(&mut lines, text);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Parts)) -> String {
        let mut out = Parts::default();
        write(&mut out);
        String::from_utf8(out.finish().concat()).unwrap()
    }

    #[test]
    fn a_value_is_an_event_with_its_cursor() {
        let cursor = Cursor::of(b"hello", 0);
        let event = text(|out| value(out, cursor, lines("a\nb").into()));
        assert_eq!(event, "id: lVXoVVxi3P0\ndata: a\ndata: b\n\n");
        let empty = text(|out| value(out, cursor, lines("").into()));
        assert_eq!(empty, "id: lVXoVVxi3P0\ndata: \n\n");
    }

    #[test]
    fn a_deletion_takes_the_id_back() {
        assert_eq!(text(deleted), "event: delete\nid: \ndata: \n\n");
        assert_eq!(text(|out| retry(out.text(), 1500)), "retry: 1500\n\n");
    }
}
