//! An ASGI server as the face of a desk: requests and WebSockets on their way to the app.

use super::shared::{INPUT_WINDOW, OUTPUT_WINDOW, Shared, WebSocketState};
use crate::web::access_log::{AccessLog, Record};
use crate::web::address::Origin;
use crate::web::answer::{OVERLOADED, WebAnswer};
use crate::web::head::Head;
use crate::web::options::Options;
use crate::web::tls::Secure;
use bytes::Bytes;
use dwell_engine::desk::{Attention, End, Face, Ledger, Line, Looped, Owed};
use dwell_engine::websocket::{
    CloseCode, Delivery, EndCause, Message, OriginPolicy, UpgradeOptions, WebSocketApp,
    WebSocketEnd, WebSocketRef, is_upgrade, upgrade,
};
use dwell_engine::{BodyPlan, Outcome, Reply, Request, UnderWay};
use dwell_evloop::{Context, Slab, Token};
use dwell_proto::http1::RequestHead;
use pyo3::prelude::*;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

/// The kind of the entries of WebSockets, which are no sockets.
const WEB_SOCKET: u8 = u8::MAX;
/// Messages of a WebSocket that wait for the app; beyond it nothing is read.
const MESSAGES_MAX: usize = 64;

/// Options of handshakes. The app decides which pages may connect, and which subprotocol is spoken.
pub(super) const UPGRADES: UpgradeOptions<'static> = UpgradeOptions {
    subprotocols: &[],
    deflate: None,
    origin: OriginPolicy::Any,
    delivery: Delivery::Messages,
};

/// The loop as its exchanges see it: all of it happens on the thread of asyncio's loop.
#[derive(Debug, Default)]
pub(super) struct AsgiLine {
    attention: Attention,
    /// Futures to be resolved once no lock is held.
    woken: Mutex<Vec<Py<PyAny>>>,
}

/// A request or handshake that came in a turn.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) owed: Arc<Owed<AsgiLine>>,
    pub(super) head: Arc<Head>,
    pub(super) origin: Origin,
    pub(super) secure: Option<Secure>,
    /// False for a request without a body.
    pub(super) has_body: bool,
    pub(super) web_socket: Option<Arc<Shared<WebSocketState>>>,
    /// Counts the app's work for the request, which a reset does not end.
    pub(super) under_way: Shared<Option<UnderWay>>,
}

/// The state beside a request.
#[derive(Debug)]
pub(super) struct Entry {
    record: Option<Box<Record>>,
    /// The WebSocket that it is the handshake of.
    web_socket: Option<Arc<Shared<WebSocketState>>>,
}

/// Requests and WebSockets on their way to the app.
#[derive(Debug)]
pub(super) struct AsgiFace {
    pub(super) options: Arc<Options>,
    pub(super) log: AccessLog,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) web_sockets: Sockets,
}

/// The connections that have become WebSockets, by their tags.
#[derive(Debug)]
pub(super) struct Sockets(Slab<Arc<Shared<WebSocketState>>>);

impl AsgiLine {
    /// Adds futures to those that are to be resolved.
    pub(super) fn woke(&self, futures: &mut Vec<Py<PyAny>>) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.append(futures);
    }

    /// Takes the futures that are to be resolved.
    pub(super) fn take_woken(&self) -> Vec<Py<PyAny>> {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *woken)
    }
}

impl Line for AsgiLine {
    type Answer = WebAnswer;
    type Takeover = Infallible;

    fn output_bytes_max(&self) -> usize {
        OUTPUT_WINDOW
    }

    fn body_window_bytes(&self) -> u64 {
        INPUT_WINDOW
    }

    fn attention(&self) -> &Attention {
        &self.attention
    }

    /// Shape: whoever orders looks.
    fn wake(&self, _: bool) {}
}

impl dwell_engine::desk::Entry<AsgiLine> for Entry {
    fn begins(&mut self, answer: &WebAnswer) {
        answer.note(self.record.as_deref_mut());
    }

    fn wrote(&mut self, bytes: u64) {
        if let Some(record) = &mut self.record {
            record.bytes += bytes;
        }
    }
}

impl Entry {
    /// Notes the status of its answer in the access log.
    pub(super) fn note(&mut self, status: u16) {
        if let Some(record) = &mut self.record {
            record.status = status;
        }
    }
}

impl AsgiFace {
    pub(super) fn new(options: Arc<Options>) -> Self {
        Self {
            log: AccessLog::new(options.access_log.clone()),
            web_sockets: Sockets(Slab::new(WEB_SOCKET, options.limits.connections_max)),
            options,
            arrivals: Vec::new(),
        }
    }
}

impl Face for AsgiFace {
    type Line = AsgiLine;
    type Entry = Entry;

    fn body(&mut self, head: &RequestHead<'_, '_>) -> BodyPlan {
        self.options.body_plan(head)
    }

    fn request(
        &mut self,
        ledger: &mut Ledger<AsgiLine, Entry>,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Token, Outcome> {
        let peer = reply.peer_address();
        let origin =
            self.options
                .trusted
                .origin(peer, request.is_secure, request.head.fields.iter());
        let record = self.log.begin(request, context.now(), &origin);
        if ledger.len() + self.web_sockets.0.len() >= self.options.concurrency_max {
            reply.send(&OVERLOADED);
            self.log
                .end(record, Some(OVERLOADED.status), context.wall(), true);
            return Err(Outcome::Answered);
        }
        self.options.wear.count();
        let mut web_socket = None;
        if is_upgrade(request.head) {
            if let Err(rejection) = upgrade(request.head, &UPGRADES) {
                rejection.send(reply);
                self.log
                    .end(record, Some(rejection.status()), context.wall(), true);
                return Err(Outcome::Answered);
            }
            web_socket = Some(Arc::new(Shared::new(WebSocketState::new(ledger.line()))));
        }
        let entry = Entry {
            record,
            web_socket: web_socket.clone(),
        };
        let (token, owed) = ledger.open(request.exchange, entry);
        let has_body = request.body_follows || !request.body.is_empty();
        if has_body {
            owed.expect_body();
            owed.arrive(request.body);
            if !request.body_follows {
                owed.complete(request.trailers);
            }
        }
        self.arrivals.push(Arrival {
            owed,
            head: Arc::new(Head::of(request)),
            origin,
            secure: Secure::of(reply),
            has_body,
            web_socket,
            under_way: Shared::new(Some(reply.under_way())),
        });
        Ok(token)
    }

    fn over(&mut self, _: &mut Ledger<AsgiLine, Entry>, context: &Context, entry: Entry, end: End) {
        if let Some(web_socket) = entry.web_socket
            && end == End::Gone
        {
            web_socket.lock().leave(1006, "");
        }
        self.log
            .end(entry.record, None, context.wall(), end == End::Complete);
    }

    fn half_close(&self) -> bool {
        self.options.half_close
    }
}

impl Looped for AsgiFace {
    type Sockets = Sockets;

    fn sockets(&mut self) -> &mut Sockets {
        &mut self.web_sockets
    }

    fn turn_ended(&mut self, _: &Context) {
        self.log.flush();
    }
}

impl Sockets {
    /// Makes an entry for a connection; returns its tag.
    pub(super) fn insert(&mut self, state: Arc<Shared<WebSocketState>>) -> Option<u64> {
        self.0.insert(state).ok().map(Token::to_bits)
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, tag: u64) -> Option<Arc<Shared<WebSocketState>>> {
        self.0.remove(Token::from_bits(tag))
    }

    fn of(&self, socket: &WebSocketRef<'_>) -> Option<&Arc<Shared<WebSocketState>>> {
        self.0.get(Token::from_bits(socket.tag()))
    }
}

impl WebSocketApp for Sockets {
    fn message(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, message: Message<'_>) {
        let Some(state) = self.of(socket) else {
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
        state.receivers.wake_all();
    }

    fn closing(
        &mut self,
        _: &mut Context,
        socket: &mut WebSocketRef<'_>,
        code: CloseCode,
        reason: &str,
    ) {
        if let Some(state) = self.of(socket) {
            state.lock().leave(code.number(), reason);
        }
    }

    fn drained(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>) {
        if let Some(state) = self.of(socket) {
            let mut state = state.lock();
            state.is_blocked = false;
            state.senders.wake_all();
        }
    }

    fn closed(&mut self, _: &mut Context, _: Token, tag: u64, end: WebSocketEnd<'_>) {
        // What we have found wrong with the peer is told with the code that it was sent.
        let code = match end.cause {
            EndCause::Protocol(error) => error.close_code().number(),
            _ => end.code,
        };
        if let Some(state) = self.remove(tag) {
            state.lock().leave(code, end.reason);
        }
    }
}
