//! Writing an event stream.

use super::SseError;

/// One event of a stream.
///
/// ```
/// use dwell_proto::sse::{Event, SseError};
///
/// let mut out = Vec::new();
/// let event = Event { event: Some("price"), retry: Some(2_000), ..Event::new("41") };
/// event.encode(&mut out)?;
/// assert_eq!(out, b"event: price\nretry: 2000\ndata: 41\n\n");
/// let broken = Event { event: Some("a\nb"), ..Event::new("") };
/// assert_eq!(broken.encode(&mut out), Err(SseError::EventType));
/// # Ok::<(), SseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The type of the event; browsers take an event without one for a `message`.
    pub event: Option<&'a str>,
    /// The content, of any number of lines. Line ends of any kind reach the client as line feeds.
    pub data: &'a str,
    /// The id that the client sends as `Last-Event-ID` after this event. An empty one resets it.
    pub id: Option<&'a str>,
    /// Units: milliseconds the client waits before it connects again, from now on.
    pub retry: Option<u64>,
}

impl<'a> Event<'a> {
    /// An event with nothing but content.
    pub fn new(data: &'a str) -> Self {
        Self {
            event: None,
            data,
            id: None,
            retry: None,
        }
    }

    /// Appends the event, with the empty line that sends it off.
    ///
    /// # Errors
    /// [`SseError::EventType`] or [`SseError::Id`] for what the format cannot carry; nothing is
    /// then written.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), SseError> {
        self.encode_fields(out)?;
        data(out, self.data);
        Ok(())
    }

    /// Appends what comes before the content, which [`data()`] appends: for content that many
    /// events have.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    ///
    /// ```
    /// use dwell_proto::sse::{Event, data};
    ///
    /// let mut out = Vec::new();
    /// Event { id: Some("7"), ..Event::new("") }.encode_fields(&mut out)?;
    /// data(&mut out, "news");
    /// assert_eq!(out, b"id: 7\ndata: news\n\n");
    /// # Ok::<(), dwell_proto::sse::SseError>(())
    /// ```
    pub fn encode_fields(&self, out: &mut Vec<u8>) -> Result<(), SseError> {
        if self.event.is_some_and(|event| event.contains(['\r', '\n'])) {
            return Err(SseError::EventType);
        }
        if self.id.is_some_and(|id| id.contains(['\r', '\n', '\0'])) {
            return Err(SseError::Id);
        }
        if let Some(event) = self.event {
            line(out, "event: ", event);
        }
        if let Some(id) = self.id {
            line(out, "id: ", id);
        }
        if let Some(retry) = self.retry {
            line(out, "retry: ", itoa::Buffer::new().format(retry));
        }
        Ok(())
    }
}

/// Appends the end of an event: its content, and the empty line that sends it off.
///
/// Shape: the fields before it, the type and the id, may differ between the streams that share the
/// content. Line ends of any kind reach the client as line feeds. Memory is allocated once, of just
/// the size if the lines end in one byte.
///
/// ```
/// use dwell_proto::sse;
///
/// let mut out = b"id: 7\n".to_vec();
/// sse::data(&mut out, "two\r\nlines");
/// assert_eq!(out, b"id: 7\ndata: two\ndata: lines\n\n");
/// ```
pub fn data(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    let is_end = |byte: &&u8| matches!(**byte, b'\r' | b'\n');
    let ends = rest.iter().filter(is_end).count();
    // A line end of the text is one of the lines.
    out.reserve(rest.len() + (ends + 1) * DATA.len() + 2);
    loop {
        out.extend_from_slice(DATA);
        let Some(end) = line_end(rest) else {
            out.extend_from_slice(rest);
            break;
        };
        out.extend_from_slice(&rest[..end]);
        out.push(b'\n');
        let is_pair = rest[end..].starts_with(b"\r\n");
        rest = &rest[end + 1 + usize::from(is_pair)..];
    }
    out.extend_from_slice(b"\n\n");
}

/// Returns the end of the first line of a text. Many lines are short, so the first bytes are read
/// one by one.
fn line_end(text: &[u8]) -> Option<usize> {
    let near = &text[..text.len().min(SHORT_LINE_BYTES)];
    let found = near.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    found.or_else(|| {
        let far = memchr::memchr2(b'\r', b'\n', &text[near.len()..])?;
        Some(near.len() + far)
    })
}

const DATA: &[u8] = b"data: ";
const SHORT_LINE_BYTES: usize = 8;

/// Appends a comment, which clients pass over: a heartbeat.
///
/// ```
/// use dwell_proto::sse;
///
/// let mut out = Vec::new();
/// sse::comment(&mut out, "still here");
/// assert_eq!(out, b": still here\n\n");
/// ```
pub fn comment(out: &mut Vec<u8>, text: &str) {
    for text in lines(text) {
        line(out, ": ", text);
    }
    out.push(b'\n');
}

fn line(out: &mut Vec<u8>, start: &str, text: &str) {
    out.reserve(start.len() + text.len() + 1);
    out.extend_from_slice(start.as_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

/// The lines of a text, which may end in all three ways; there is one more than line ends.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = memchr::memchr2(b'\r', b'\n', text.as_bytes()) else {
            return rest.take();
        };
        let after = &text[end..];
        rest = after.strip_prefix("\r\n").or(after.get(1..));
        Some(&text[..end])
    })
}
