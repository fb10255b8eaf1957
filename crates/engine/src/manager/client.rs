//! The other side of HTTP: responses on an outbound connection.

use super::conn::Access;
use super::event::Event;
use super::message::HttpMessage;
use super::state::State;
use crate::streams::StreamRef;
use dwell_evloop::{Context, Token};
use dwell_proto::http1::{
    BodyDecoder, BodyError, BodyFraming, FieldStorage, HeadError, HeadLimits, head_end,
    oversized_head, parse_response,
};
use std::collections::VecDeque;
use std::fmt;

/// The requests of an outbound HTTP connection.
#[derive(Debug)]
pub(super) struct Client {
    authority: String,
    /// Whether each request under way is a HEAD request, oldest first.
    requests: VecDeque<bool>,
    /// Taken out while its responses are handed over.
    pub(super) responses: Responses,
}

/// What has come of a response.
#[derive(Debug, Default)]
pub(super) struct Responses {
    /// How much of the input was searched for the end of a head.
    scanned: usize,
    /// A response whose body is on the way.
    incoming: Option<Incoming>,
}

#[derive(Debug)]
struct Incoming {
    head: Vec<u8>,
    body: Vec<u8>,
    decoder: BodyDecoder,
    is_head: bool,
}

/// Why a response cannot be understood.
#[derive(Debug)]
enum Fault {
    Head(HeadError),
    Body(BodyError),
    Unasked,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(error) => write!(out, "invalid response: {error}"),
            Self::Body(error) => write!(out, "invalid response body: {error}"),
            Self::Unasked => out.write_str("response without a request"),
        }
    }
}

impl Client {
    pub(super) fn new(authority: String) -> Self {
        Self {
            authority,
            requests: VecDeque::new(),
            responses: Responses::default(),
        }
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// A request with this method was sent.
    pub(super) fn expect(&mut self, method: &str) {
        self.requests.push_back(method == "HEAD");
    }

    /// It was not, after all.
    pub(super) fn expect_not(&mut self) {
        self.requests.pop_back();
    }
}

/// What came on a client's connection, and where its events go.
pub(super) struct ClientVisit<'v, 's> {
    pub(super) state: &'v mut State,
    pub(super) context: &'v mut Context,
    pub(super) stream: &'v mut StreamRef<'s>,
    pub(super) token: Token,
}

impl ClientVisit<'_, '_> {
    /// Takes responses from `input`; returns how much of it is used.
    pub(super) fn data(&mut self, responses: &mut Responses, input: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            let step = if responses.incoming.is_some() {
                self.body(responses, rest)
            } else {
                self.head(responses, rest)
            };
            match step {
                Ok(0) => return used,
                Ok(taken) => used += taken,
                Err(fault) => {
                    self.tell(Event::Error(&fault.to_string()));
                    self.stream.abort();
                    return input.len();
                }
            }
            if self.stream.is_closing() {
                return input.len();
            }
        }
    }

    /// The server sends no more: a body that lasts until then is complete.
    pub(super) fn end(&mut self, responses: &mut Responses) {
        let Some(mut incoming) = responses.incoming.take() else {
            return;
        };
        match incoming.decoder.eof() {
            Ok(()) => self.complete(&incoming),
            Err(error) => self.tell(Event::Error(&Fault::Body(error).to_string())),
        }
    }

    fn head(&mut self, responses: &mut Responses, input: &[u8]) -> Result<usize, Fault> {
        let limits = HeadLimits::default();
        let Some(end) = head_end(input, &mut responses.scanned) else {
            if input.len() > limits.head_bytes_max {
                return Err(Fault::Head(oversized_head(input, &limits)));
            }
            return Ok(0);
        };
        let head_bytes = &input[..end];
        let requests = self.state.client(self.token).map(|client| &client.requests);
        let is_head = requests.and_then(VecDeque::front).copied();
        let is_head = is_head.ok_or(Fault::Unasked)?;
        let mut storage = FieldStorage::new();
        let method = if is_head { "HEAD" } else { "GET" };
        let head =
            parse_response(head_bytes, &mut storage, &limits, method).map_err(Fault::Head)?;
        if head.status < 200 && head.status != 101 {
            // Informational: the final one follows.
            return Ok(end);
        }
        if let Some(client) = self.state.client(self.token) {
            client.requests.pop_front();
        }
        let message = HttpMessage::response(&head, &[]);
        self.tell(Event::HttpHeaders(message));
        match head.framing {
            BodyFraming::None | BodyFraming::Length(0) => self.tell(Event::HttpMessage(message)),
            framing => {
                responses.incoming = Some(Incoming {
                    head: head_bytes.to_vec(),
                    body: Vec::new(),
                    decoder: BodyDecoder::new(framing, self.state.body_bytes_max),
                    is_head,
                });
            }
        }
        Ok(end)
    }

    fn body(&mut self, responses: &mut Responses, input: &[u8]) -> Result<usize, Fault> {
        let Some(mut incoming) = responses.incoming.take() else {
            return Ok(0);
        };
        let step = incoming.decoder.decode(input).map_err(Fault::Body)?;
        incoming.body.extend_from_slice(step.data);
        if step.done {
            self.complete(&incoming);
        } else {
            responses.incoming = Some(incoming);
        }
        Ok(step.consumed)
    }

    fn complete(&mut self, incoming: &Incoming) {
        let mut storage = FieldStorage::new();
        let limits = HeadLimits::default();
        let method = if incoming.is_head { "HEAD" } else { "GET" };
        // It was parsed once when it came, so this does not fail.
        if let Ok(head) = parse_response(&incoming.head, &mut storage, &limits, method) {
            let message = HttpMessage::response(&head, &incoming.body);
            self.tell(Event::HttpMessage(message));
        }
    }

    fn tell(&mut self, event: Event<'_>) {
        let access = Access::Stream(self.stream);
        self.state
            .tell(self.context, None, self.token, access, event);
    }
}
