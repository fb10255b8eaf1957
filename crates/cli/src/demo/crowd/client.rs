//! One client: its requests, and the values that it gets.

use crate::demo::transport::{KEY, Transport};
use dwell_engine::manager::{Event, HttpMessage};
use dwell_proto::http1::{FieldStorage, ResponseDecoder, ResponseLimits, ResponsePart};
use dwell_proto::sse::EventStreamDecoder;
use serde_json::Value;

/// The client of one connection.
#[derive(Debug)]
pub(super) struct Client {
    /// The number of waves before its last value; `None` before the first value.
    joined: Option<u32>,
    protocol: Protocol,
}

#[derive(Debug)]
enum Protocol {
    LongPoll { cursor: String },
    EventStream(Box<EventStream>),
    WebSocket,
}

/// The bytes of a response that are not read yet.
#[derive(Debug)]
struct EventStream {
    response: ResponseDecoder,
    events: EventStreamDecoder,
}

/// The next action of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It waits.
    Wait,
    /// It sends a GET for this target.
    Request(String),
    /// It sends these bytes.
    Send(Vec<u8>),
}

/// The server has sent something that is not a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused;

impl Client {
    pub(super) fn new(transport: Transport) -> Self {
        let protocol = match transport {
            Transport::LongPoll => Protocol::LongPoll {
                cursor: String::new(),
            },
            Transport::EventStream => Protocol::EventStream(Box::new(EventStream {
                response: ResponseDecoder::new("GET"),
                events: EventStreamDecoder::new(VALUE_BYTES_MAX),
            })),
            Transport::WebSocket => Protocol::WebSocket,
        };
        Self {
            joined: None,
            protocol,
        }
    }

    /// Returns true if it waits for the next value.
    pub(super) fn has_value(&self) -> bool {
        self.joined.is_some()
    }

    /// Handles an event of its connection, whose number is `id`.
    ///
    /// Shape: `value` is called with each value, and the result of the last call.
    ///
    /// # Errors
    /// [`Refused`]: the connection is of no more use.
    pub(super) fn event(
        &mut self,
        id: u64,
        event: &Event<'_>,
        mut value: impl FnMut(Option<u32>, &[u8]) -> u32,
    ) -> Result<Next, Refused> {
        let joined = &mut self.joined;
        let mut got = |bytes: &[u8]| *joined = Some(value(*joined, bytes));
        match (&mut self.protocol, event) {
            (Protocol::LongPoll { .. }, Event::Connect) => Ok(Next::Request(KEY.to_owned())),
            (Protocol::LongPoll { cursor }, Event::HttpMessage(message)) => {
                if let Some(body) = poll_answer(message, cursor)? {
                    got(body);
                }
                // They do not come back together.
                let seconds = WAIT_SECONDS - id % WAIT_SPREAD;
                Ok(Next::Request(format!(
                    "{KEY}?since={cursor}&wait={seconds}"
                )))
            }
            (Protocol::EventStream(_), Event::Connect) => Ok(Next::Send(stream_request())),
            (Protocol::EventStream(stream), Event::Read { data, .. }) => {
                stream.read(data, &mut got)?;
                Ok(Next::Wait)
            }
            (Protocol::WebSocket, Event::WebSocketMessage { data, .. }) => {
                let frame: Value = serde_json::from_slice(data).map_err(|_| Refused)?;
                got(frame["v"].as_str().ok_or(Refused)?.as_bytes());
                Ok(Next::Wait)
            }
            _ => Ok(Next::Wait),
        }
    }
}

/// The value of a response, if it has one, with its cursor.
fn poll_answer<'a>(
    message: &HttpMessage<'a>,
    cursor: &mut String,
) -> Result<Option<&'a [u8]>, Refused> {
    match message.status() {
        Some(200) => {
            let named = message.header("Poll-Cursor").ok_or(Refused)?;
            cursor.clear();
            cursor.push_str(str::from_utf8(named).map_err(|_| Refused)?);
            Ok(Some(message.body()))
        }
        Some(204 | 304) if !cursor.is_empty() => Ok(None),
        _ => Err(Refused),
    }
}

fn stream_request() -> Vec<u8> {
    format!("GET {KEY} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n").into()
}

impl EventStream {
    fn read(&mut self, mut data: &[u8], got: &mut impl FnMut(&[u8])) -> Result<(), Refused> {
        let limits = ResponseLimits::default();
        while !data.is_empty() {
            let mut storage = FieldStorage::new();
            let step = self.response.decode(data, &mut storage, &limits);
            let step = step.map_err(|_| Refused)?;
            data = &data[step.consumed..];
            match step.part {
                ResponsePart::Head(head) if head.status != 200 => return Err(Refused),
                ResponsePart::Body(mut piece) => {
                    while !piece.is_empty() {
                        let taken = self.events.decode(piece).map_err(|_| Refused)?;
                        piece = &piece[taken.consumed..];
                        if let Some(event) = taken.event {
                            got(event.data.as_bytes());
                        }
                    }
                }
                // The stream has ended; its client comes back.
                _ if step.done => return Err(Refused),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The longest value that the page sets, with room for the framing.
const VALUE_BYTES_MAX: usize = 16 * 1024;

const WAIT_SECONDS: u64 = 50;
const WAIT_SPREAD: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that a client gets by events, and what it does next after the last one.
    fn values(client: &mut Client, events: &[Event<'_>]) -> (Vec<String>, Result<Next, Refused>) {
        let (mut values, mut next) = (Vec::new(), Ok(Next::Wait));
        for event in events {
            next = client.event(3, event, |_, value| {
                values.push(String::from_utf8_lossy(value).into_owned());
                values.len() as u32
            });
        }
        (values, next)
    }

    fn read(data: &[u8]) -> Event<'_> {
        let bytes = data.len();
        Event::Read { bytes, data }
    }

    #[test]
    fn a_stream_is_read_in_any_pieces() {
        let stream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                      13\r\nid: a\ndata: hello\n\n\r\n11\r\n: beat\ndata: on\n\n\r\n";
        for size in [1, 2, 7, stream.len()] {
            let mut client = Client::new(Transport::EventStream);
            let (_, first) = values(&mut client, &[Event::Connect]);
            assert!(matches!(first, Ok(Next::Send(request)) if request.starts_with(b"GET /poll/")));
            assert!(!client.has_value());
            let events: Vec<_> = stream.as_bytes().chunks(size).map(read).collect();
            let (values, next) = values(&mut client, &events);
            assert_eq!(values, ["hello", "on"], "{size}");
            assert_eq!(next, Ok(Next::Wait));
            assert_eq!(client.joined, Some(2));
        }
    }

    #[test]
    fn a_stream_that_is_refused_or_ends_is_of_no_more_use() {
        for stream in [
            "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "SSH-2.0-x\r\n",
        ] {
            let mut client = Client::new(Transport::EventStream);
            let (values, next) = values(&mut client, &[read(stream.as_bytes())]);
            assert_eq!((values.len(), next), (0, Err(Refused)), "{stream}");
        }
    }

    #[test]
    fn a_frame_has_a_value() {
        let frame = |data| Event::WebSocketMessage {
            is_text: true,
            data,
        };
        let mut client = Client::new(Transport::WebSocket);
        let (got, next) = values(&mut client, &[frame(br#"{"v":"hello","c":"x"}"#)]);
        assert_eq!((got, next), (vec!["hello".to_owned()], Ok(Next::Wait)));
        for wrong in [&br#"{"c":null}"#[..], b"no json"] {
            assert_eq!(values(&mut client, &[frame(wrong)]).1, Err(Refused));
        }
    }

    #[test]
    fn a_long_poll_begins_without_a_cursor() {
        let mut client = Client::new(Transport::LongPoll);
        let (_, next) = values(&mut client, &[Event::Connect]);
        assert_eq!(next, Ok(Next::Request(KEY.to_owned())));
    }
}
