//! The state of an embedded engine apart from its sockets. As the app of every component it records
//! their events.

use super::batch::{Batch, Client, EventKind};
use super::works::Works;
use super::{Options, Statistics, kind};
use crate::Detached;
use crate::app::{App, BodyPlan, ExchangeId, HttpEvent, Outcome, Request};
use crate::reply::{Body, Reply, Response};
use crate::streams::{StreamApp, StreamEnd, StreamRef};
use crate::websocket::{Control, Message, MessageKind, WebSocketApp, WebSocketEnd, WebSocketRef};
use dwell_evloop::{Context, Slab, Stream, Token};
use dwell_proto::http1::{RequestHead, Trailers};
use std::collections::HashMap;

/// Bytes of one batch beyond which connections that send unasked wait for the next turn.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// An exchange whose response the host owes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) exchange: ExchangeId,
    /// The connection that the request came on.
    pub(super) connection: Token,
    /// The host wants an event when all is out.
    pub(super) notifies: bool,
    /// The connection leaves when all is out.
    pub(super) leaves: bool,
    /// The host has the event that the client sends no more.
    peer_closed: bool,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) held: Slab<Held>,
    pub(super) batch: Batch,
    pub(super) batch_bytes_max: usize,
    /// Connections that have left, by the handle of their last request.
    pub(super) departed: Vec<(u64, Detached)>,
    /// WebSocket connections and raw streams that are not read until the next turn.
    pub(super) held_back: Vec<Token>,
    /// Marks to report for WebSocket connections and raw streams when all of their output is out.
    marks: HashMap<Token, u32>,
    pub(super) works: Works,
    /// The connection that was opened last.
    pub(super) opened: Option<Token>,
    pub(super) statistics: Statistics,
    pub(super) options: Options,
}

impl State {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            held: Slab::new(kind::EXCHANGE, usize::MAX),
            batch: Batch::new(),
            batch_bytes_max: BATCH_BYTES_MAX,
            departed: Vec::new(),
            held_back: Vec::new(),
            marks: HashMap::new(),
            works: Works::new(options.counts_work),
            opened: None,
            statistics: Statistics::default(),
            options: *options,
        }
    }

    pub(super) fn push(&mut self, kind: EventKind, handle: Token, detail: u32, bytes: &[u8]) {
        self.batch.push(kind, handle.to_bits(), detail, bytes);
    }

    /// Reports a mark when all output before it is out, now or later.
    pub(super) fn mark(&mut self, token: Token, mark: u32, is_blocked: bool) {
        if is_blocked {
            self.marks.insert(token, mark);
        } else {
            // An earlier one is told with it, not behind it.
            self.marks.remove(&token);
            self.push(EventKind::Writable, token, mark, &[]);
        }
    }

    /// All is out, after a time in which something was not.
    fn all_is_out(&mut self, token: Token) {
        let mark = self.marks.remove(&token).unwrap_or(0);
        self.push(EventKind::Writable, token, mark, &[]);
    }

    #[cfg(test)]
    pub(super) fn marks_anything(&self) -> bool {
        !self.marks.is_empty()
    }

    fn is_full(&self) -> bool {
        self.batch.data().len() > self.batch_bytes_max
    }

    /// An exchange is over without the host's doing.
    pub(super) fn gone(&mut self, token: Token) {
        if self.held.remove(token).is_some() {
            self.push(EventKind::Gone, token, 0, &[]);
        }
    }

    /// A connection is gone, or HTTP has done with it.
    pub(super) fn connection_closed(&mut self, connection: Token) {
        if self.options.reports_connections {
            self.push(EventKind::Closed, connection, 0, &[]);
        }
    }
}

/// The exchange stays as it is.
fn held(tag: u64) -> Outcome {
    Outcome::Held { tag, timeout: None }
}

impl App for State {
    fn body(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        _: &RequestHead<'_, '_>,
        _: &Stream,
    ) -> BodyPlan {
        BodyPlan::Stream {
            bytes_max: self.options.body_bytes_max,
        }
    }

    fn request(
        &mut self,
        _: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        self.statistics.requests += 1;
        let connection = reply.origin.connection;
        let entry = Held {
            exchange: request.exchange,
            connection,
            notifies: false,
            leaves: false,
            peer_closed: false,
        };
        // Only four thousand million exchanges fill the table.
        let Ok(token) = self.held.insert(entry) else {
            reply.send(&Response {
                status: 503,
                fields: &[],
                body: Body::Empty,
            });
            return Outcome::Answered;
        };
        if request.body_follows && !request.head.expect_continue {
            reply.grant(self.options.body_credit);
        }
        self.works.begin(token, reply);
        let handle = token.to_bits();
        let canonical_names = self.options.canonical_names;
        let client = Client {
            connection,
            address: reply.peer_address(),
            tls: reply.tls_facts(),
        };
        self.batch
            .push_request(handle, request, client, canonical_names);
        held(handle)
    }

    fn body_data(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        data: &[u8],
        _: &mut Reply<'_>,
    ) -> Outcome {
        self.push(EventKind::Body, Token::from_bits(tag), 0, data);
        held(tag)
    }

    fn body_end(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        trailers: Trailers<'_>,
        _: &mut Reply<'_>,
    ) -> Outcome {
        self.batch.push_trailers(tag, trailers);
        held(tag)
    }

    fn drained(&mut self, _: &mut Context, _: ExchangeId, tag: u64, _: &mut Reply<'_>) -> Outcome {
        let token = Token::from_bits(tag);
        let Some(entry) = self.held.get_mut(token) else {
            return Outcome::Close;
        };
        if entry.leaves {
            return Outcome::Detach { tag };
        }
        if std::mem::take(&mut entry.notifies) {
            self.push(EventKind::Writable, token, 0, &[]);
        }
        held(tag)
    }

    fn expired(&mut self, _: &mut Context, _: ExchangeId, tag: u64, _: &mut Reply<'_>) -> Outcome {
        // The host has its own deadlines; the engine is given none.
        held(tag)
    }

    fn peer_closed(&mut self, _: ExchangeId, tag: u64) -> bool {
        let token = Token::from_bits(tag);
        // The engine asks again whenever the exchange has gone on.
        if let Some(entry) = self.held.get_mut(token)
            && !std::mem::replace(&mut entry.peer_closed, true)
        {
            self.push(EventKind::PeerClosed, token, 0, &[]);
        }
        !self.options.half_close
    }

    fn abandoned(&mut self, _: &mut Context, _: ExchangeId, tag: u64) {
        self.gone(Token::from_bits(tag));
    }

    fn detached(&mut self, _: &mut Context, exchange: ExchangeId, tag: u64, detached: Detached) {
        let token = Token::from_bits(tag);
        self.held.remove(token);
        self.push(EventKind::Detached, token, 0, &detached.input);
        self.departed.push((tag, detached));
        self.connection_closed(exchange.connection());
    }

    fn opened(&mut self, _: &mut Context, connection: Token, _: &Stream, _: Option<Token>) {
        self.opened = Some(connection);
        if self.options.reports_connections {
            self.push(EventKind::Opened, connection, 0, &[]);
        }
    }

    fn secured(&mut self, _: &mut Context, connection: Token, _: &Stream) {
        if self.options.reports_handshakes {
            self.push(EventKind::Secured, connection, 0, &[]);
        }
    }

    fn insecure(&mut self, _: &mut Context, connection: Token, reason: &str) {
        if self.options.reports_handshakes {
            self.push(EventKind::Insecure, connection, 0, reason.as_bytes());
        }
    }

    fn closed(&mut self, _: &mut Context, connection: Token) {
        self.connection_closed(connection);
    }

    fn event(&mut self, event: HttpEvent) {
        let figure = match event {
            HttpEvent::Accepted => &mut self.statistics.accepted,
            HttpEvent::Refused | HttpEvent::Exhausted => &mut self.statistics.refused,
            HttpEvent::Rejected { .. }
            | HttpEvent::BodyTimeout
            | HttpEvent::TlsOnPlain
            | HttpEvent::ProxyHeaderFailed { .. }
            | HttpEvent::HandshakeFailed(_) => &mut self.statistics.rejected,
            HttpEvent::WriteTimeout => &mut self.statistics.write_timeouts,
            HttpEvent::HandshakeDone(_) => return,
        };
        *figure += 1;
    }
}

impl WebSocketApp for State {
    fn message(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, message: Message<'_>) {
        let is_text = message.kind == MessageKind::Text;
        let detail = if is_text { 1 } else { 2 };
        let token = socket.token();
        self.push(EventKind::WebSocketMessage, token, detail, &message.payload);
        if self.is_full() && !socket.is_paused() {
            socket.pause();
            self.held_back.push(token);
        }
    }

    fn control(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, control: Control<'_>) {
        if let Control::Pong(payload) = control {
            self.push(EventKind::WebSocketPong, socket.token(), 0, payload);
        }
    }

    fn drained(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>) {
        self.all_is_out(socket.token());
    }

    fn closed(&mut self, _: &mut Context, token: Token, _: u64, end: WebSocketEnd<'_>) {
        self.marks.remove(&token);
        let code = u32::from(end.code);
        self.push(
            EventKind::WebSocketClosed,
            token,
            code,
            end.reason.as_bytes(),
        );
    }
}

impl StreamApp for State {
    fn opened(&mut self, _: &mut Context, stream: &mut StreamRef<'_>, _: u64) {
        // There are no listeners of raw streams here.
        stream.abort();
    }

    fn data(
        &mut self,
        _: &mut Context,
        stream: &mut StreamRef<'_>,
        input: &[u8],
        _: usize,
    ) -> usize {
        let token = stream.token();
        self.push(EventKind::StreamData, token, 0, input);
        if self.is_full() && !stream.is_paused() {
            stream.pause();
            self.held_back.push(token);
        }
        input.len()
    }

    fn peer_closed(&mut self, _: &mut Context, stream: &mut StreamRef<'_>) {
        self.push(EventKind::StreamPeerClosed, stream.token(), 0, &[]);
    }

    fn drained(&mut self, _: &mut Context, stream: &mut StreamRef<'_>) {
        self.all_is_out(stream.token());
    }

    fn closed(&mut self, _: &mut Context, token: Token, _: u64, end: StreamEnd) {
        self.marks.remove(&token);
        let is_orderly = matches!(end, StreamEnd::Closed);
        self.push(EventKind::StreamClosed, token, u32::from(!is_orderly), &[]);
    }
}
