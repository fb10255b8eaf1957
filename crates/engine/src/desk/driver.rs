//! The driver of a loop that has a desk on it.

use super::{Desk, End, Face, Ledger, Owed};
use crate::Detached;
use crate::components::{Apps, Components, Protocol, kind};
use crate::limits::Limits;
use crate::streams::{StreamApp, StreamEnd, StreamLimits, StreamRef};
use crate::websocket::{
    CloseCode, Message, Negotiated, WebSocketApp, WebSocketEnd, WebSocketOptions, WebSocketRef,
    WebSockets,
};
use dwell_evloop::{Context, Driver, INPUT_BYTES, Listener, Readiness, Token};
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// A face that has a loop of its own.
pub trait Looped: Face {
    /// The app of connections that have become WebSockets.
    type Sockets: WebSocketApp;

    /// The app of connections that have become WebSockets.
    fn sockets(&mut self) -> &mut Self::Sockets;

    /// Takes note that a turn ends, before the orders that have come are carried out.
    fn turn_ends(&mut self) {}

    /// Takes note that they were carried out.
    fn turn_ended(&mut self, context: &Context) {
        let _ = context;
    }
}

/// The driver of a loop that has a desk on it.
#[derive(Debug)]
pub struct DeskLoop<F: Looped> {
    components: Components,
    apps: Callbacks<F>,
}

/// The apps of the components.
#[derive(Debug)]
struct Callbacks<F: Face> {
    desk: Desk<F>,
    streams: NoSockets,
}

/// The app of a component that has no connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSockets;

impl<F: Looped> DeskLoop<F> {
    /// Makes one without listeners, that keeps the addresses of its peers.
    pub fn new(face: F, line: Arc<F::Line>, http: Limits, web_sockets: WebSocketOptions) -> Self {
        let streams = StreamLimits::default();
        let mut components = Components::new(http, streams, web_sockets, INPUT_BYTES);
        components.http = components.http.keep_peers();
        let desk = Desk::new(face, Ledger::new(kind::FREE, line));
        Self {
            components,
            apps: Callbacks {
                desk,
                streams: NoSockets,
            },
        }
    }

    /// Serves clients without TLS that begin with the preface of HTTP/2, too, if `h2c` says so.
    #[must_use]
    pub fn h2c(mut self, h2c: bool) -> Self {
        if h2c {
            self.components.http = self.components.http.speak_h2c(kind::HTTP2_STREAM);
        }
        self
    }

    /// Serves clients that have agreed on HTTP/2 under TLS, if `http2` says so.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn http2(mut self, http2: bool) -> Self {
        if http2 {
            self.components.http = self.components.http.speak_http2(kind::HTTP2_STREAM);
        }
        self
    }

    /// Lets streams of HTTP/2 become WebSockets (RFC 8441): [`upgrade`](Self::upgrade) takes their
    /// exchanges, too. To be called behind those that let clients speak HTTP/2.
    #[must_use]
    pub fn take_connect(mut self) -> Self {
        self.components.http = self.components.http.take_connect();
        self
    }

    /// Accepts the clients of `listener`.
    ///
    /// # Errors
    /// When the loop cannot register it.
    pub fn listen(&mut self, context: &mut Context, listener: Listener) -> io::Result<()> {
        self.components.http.listen(context, listener).map(|_| ())
    }

    /// Returns what the requests mean.
    pub fn face(&mut self) -> &mut F {
        &mut self.apps.desk.face
    }

    /// Returns the state beside an answer, if that is owed.
    pub fn entry(&mut self, owed: &Owed<F::Line>) -> Option<&mut F::Entry> {
        self.apps.desk.ledger.entry(owed.token())
    }

    /// Returns the connections that have become WebSockets.
    pub fn web_sockets(&mut self) -> &mut WebSockets {
        &mut self.components.websockets
    }

    /// Returns the number of clients.
    pub fn connections(&self) -> usize {
        self.components.connections()
    }

    /// Carries out the orders that have come.
    pub fn look(&mut self, context: &mut Context) {
        let http = &mut self.components.http;
        self.apps.desk.look_all(context, http);
    }

    /// Stops listening and lets connections come to their end.
    pub fn drain(&mut self, context: &mut Context, reason: &str) {
        let Self { components, apps } = self;
        components.http.drain(context, &mut apps.desk);
        let code = CloseCode::GOING_AWAY;
        components.websockets.drain(context, code, reason);
    }

    /// Closes everything that is left.
    pub fn close_all(&mut self, context: &mut Context) {
        self.components.close_all(context, &mut self.apps);
    }

    /// Makes a WebSocket of the connection of an exchange, or of its stream, behind the answer
    /// `head`.
    ///
    /// Shape: `None` for a client that has left.
    ///
    /// # Errors
    /// When the socket has failed, or there are too many.
    pub fn upgrade(
        &mut self,
        context: &mut Context,
        owed: &Owed<F::Line>,
        head: &[u8],
        negotiated: Negotiated,
        tag: u64,
    ) -> Option<io::Result<Token>> {
        let token = owed.token();
        let exchange = self.apps.desk.ledger.exchange(token)?;
        let mut detached: Detached = self.components.http.detach(context, exchange)?;
        self.apps.desk.end(context, token, End::Complete);
        if let Err(error) = detached.stream.write(head) {
            return Some(Err(error));
        }
        let protocol = Protocol::WebSocket(negotiated);
        Some(self.components.adopt(context, detached, protocol, tag))
    }
}

impl<F: Looped> Driver for DeskLoop<F> {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.components
            .ready(context, token, readiness, &mut self.apps);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.components.expired(context, token, &mut self.apps);
    }

    fn message(&mut self, _: &mut Context, (): ()) {}

    fn turn_end(&mut self, context: &mut Context) {
        self.apps.desk.face.turn_ends();
        self.look(context);
        self.apps.desk.face.turn_ended(context);
    }
}

impl<F: Looped> Apps for Callbacks<F> {
    type Http = Desk<F>;
    type Streams = NoSockets;
    type WebSockets = F::Sockets;

    fn http(&mut self) -> &mut Desk<F> {
        &mut self.desk
    }

    fn streams(&mut self) -> &mut NoSockets {
        &mut self.streams
    }

    fn websockets(&mut self) -> &mut F::Sockets {
        self.desk.face.sockets()
    }
}

impl WebSocketApp for NoSockets {
    fn message(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, _: Message<'_>) {
        socket.abort();
    }

    fn closed(&mut self, _: &mut Context, _: Token, _: u64, _: WebSocketEnd<'_>) {}
}

impl StreamApp for NoSockets {
    fn opened(&mut self, _: &mut Context, stream: &mut StreamRef<'_>, _: u64) {
        stream.abort();
    }

    fn data(&mut self, _: &mut Context, stream: &mut StreamRef<'_>, _: &[u8], _: usize) -> usize {
        stream.abort();
        0
    }

    fn closed(&mut self, _: &mut Context, _: Token, _: u64, _: StreamEnd) {}
}
