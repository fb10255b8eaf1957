//! The loop of an ASGI server, turned by the loop of asyncio on the same thread.

use super::shared::{HttpState, INPUT_WINDOW, Shared, WebSocketState};
use crate::web::access_log::AccessLog;
use crate::web::address::Origin;
use crate::web::answer::OVERLOADED;
use crate::web::head::Head;
use crate::web::options::Options;
use bytes::Bytes;
use dwell_engine::websocket::{
    CloseCode, DeflateOptions, Delivery, EndCause, Message, OriginPolicy, UpgradeOptions,
    WebSocketApp, WebSocketEnd, WebSocketRef, WebSockets, is_upgrade, upgrade,
};
use dwell_engine::{App, BodyPlan, ExchangeId, Http, Kinds, Outcome, Reply, Request};
use dwell_evloop::{Context, Driver, Readiness, Slab, Stream, Token};
use dwell_proto::http1::{RequestHead, Trailers};
use pyo3::prelude::*;
use std::sync::Arc;

const LISTENER: u8 = 1;
const CONNECTION: u8 = 2;
const WEB_SOCKET: u8 = 3;
/// The kind of the entries of requests and `WebSockets`, which are no sockets.
const ENTRY: u8 = 4;
/// Messages of a WebSocket that wait for the app; beyond it nothing is read.
const MESSAGES_MAX: usize = 64;

/// Options of handshakes. The app decides which pages may connect, and which subprotocol is spoken.
pub(super) const UPGRADES: UpgradeOptions<'static> = UpgradeOptions {
    subprotocols: &[],
    deflate: None,
    origin: OriginPolicy::Any,
    delivery: Delivery::Messages,
};

/// The state of a request or WebSocket that the app was given.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Http(Arc<Shared<HttpState>>),
    WebSocket(Arc<Shared<WebSocketState>>),
}

/// A request or handshake that came in a turn.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) exchange: ExchangeId,
    pub(super) head: Arc<Head>,
    pub(super) origin: Origin,
    pub(super) entry: Entry,
    pub(super) tag: u64,
}

/// The components of the loop.
#[derive(Debug)]
pub(super) struct AsgiLoop {
    pub(super) http: Http,
    pub(super) web_sockets: WebSockets,
    pub(super) app: AsgiApp,
}

/// The app that the engine talks to.
#[derive(Debug)]
pub(super) struct AsgiApp {
    options: Arc<Options>,
    pub(super) log: AccessLog,
    pub(super) entries: Slab<Entry>,
    pub(super) arrivals: Vec<Arrival>,
    /// Futures to be resolved when the turn is over.
    pub(super) woken: Vec<Py<PyAny>>,
}

impl AsgiLoop {
    pub(super) fn new(options: Arc<Options>) -> Self {
        let kinds = Kinds {
            listener: LISTENER,
            connection: CONNECTION,
        };
        let limits = options.limits;
        Self {
            http: Http::new(kinds, limits).keep_peers(),
            web_sockets: WebSockets::new(WEB_SOCKET, options.web_socket),
            app: AsgiApp {
                log: AccessLog::new(options.access_log.clone()),
                entries: Slab::new(ENTRY, limits.connections_max.saturating_mul(2)),
                options,
                arrivals: Vec::new(),
                woken: Vec::new(),
            },
        }
    }

    /// Returns true if every client is gone.
    pub(super) fn is_empty(&self) -> bool {
        self.http.connections() == 0 && self.web_sockets.connections() == 0
    }

    /// Removes the entry of an exchange whose response is complete.
    pub(super) fn finish(&mut self, context: &mut Context, exchange: ExchangeId, tag: u64) {
        self.app.entries.remove(Token::from_bits(tag));
        self.app.log.end(exchange, context.wall(), true);
    }
}

impl Driver for AsgiLoop {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        if token.kind() == WEB_SOCKET {
            self.web_sockets
                .ready(context, token, readiness, &mut self.app);
        } else {
            self.http.ready(context, token, readiness, &mut self.app);
        }
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        if token.kind() == WEB_SOCKET {
            self.web_sockets.expired(context, token, &mut self.app);
        } else {
            self.http.expired(context, token, &mut self.app);
        }
    }

    fn message(&mut self, _: &mut Context, (): ()) {}

    fn turn_end(&mut self, _: &mut Context) {
        self.app.log.flush();
    }
}

impl AsgiApp {
    /// Returns the options for compressing messages, if the client offers it.
    pub(super) fn deflate(&self) -> DeflateOptions {
        self.options.web_socket.deflate
    }

    fn http(&self, tag: u64) -> Option<&Arc<Shared<HttpState>>> {
        match self.entries.get(Token::from_bits(tag)) {
            Some(Entry::Http(state)) => Some(state),
            _ => None,
        }
    }

    fn arrive(&mut self, request: &Request<'_>, origin: Origin, entry: Entry) -> Outcome {
        let Ok(token) = self.entries.insert(entry.clone()) else {
            return Outcome::Close;
        };
        let tag = token.to_bits();
        self.arrivals.push(Arrival {
            exchange: request.exchange,
            head: Arc::new(Head::of(request)),
            origin,
            entry,
            tag,
        });
        Outcome::Held { tag, timeout: None }
    }

    /// Wakes the tasks that wait for a client that is gone.
    fn leave(&mut self, tag: u64, code: u16, reason: &str) {
        match self.entries.remove(Token::from_bits(tag)) {
            Some(Entry::Http(state)) => {
                let mut state = state.lock();
                state.is_gone = true;
                state.output.clear();
                state.waiters.wake(&mut self.woken);
            }
            Some(Entry::WebSocket(state)) => {
                let mut state = state.lock();
                state.end.get_or_insert_with(|| (code, reason.to_owned()));
                state.waiters.wake(&mut self.woken);
            }
            None => {}
        }
    }
}

impl App for AsgiApp {
    fn body(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        head: &RequestHead<'_, '_>,
        _: &Stream,
    ) -> BodyPlan {
        self.options.body_plan(head)
    }

    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let peer = reply.peer_address();
        let origin = self
            .options
            .trusted
            .origin(peer, request.head.fields.iter());
        self.log.begin(request, context.now(), &origin);
        if self.entries.len() >= self.options.concurrency_max {
            reply.send(&OVERLOADED);
            self.log.status(request.exchange, OVERLOADED.status);
            self.log.end(request.exchange, context.wall(), true);
            return Outcome::Answered;
        }
        self.options.wear.count();
        if is_upgrade(request.head) {
            if let Err(rejection) = upgrade(request.head, &UPGRADES) {
                rejection.send(reply);
                self.log.status(request.exchange, rejection.status());
                self.log.end(request.exchange, context.wall(), true);
                return Outcome::Answered;
            }
            let state = WebSocketState {
                handshake: Some(Head::of(request)),
                ..WebSocketState::default()
            };
            let entry = Entry::WebSocket(Arc::new(Shared::new(state)));
            return self.arrive(request, origin, entry);
        }
        let mut state = HttpState::default();
        state.input.arrive(request.body);
        if !request.body_follows {
            state.input.complete();
        }
        let entry = Entry::Http(Arc::new(Shared::new(state)));
        self.arrive(request, origin, entry)
    }

    fn body_data(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        if let Some(state) = self.http(tag).cloned() {
            let mut state = state.lock();
            state.input.arrive(data);
            reply.await_body(false);
            self.woken.append(&mut state.waiters.receivers);
        }
        Outcome::Held { tag, timeout: None }
    }

    fn body_end(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        _: Trailers<'_>,
        _: &mut Reply<'_>,
    ) -> Outcome {
        if let Some(state) = self.http(tag).cloned() {
            let mut state = state.lock();
            state.input.complete();
            self.woken.append(&mut state.waiters.receivers);
        }
        Outcome::Held { tag, timeout: None }
    }

    fn drained(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let Some(state) = self.http(tag).cloned() else {
            return Outcome::Held { tag, timeout: None };
        };
        let mut state = state.lock();
        let log = &mut self.log;
        let is_over = state
            .output
            .pump(reply, |bytes| log.bytes(exchange, bytes as u64));
        state.is_blocked = !state.output.is_empty();
        if !state.is_blocked {
            self.woken.append(&mut state.waiters.senders);
        }
        if !is_over {
            return Outcome::Held { tag, timeout: None };
        }
        state.waiters.wake(&mut self.woken);
        drop(state);
        self.entries.remove(Token::from_bits(tag));
        self.log.end(exchange, context.wall(), true);
        Outcome::Answered
    }

    fn expired(&mut self, _: &mut Context, _: ExchangeId, tag: u64, _: &mut Reply<'_>) -> Outcome {
        Outcome::Held { tag, timeout: None }
    }

    fn peer_closed(&mut self, _: ExchangeId, _: u64) -> bool {
        !self.options.half_close
    }

    fn abandoned(&mut self, context: &mut Context, exchange: ExchangeId, tag: u64) {
        self.leave(tag, 1006, "");
        self.log.end(exchange, context.wall(), false);
    }
}

impl WebSocketApp for AsgiApp {
    fn message(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, message: Message<'_>) {
        let Some(Entry::WebSocket(state)) = self.entries.get(Token::from_bits(socket.tag())) else {
            return;
        };
        let mut state = state.lock();
        let payload = Bytes::copy_from_slice(&message.payload);
        state.message_bytes += payload.len();
        state.messages.push_back((message.kind, payload));
        let is_full = state.messages.len() >= MESSAGES_MAX;
        if is_full || state.message_bytes as u64 >= INPUT_WINDOW {
            state.is_paused = true;
            socket.pause();
        }
        self.woken.append(&mut state.waiters.receivers);
    }

    fn closing(
        &mut self,
        _: &mut Context,
        socket: &mut WebSocketRef<'_>,
        code: CloseCode,
        reason: &str,
    ) {
        if let Some(Entry::WebSocket(state)) = self.entries.get(Token::from_bits(socket.tag())) {
            let mut state = state.lock();
            state
                .end
                .get_or_insert_with(|| (code.number(), reason.to_owned()));
            state.waiters.wake(&mut self.woken);
        }
    }

    fn drained(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>) {
        if let Some(Entry::WebSocket(state)) = self.entries.get(Token::from_bits(socket.tag())) {
            let mut state = state.lock();
            state.is_blocked = false;
            self.woken.append(&mut state.waiters.senders);
        }
    }

    fn closed(&mut self, _: &mut Context, _: Token, tag: u64, end: WebSocketEnd<'_>) {
        // What we have found wrong with the peer is told with the code that it was sent.
        let code = match end.cause {
            EndCause::Protocol(error) => error.close_code().number(),
            _ => end.code,
        };
        self.leave(tag, code, end.reason);
    }
}
