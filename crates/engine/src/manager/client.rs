//! The other side of HTTP: responses on an outbound connection.

use super::conn::Access;
use super::event::Event;
use super::message::HttpMessage;
use super::state::ManagerApp;
use crate::streams::StreamRef;
use crate::websocket::{self, ClientHandshake, HandshakeError, Negotiated, nonce};
use dwell_evloop::{Context, Token};
use dwell_proto::http1::{
    BodyError, FieldStorage, HeadLimits, ResponseDecoder, ResponseError, ResponseHead,
    ResponseLimits, ResponsePart, Version, encode, parse_response,
};
use std::collections::VecDeque;
use std::fmt;

/// The requests of an outbound HTTP connection.
#[derive(Debug)]
pub(super) struct Client {
    authority: String,
    /// One entry per request in progress, oldest first: true for a HEAD request.
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

/// The received part of a response.
#[derive(Debug, Default)]
pub(super) struct Responses {
    /// Reads the response that has begun.
    decoder: Option<ResponseDecoder>,
    /// The head of a response whose body is on the way, and the received part of that.
    message: Vec<u8>,
    head_bytes: usize,
    /// The bytes that follow are WebSocket.
    is_over: bool,
}

/// Faults of a response.
#[derive(Debug)]
enum Fault {
    Response(ResponseError),
    Unasked,
    Handshake(HandshakeError),
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response(ResponseError::Head(error)) => {
                write!(out, "invalid response: {error}")
            }
            Self::Response(ResponseError::Body(error)) => {
                write!(out, "invalid response body: {error}")
            }
            Self::Response(error) => error.fmt(out),
            Self::Handshake(error) => write!(out, "websocket handshake failed: {error}"),
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

    /// A client that becomes a WebSocket as soon as it is connected.
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

    /// Returns true if its handshake is in progress.
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

/// Input of a client connection, and the state that its events change.
pub(super) struct ClientVisit<'v, 's> {
    pub(super) state: &'v mut ManagerApp,
    pub(super) context: &'v mut Context,
    pub(super) stream: &'v mut StreamRef<'s>,
    pub(super) token: Token,
}

impl ClientVisit<'_, '_> {
    /// Takes responses from `input`; returns how much of it is used.
    pub(super) fn data(&mut self, responses: &mut Responses, input: &[u8]) -> usize {
        let mut used = 0;
        // What was sent behind the handshake is for the next owner of the connection.
        while !responses.is_over && (used < input.len() || responses.decoder.is_some()) {
            match self.step(responses, &input[used..]) {
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
        let mut ended = Ok(());
        if let Some(decoder) = responses
            .decoder
            .as_mut()
            .filter(|decoder| decoder.has_head())
        {
            ended = decoder.eof();
            if self.stream.is_cut_off() {
                // Without its length, what came may be a part (RFC 9112 section 9.8).
                ended = Err(ResponseError::Body(BodyError::Truncated));
            }
            if ended.is_ok() {
                self.complete(responses);
            }
        }
        let client = self.state.client(self.token);
        let is_owed = client.is_some_and(|client| !client.requests.is_empty());
        if ended.is_ok() && is_owed && !self.stream.is_closing() {
            ended = Err(ResponseError::Unanswered);
        }
        if let Err(error) = ended {
            self.tell(Event::Error(&Fault::Response(error).to_string()));
        }
    }

    /// Makes a decoder for the response that begins now, if a request waits for one.
    fn decoder(&mut self) -> Option<ResponseDecoder> {
        let client = self.state.client(self.token)?;
        let is_head = client.requests.front().copied().or(client.written)?;
        Some(ResponseDecoder::new(if is_head { "HEAD" } else { "GET" }))
    }

    /// Takes the next part of a response.
    ///
    /// Source: RFC 9112 section 9.2, for a response without a request.
    fn step(&mut self, responses: &mut Responses, input: &[u8]) -> Result<usize, Fault> {
        let Some(mut decoder) = responses.decoder.take().or_else(|| self.decoder()) else {
            let is_line_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
            return match input.iter().take_while(is_line_end).count() {
                0 => Err(Fault::Unasked),
                length => Ok(length),
            };
        };
        let limits = ResponseLimits {
            body_bytes_max: self.state.body_bytes_max,
            ..ResponseLimits::default()
        };
        let mut storage = FieldStorage::new();
        let step = decoder.decode(input, &mut storage, &limits);
        let step = step.map_err(Fault::Response)?;
        let (taken, done) = (step.consumed, step.done);
        match step.part {
            ResponsePart::Nothing | ResponsePart::Interim(_) => {}
            ResponsePart::Head(head) => self.head(responses, &head, done)?,
            ResponsePart::Body(piece) => responses.message.extend_from_slice(piece),
        }
        if !done {
            responses.decoder = Some(decoder);
        } else if responses.head_bytes > 0 {
            self.complete(responses);
        }
        Ok(taken)
    }

    fn head(
        &mut self,
        responses: &mut Responses,
        head: &ResponseHead<'_, '_>,
        is_all: bool,
    ) -> Result<(), Fault> {
        let handshake = self.state.client(self.token).and_then(|client| {
            client.requests.pop_front();
            client.handshake.take()
        });
        if let Some(handshake) = handshake {
            let agreed = ClientHandshake::new(handshake.nonce).check(head);
            let agreed = agreed.map_err(Fault::Handshake)?;
            let negotiated = Negotiated::new(websocket::Role::Client, agreed.deflate);
            self.state.becomes_websocket(self.token, negotiated);
            responses.is_over = true;
            // What came behind it is the WebSocket's, and not too much for a raw stream to keep.
            self.stream.pause();
            return Ok(());
        }
        let message = HttpMessage::response(head, &[]);
        self.tell(Event::HttpHeaders(message));
        if is_all {
            self.tell(Event::HttpMessage(message));
        } else {
            responses.message.extend_from_slice(head.bytes);
            responses.head_bytes = head.bytes.len();
        }
        Ok(())
    }

    /// Hands over a response with its body.
    fn complete(&mut self, responses: &mut Responses) {
        let message = std::mem::take(&mut responses.message);
        let (head, body) = message.split_at(std::mem::take(&mut responses.head_bytes));
        let mut storage = FieldStorage::new();
        // It was parsed once when it came, so this does not fail; and it has a body, so that it is
        // no answer to HEAD.
        if let Ok(head) = parse_response(head, &mut storage, &HeadLimits::default(), "GET") {
            self.tell(Event::HttpMessage(HttpMessage::response(&head, body)));
        }
    }

    fn tell(&mut self, event: Event<'_>) {
        let access = Access::Stream(self.stream);
        self.state
            .tell(self.context, None, self.token, access, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_small() {
        assert!(size_of::<Client>() <= 184, "{}", size_of::<Client>());
    }
}
