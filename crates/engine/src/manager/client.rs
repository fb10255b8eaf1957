//! The other side of HTTP: responses on an outbound connection.

use super::conn::Access;
use super::event::Event;
use super::message::HttpMessage;
use super::state::State;
use crate::streams::StreamRef;
use crate::websocket::{self, ClientHandshake, HandshakeError, Negotiated, nonce};
use dwell_evloop::{Context, Token};
use dwell_proto::http1::{
    BodyDecoder, BodyError, BodyFraming, FieldStorage, HeadError, HeadLimits, Version, encode,
    head_end, oversized_head, parse_response,
};
use std::collections::VecDeque;
use std::fmt;

/// The requests of an outbound HTTP connection.
#[derive(Debug)]
pub(super) struct Client {
    authority: String,
    /// Whether each request under way is a HEAD request, oldest first.
    requests: VecDeque<bool>,
    /// The handler has written requests of its own, as bytes; whether the last one was a HEAD
    /// request.
    written: Option<bool>,
    /// Taken out while its responses are handed over.
    pub(super) responses: Responses,
    /// It is to become a WebSocket.
    handshake: Option<Box<Handshake>>,
}

/// A WebSocket handshake that was or will be sent.
#[derive(Debug)]
struct Handshake {
    nonce: [u8; 16],
    target: String,
}

/// What has come of a response.
#[derive(Debug, Default)]
pub(super) struct Responses {
    /// How much of the input was searched for the end of a head.
    scanned: usize,
    /// A response whose body is on the way.
    incoming: Option<Incoming>,
    /// What follows is WebSocket.
    is_over: bool,
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
    Unanswered,
    Handshake(HandshakeError),
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(error) => write!(out, "invalid response: {error}"),
            Self::Body(error) => write!(out, "invalid response body: {error}"),
            Self::Handshake(error) => write!(out, "websocket handshake failed: {error}"),
            Self::Unanswered => out.write_str("connection closed before the response"),
            Self::Unasked => out.write_str("response without a request"),
        }
    }
}

impl Client {
    pub(super) fn new(authority: String) -> Self {
        Self {
            authority,
            requests: VecDeque::new(),
            written: None,
            responses: Responses::default(),
            handshake: None,
        }
    }

    /// One that becomes a WebSocket as soon as it is connected.
    pub(super) fn with_handshake(authority: String, target: String) -> Self {
        let handshake = Handshake {
            nonce: nonce(),
            target,
        };
        Self {
            handshake: Some(Box::new(handshake)),
            ..Self::new(authority)
        }
    }

    /// The request of its handshake, where it has one.
    pub(super) fn handshake_request(&mut self) -> Option<Vec<u8>> {
        let handshake = self.handshake.as_ref()?;
        let mut output = Vec::with_capacity(256);
        encode::request_line(&mut output, "GET", &handshake.target, Version::Http11);
        encode::field(&mut output, "Host", self.authority.as_bytes());
        ClientHandshake::new(handshake.nonce).encode_fields(&mut output);
        encode::end_of_head(&mut output);
        self.expect("GET");
        Some(output)
    }

    /// Whether its handshake is under way.
    pub(super) fn awaits_handshake(&self) -> bool {
        self.handshake.is_some()
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// A request with this method was sent.
    pub(super) fn expect(&mut self, method: &str) {
        self.requests.push_back(method == "HEAD");
    }

    /// The handler has sent bytes: a request, or the rest of one.
    pub(super) fn wrote(&mut self, bytes: &[u8]) {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let words = lines.next().map(|line| line.split(|byte| *byte == b' '));
        let is_request_line = words.is_some_and(|words| words.count() == 3);
        if is_request_line || self.written.is_none() {
            self.written = Some(bytes.starts_with(b"HEAD "));
        }
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
        // What was sent behind the handshake is for those who have the connection next.
        while !responses.is_over {
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
        used
    }

    /// The server sends no more: a body that lasts until then is complete, and what it has not
    /// begun to answer it never will.
    pub(super) fn end(&mut self, responses: &mut Responses) {
        let ended = match responses.incoming.take() {
            Some(mut incoming) => {
                let ended = incoming.decoder.eof().map_err(Fault::Body);
                if ended.is_ok() {
                    self.complete(&incoming);
                }
                ended
            }
            None => Ok(()),
        };
        let client = self.state.client(self.token);
        let is_owed = client.is_some_and(|client| !client.requests.is_empty());
        let ended = match ended {
            Ok(()) if is_owed && !self.stream.is_closing() => Err(Fault::Unanswered),
            ended => ended,
        };
        if let Err(fault) = ended {
            self.tell(Event::Error(&fault.to_string()));
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
        let client = self.state.client(self.token);
        let is_head = client.and_then(|client| client.requests.front().copied().or(client.written));
        let is_head = is_head.ok_or(Fault::Unasked)?;
        let mut storage = FieldStorage::new();
        let method = if is_head { "HEAD" } else { "GET" };
        let head =
            parse_response(head_bytes, &mut storage, &limits, method).map_err(Fault::Head)?;
        if head.status < 200 && head.status != 101 {
            // Informational: the final one follows.
            return Ok(end);
        }
        let handshake = self.state.client(self.token).and_then(|client| {
            client.requests.pop_front();
            client.handshake.take()
        });
        if let Some(handshake) = handshake {
            let agreed = ClientHandshake::new(handshake.nonce).check(&head);
            let agreed = agreed.map_err(Fault::Handshake)?;
            let negotiated = Negotiated::new(websocket::Role::Client, agreed.deflate);
            self.state.becomes_websocket(self.token, negotiated);
            responses.is_over = true;
            // What came behind it is the WebSocket's, and not too much for a raw stream to keep.
            self.stream.pause();
            return Ok(end);
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
