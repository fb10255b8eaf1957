//! Reading an event stream.

use super::SseError;

/// Takes events out of the bytes of a stream.
///
/// Shape: holds one unfinished event and one unfinished line. Bytes that are not UTF-8 become
/// replacement characters, as in browsers; what follows the last empty line is never an event.
///
/// ```
/// use dwell_proto::sse::EventStreamDecoder;
///
/// let mut decoder = EventStreamDecoder::new(1024);
/// let step = decoder.decode(b": hello\n\nevent: price\nda")?;
/// assert_eq!((step.consumed, step.event), (24, None));
/// let step = decoder.decode(b"ta: 41\n\ndata: next")?;
/// assert_eq!(step.consumed, 8);
/// let received = step.event.expect("an event");
/// assert_eq!((received.event, received.data), ("price", "41"));
/// # Ok::<(), dwell_proto::sse::SseError>(())
/// ```
///
/// Source: WHATWG HTML sections 9.2.5 and 9.2.6.
#[derive(Debug)]
pub struct EventStreamDecoder {
    event_bytes_max: usize,
    /// The beginning of a line of which the end has not come.
    line: Vec<u8>,
    /// The type of the unfinished event, and its data, each line with a line feed.
    event: String,
    data: String,
    id: String,
    /// The id of the last event that was handed out, as it was borrowed.
    last_event_id: String,
    retry: Option<u64>,
    /// True if a line feed at the front belongs to the carriage return before it.
    after_carriage_return: bool,
    is_first_line: bool,
    /// True if `event` and `data` were handed out and are to be cleared.
    dispatched: bool,
}

/// The result of one call of [`EventStreamDecoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventStreamStep<'a> {
    /// Bytes of the input that are used up; give the rest to the next call.
    pub consumed: usize,
    /// The event that has come; `None` if all the input was used up without one.
    pub event: Option<ReceivedEvent<'a>>,
}

/// An event as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedEvent<'a> {
    /// The type of the event: `message` if the server gave none.
    pub event: &'a str,
    /// The content, with line feeds between its lines.
    pub data: &'a str,
    /// The id of this event or of the last one before it that had one; may be empty.
    pub last_event_id: &'a str,
}

impl EventStreamDecoder {
    /// A decoder at the beginning of a stream.
    ///
    /// Units: `event_bytes_max` is in bytes, and bounds each line as well as the content and type
    /// of an event together, and its id.
    pub fn new(event_bytes_max: usize) -> Self {
        Self {
            event_bytes_max,
            line: Vec::new(),
            event: String::new(),
            data: String::new(),
            id: String::new(),
            last_event_id: String::new(),
            retry: None,
            after_carriage_return: false,
            is_first_line: true,
            dispatched: false,
        }
    }

    /// Takes bytes from the front of `input`, up to the end of the next event.
    ///
    /// # Errors
    /// [`SseError::EventTooBig`]; close the connection.
    pub fn decode(&mut self, input: &[u8]) -> Result<EventStreamStep<'_>, SseError> {
        if std::mem::take(&mut self.dispatched) {
            self.event.clear();
            self.data.clear();
        }
        let mut consumed = 0;
        while !self.dispatched && consumed < input.len() {
            consumed += self.take_line(&input[consumed..])?;
        }
        let event = self.dispatched.then(|| self.received());
        Ok(EventStreamStep { consumed, event })
    }

    /// Units: milliseconds to wait before connecting again, if the server has sent them.
    ///
    /// ```
    /// use dwell_proto::sse::{CONTENT_TYPE, EventStreamDecoder, EventStreamStep, ReceivedEvent};
    ///
    /// let mut decoder = EventStreamDecoder::new(1024);
    /// let step: EventStreamStep<'_> = decoder.decode(b"retry: 3000\nid: 7\ndata: a\n\n")?;
    /// let event = ReceivedEvent { event: "message", data: "a", last_event_id: "7" };
    /// assert_eq!(step.event, Some(event));
    /// assert_eq!((decoder.retry(), decoder.last_event_id()), (Some(3000), "7"));
    /// assert_eq!(CONTENT_TYPE, "text/event-stream");
    /// # Ok::<(), dwell_proto::sse::SseError>(())
    /// ```
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// Returns the value of `Last-Event-ID` for connecting again; send no such field if it is
    /// empty.
    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// Takes a line, or what there is of it: how many bytes that was.
    fn take_line(&mut self, input: &[u8]) -> Result<usize, SseError> {
        if std::mem::take(&mut self.after_carriage_return) && input.starts_with(b"\n") {
            return Ok(1);
        }
        let end = memchr::memchr2(b'\r', b'\n', input);
        let piece = &input[..end.unwrap_or(input.len())];
        self.check_size(self.line.len() + piece.len())?;
        let Some(end) = end else {
            self.line.extend_from_slice(piece);
            return Ok(piece.len());
        };
        self.after_carriage_return = input[end] == b'\r';
        if self.line.is_empty() {
            self.end_line(piece)?;
        } else {
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(piece);
            self.end_line(&line)?;
        }
        Ok(end + 1)
    }

    fn end_line(&mut self, line: &[u8]) -> Result<(), SseError> {
        let line = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(line) if self.is_first_line => line,
            _ => line,
        };
        self.is_first_line = false;
        if line.is_empty() {
            self.dispatch();
            return Ok(());
        }
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let name = &line[..colon];
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"event" => {
                let event = String::from_utf8_lossy(value);
                self.check_size(self.data.len() + event.len())?;
                self.event = event.into_owned();
            }
            b"data" => {
                let data = String::from_utf8_lossy(value);
                self.check_size(self.event.len() + self.data.len() + data.len())?;
                self.data.push_str(&data);
                self.data.push('\n');
            }
            b"id" if !value.contains(&0) => {
                let id = String::from_utf8_lossy(value);
                self.check_size(id.len())?;
                self.id = id.into_owned();
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let digits = std::str::from_utf8(value).unwrap_or_default();
                self.retry = digits.parse().ok().or(self.retry);
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles an empty line: ends the event.
    fn dispatch(&mut self) {
        self.last_event_id.clone_from(&self.id);
        if self.data.is_empty() {
            self.event.clear();
        } else {
            self.data.pop();
            self.dispatched = true;
        }
    }

    fn received(&self) -> ReceivedEvent<'_> {
        ReceivedEvent {
            event: match &self.event[..] {
                "" => "message",
                event => event,
            },
            data: &self.data,
            last_event_id: &self.last_event_id,
        }
    }

    fn check_size(&self, length: usize) -> Result<(), SseError> {
        let limit = self.event_bytes_max;
        if length > limit {
            return Err(SseError::EventTooBig { limit, length });
        }
        Ok(())
    }
}

/// U+FEFF, which may stand before the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
