//! The apps of the components, which pass events on to the handlers.

use super::client::{Client, ClientVisit};
use super::conn::Access;
use super::event::Event;
use super::kind;
use super::message::HttpMessage;
use super::scope::Scope;
use super::state::ManagerApp;
use crate::components::Protocol;
use crate::reply::Reply;
use crate::streams::{StreamApp, StreamEnd, StreamRef};
use crate::websocket::{
    Control, EndCause, Message, MessageKind, WebSocketApp, WebSocketEnd, WebSocketRef,
};
use crate::{App, BodyPlan, Detached, ExchangeId, Outcome, Request};
use dwell_evloop::{Context, Stream, Token, server_fault};
use dwell_proto::http1::{BodyFraming, RequestHead, Trailers};

/// Bytes of a streamed body that may be on their way to the handler.
const BODY_CREDIT: u32 = 256 * 1024;

impl App for ManagerApp {
    fn body(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        head: &RequestHead<'_, '_>,
        stream: &Stream,
    ) -> BodyPlan {
        let Some(token) = self.http_record(exchange.connection()) else {
            return BodyPlan::Refuse(503);
        };
        self.streamed_bytes_max = None;
        if let Some(record) = self.records.get_mut(token) {
            record.answers_early = false;
        }
        let message = HttpMessage::request(head, &[]);
        self.tell(
            context,
            None,
            token,
            Access::Socket(stream),
            Event::HttpHeaders(message),
        );
        let streamed = self.streamed_bytes_max.take();
        let Some(record) = self.records.get_mut(token) else {
            return BodyPlan::Refuse(503);
        };
        if record.answers_early {
            // Nothing of the body is asked for. The answer is sent as soon as the exchange is
            // held, which a body that is collected would put off.
            return BodyPlan::Stream {
                bytes_max: u64::MAX,
            };
        }
        if let Some(bytes_max) = streamed {
            record.withheld = BODY_CREDIT;
            return BodyPlan::Stream { bytes_max };
        }
        record.collects = true;
        BodyPlan::Collect {
            bytes_max: self.body_bytes_max,
        }
    }

    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let Some(token) = self.http_record(request.exchange.connection()) else {
            return Outcome::Close;
        };
        if request.body_follows {
            let record = self.records.get_mut(token).filter(|record| !record.paused);
            if let Some(record) = record {
                reply.grant(u64::from(std::mem::take(&mut record.withheld)));
            }
            return self.outcome(token, reply);
        }
        if let Some(record) = self.records.get_mut(token) {
            record.answers_early = false;
            record.collects = false;
            if record.closing {
                return Outcome::Close;
            }
            if record.draining {
                reply.close_after();
            }
        }
        if matches!(
            request.head.framing,
            BodyFraming::None | BodyFraming::Length(0)
        ) {
            let message = HttpMessage::request(request.head, &[]);
            let event = Event::HttpHeaders(message);
            self.tell(context, None, token, Access::Reply(reply), event);
            let record = self.records.get(token);
            if reply.is_sent() || record.is_none_or(|record| record.closing) {
                return self.outcome(token, reply);
            }
        }
        let message = HttpMessage::request(request.head, request.body);
        let event = Event::HttpMessage(message);
        self.tell(context, None, token, Access::Reply(reply), event);
        self.outcome(token, reply)
    }

    fn body_data(
        &mut self,
        context: &mut Context,
        _: ExchangeId,
        tag: u64,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let token = Token::from_bits(tag);
        let event = Event::HttpBody {
            data,
            is_last: false,
        };
        self.tell(context, None, token, Access::Reply(reply), event);
        if let Some(record) = self.records.get_mut(token) {
            if record.paused {
                record.withheld = record.withheld.saturating_add(data.len() as u32);
            } else {
                reply.grant(data.len() as u64);
            }
        }
        self.outcome(token, reply)
    }

    fn body_end(
        &mut self,
        context: &mut Context,
        _: ExchangeId,
        tag: u64,
        _: Trailers<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let token = Token::from_bits(tag);
        if let Some(record) = self.records.get_mut(token) {
            record.withheld = 0;
        }
        let event = Event::HttpBody {
            data: &[],
            is_last: true,
        };
        self.tell(context, None, token, Access::Reply(reply), event);
        self.outcome(token, reply)
    }

    fn expired(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        if reply.is_open() {
            return Outcome::Held { tag, timeout: None };
        }
        reply.text(503, "no answer in time");
        Outcome::Answered
    }

    fn drained(
        &mut self,
        context: &mut Context,
        _: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let token = Token::from_bits(tag);
        self.tell(context, None, token, Access::Reply(reply), Event::Drained);
        self.outcome(token, reply)
    }

    fn abandoned(&mut self, _: &mut Context, _: ExchangeId, _: u64) {
        // The connection's end follows, and says it all.
    }

    fn detached(&mut self, _: &mut Context, _: ExchangeId, tag: u64, detached: Detached) {
        let token = Token::from_bits(tag);
        let record = self.records.get_mut(token);
        let leaves = record.and_then(|record| record.leaves.take());
        self.leave(token, leaves.unwrap_or(Protocol::Raw), detached);
    }

    fn opened(
        &mut self,
        context: &mut Context,
        connection: Token,
        stream: &Stream,
        listener: Option<Token>,
    ) {
        let listener = listener.and_then(|listener| self.listener_record(listener));
        let Some(token) = listener.and_then(|listener| self.add_accepted(listener)) else {
            return;
        };
        self.set_http_record(connection, token);
        self.tell(context, None, token, Access::Socket(stream), Event::Open);
        self.tell(context, None, token, Access::Socket(stream), Event::Accept);
    }

    fn stream_opened(
        &mut self,
        context: &mut Context,
        connection: Token,
        stream: Token,
        socket: &Stream,
    ) {
        let parent = self.http_record(connection);
        let Some(token) = parent.and_then(|parent| self.add_accepted(parent)) else {
            return;
        };
        // A stream that has ended in this very callback is not taken yet, and its place is used
        // again.
        let before = self.set_http_record(stream, token);
        let is_stream = |record: &super::state::Record| record.place.kind() == kind::HTTP2_STREAM;
        if self.records.get(before).is_some_and(is_stream) {
            self.end(context, before);
        }
        self.tell(context, None, token, Access::Socket(socket), Event::Open);
        self.tell(context, None, token, Access::Socket(socket), Event::Accept);
    }

    fn closed(&mut self, context: &mut Context, connection: Token) {
        if let Some(token) = self.http_record(connection) {
            self.end(context, token);
        }
    }

    fn received(
        &mut self,
        context: &mut Context,
        connection: Token,
        stream: &Stream,
        bytes: usize,
    ) {
        if let Some(token) = self.http_record(connection) {
            let event = Event::Read { bytes, data: &[] };
            self.tell(context, None, token, Access::Socket(stream), event);
        }
    }

    fn written(&mut self, context: &mut Context, connection: Token, stream: &Stream) {
        if let Some(token) = self.http_record(connection) {
            self.tell(context, None, token, Access::Socket(stream), Event::Write);
        }
    }

    fn event(&mut self, event: crate::HttpEvent) {
        if matches!(
            event,
            crate::HttpEvent::Refused | crate::HttpEvent::Exhausted
        ) {
            self.refused += 1;
        }
    }
}

impl StreamApp for ManagerApp {
    fn opened(&mut self, context: &mut Context, stream: &mut StreamRef<'_>, listener_tag: u64) {
        let Some(token) = self.add_accepted(Token::from_bits(listener_tag)) else {
            return stream.abort();
        };
        stream.set_tag(token.to_bits());
        if let Some(record) = self.records.get_mut(token) {
            record.place = stream.token();
        }
        self.tell(context, None, token, Access::Stream(stream), Event::Open);
        self.tell(context, None, token, Access::Stream(stream), Event::Accept);
    }

    fn connected(&mut self, context: &mut Context, stream: &mut StreamRef<'_>) {
        let token = Token::from_bits(stream.tag());
        self.tell(context, None, token, Access::Stream(stream), Event::Connect);
        let request = self.client(token).and_then(Client::handshake_request);
        if let Some(request) = request {
            stream.write(&request);
            self.limit_handshake(context, token);
        }
    }

    fn handshake_failed(
        &mut self,
        context: &mut Context,
        stream: &mut StreamRef<'_>,
        error: &std::io::Error,
    ) {
        let token = Token::from_bits(stream.tag());
        let text = format!("handshake failed: {}", server_fault(error));
        self.tell(
            context,
            None,
            token,
            Access::Stream(stream),
            Event::Error(&text),
        );
    }

    fn data(
        &mut self,
        context: &mut Context,
        stream: &mut StreamRef<'_>,
        input: &[u8],
        fresh: usize,
    ) -> usize {
        let token = Token::from_bits(stream.tag());
        if self.client(token).is_some() {
            let used = self.client_data(context, stream, token, input);
            let event = Event::Read {
                bytes: fresh,
                data: &[],
            };
            self.tell(context, None, token, Access::Stream(stream), event);
            return used;
        }
        self.kept = 0;
        let event = Event::Read {
            bytes: fresh,
            data: input,
        };
        self.tell(context, None, token, Access::Stream(stream), event);
        input.len() - std::mem::take(&mut self.kept).min(input.len())
    }

    fn peer_closed(&mut self, context: &mut Context, stream: &mut StreamRef<'_>) {
        let token = Token::from_bits(stream.tag());
        if let Some(client) = self.client(token) {
            let mut responses = std::mem::take(&mut client.responses);
            let mut visit = ClientVisit {
                state: self,
                context,
                stream,
                token,
            };
            visit.end(&mut responses);
        }
        stream.close();
    }

    fn written(&mut self, context: &mut Context, stream: &mut StreamRef<'_>, _: usize) {
        let token = Token::from_bits(stream.tag());
        self.tell(context, None, token, Access::Stream(stream), Event::Write);
    }

    fn drained(&mut self, context: &mut Context, stream: &mut StreamRef<'_>) {
        let token = Token::from_bits(stream.tag());
        self.tell(context, None, token, Access::Stream(stream), Event::Drained);
    }

    fn closed(&mut self, context: &mut Context, _: Token, tag: u64, end: StreamEnd) {
        let token = Token::from_bits(tag);
        // The reason of a handshake was told already.
        if !end.is_orderly() && end != StreamEnd::HandshakeFailed {
            self.tell_error(context, token, &end.to_string());
        }
        self.end(context, token);
    }

    fn refused(&mut self, _: &mut Context) {
        self.refused += 1;
    }
}

impl WebSocketApp for ManagerApp {
    fn message(
        &mut self,
        context: &mut Context,
        socket: &mut WebSocketRef<'_>,
        message: Message<'_>,
    ) {
        let token = Token::from_bits(socket.tag());
        let event = Event::WebSocketMessage {
            is_text: message.kind == MessageKind::Text,
            data: &message.payload,
        };
        self.tell(context, None, token, Access::WebSocket(socket), event);
    }

    fn control(
        &mut self,
        context: &mut Context,
        socket: &mut WebSocketRef<'_>,
        control: Control<'_>,
    ) {
        let token = Token::from_bits(socket.tag());
        let mut close = Vec::new();
        let (opcode, data) = match control {
            Control::Ping(data) => (9, data),
            Control::Pong(data) => (10, data),
            Control::Close { code, reason } => {
                if let Some(code) = code {
                    close.extend_from_slice(&code.number().to_be_bytes());
                }
                close.extend_from_slice(reason.as_bytes());
                (8, &close[..])
            }
        };
        let event = Event::WebSocketControl { opcode, data };
        self.tell(context, None, token, Access::WebSocket(socket), event);
    }

    fn drained(&mut self, context: &mut Context, socket: &mut WebSocketRef<'_>) {
        let token = Token::from_bits(socket.tag());
        let access = Access::WebSocket(socket);
        self.tell(context, None, token, access, Event::Drained);
    }

    fn closed(&mut self, context: &mut Context, _: Token, tag: u64, end: WebSocketEnd<'_>) {
        let token = Token::from_bits(tag);
        let is_fault = !matches!(
            end.cause,
            EndCause::Peer | EndCause::Closed | EndCause::Aborted | EndCause::IdleTimeout
        );
        if is_fault {
            self.tell_error(context, token, &end.cause.to_string());
        }
        self.end(context, token);
    }
}

impl ManagerApp {
    /// Calls the handler with the error that ended a connection.
    fn tell_error(&mut self, context: &mut Context, token: Token, text: &str) {
        if let Some(record) = self.records.get_mut(token) {
            record.closing = true;
        }
        self.tell(context, None, token, Access::None, Event::Error(text));
    }

    /// Returns the outcome of an exchange after its handler has run.
    fn outcome(&mut self, token: Token, reply: &mut Reply<'_>) -> Outcome {
        let tag = token.to_bits();
        let Some(record) = self.records.get_mut(token) else {
            return Outcome::Close;
        };
        if record.leaves.is_some() {
            return Outcome::Detach { tag };
        }
        if reply.is_open() {
            // A close lets out what was written, and is done when this callback is over.
            return Outcome::Held { tag, timeout: None };
        }
        // An answer at the head waits to be sent, and the close comes after it.
        if record.closing && !record.answers_early {
            return Outcome::Close;
        }
        if reply.is_sent() {
            return Outcome::Answered;
        }
        Outcome::Held {
            tag,
            timeout: Some(self.answer_timeout),
        }
    }

    /// Calls the handler for the end of a connection, and removes it.
    fn end(&mut self, context: &mut Context, token: Token) {
        if let Some(record) = self.records.get_mut(token) {
            record.closing = true;
        }
        self.tell(context, None, token, Access::None, Event::Close);
        self.remove(token);
    }

    /// Ends a WebSocket handshake that the server does not answer in time.
    fn limit_handshake(&mut self, context: &mut Context, token: Token) {
        let Some(record) = self.records.get(token) else {
            return;
        };
        let (id, timeout) = (record.id, self.connect_timeout);
        let mut scope = Scope {
            state: self,
            context,
            components: None,
        };
        scope.timer(timeout, false, move |scope| {
            let client = scope.state.client(token);
            if client.is_some_and(|client| client.awaits_handshake())
                && let Some(mut conn) = scope.conn(id)
            {
                conn.error("websocket handshake timed out");
            }
        });
    }

    fn client_data(
        &mut self,
        context: &mut Context,
        stream: &mut StreamRef<'_>,
        token: Token,
        input: &[u8],
    ) -> usize {
        let Some(client) = self.client(token) else {
            return input.len();
        };
        let mut responses = std::mem::take(&mut client.responses);
        let mut visit = ClientVisit {
            state: self,
            context,
            stream,
            token,
        };
        let used = visit.data(&mut responses, input);
        if let Some(client) = self.client(token) {
            client.responses = responses;
        }
        used
    }
}
