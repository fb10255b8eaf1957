//! WebSocket: connections that an HTTP server or client has upgraded.
//!
//! A handler of a [`Server`](crate::Server) upgrades a request by
//! [`Exchange::web_socket`](crate::handler::Exchange::web_socket), one of a
//! [`Manager`](crate::manager::Manager) by [`Conn::ws_upgrade`](crate::manager::Conn::ws_upgrade).
//!
//! In a driver of your own [`WebSockets`] is a component: [`upgrade()`] judges a handshake in an
//! [`App`](crate::App), [`WebSockets::adopt`] takes over the connection that
//! [`App::detached`](crate::App::detached) brings, and a [`WebSocketApp`] gets what comes on it.
//! `examples/websocket_echo.rs` is all of it on a page.
//!
//! An idle WebSocket is an entry of a table, with one deadline and no buffer; compressors and
//! inflaters are shared by all connections of the loop that start every message afresh.
//!
//! Source: RFC 6455, RFC 7692.

mod app;
mod beside;
mod connection;
mod gathering;
mod options;
mod random;
mod socket;
mod upgrade;
mod visit;

pub use app::{Control, Delivery, EndCause, Negotiated, WebSocketApp, WebSocketEnd};
pub use dwell_proto::websocket::{
    Agreement, Broadcast, ClientHandshake, CloseCode, DeflateOptions, DeflateParameters, FramePart,
    HandshakeError, Message, MessageKind, MessageLimits, Opcode, PeerError, Role, Utf8Validator,
};
pub use options::{Overflow, WebSocketOptions};
pub use random::nonce;
pub use socket::{WebSocketRef, WebSocketSendError};
pub use upgrade::{OriginPolicy, Rejection, Upgrade, UpgradeOptions, is_upgrade, upgrade};

use crate::Detached;
use crate::fan_out;
use connection::{Connection, Ending, State};
use dwell_evloop::{Context, LoopOutput, Readiness, Slab, Token};
use dwell_proto::websocket::{Deflaters, Inflater};
use socket::Sending;
use std::io;
use visit::{Shared, Visit};

/// The WebSocket connections of one loop, of either role.
#[derive(Debug)]
pub struct WebSockets {
    kind: u8,
    options: WebSocketOptions,
    connections: Slab<Connection>,
    shared: Shared,
}

/// The outcome of a message that was sent to many connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delivered {
    /// Connections that have it, or will.
    pub sent: usize,
    /// Connections that had no room for it.
    pub full: usize,
    /// Names of connections that are closing or gone.
    pub closed: usize,
}

impl WebSockets {
    /// Makes a component without connections; no other component of the loop may use its kind.
    pub fn new(kind: u8, options: WebSocketOptions) -> Self {
        Self {
            kind,
            connections: Slab::new(kind, options.connections_max),
            shared: Shared {
                inflater: Inflater::new(),
                sending: Sending {
                    deflaters: Deflaters::new(options.deflate),
                    masks: random::Masks::default(),
                },
                accounts: None,
            },
            options,
        }
    }

    /// Accounts from now on for what the connections hold because their peers do not take it.
    ///
    /// ```
    /// use dwell_engine::websocket::{WebSocketOptions, WebSockets};
    /// use dwell_evloop::{LoopOutput, OutputLedger};
    /// use std::sync::Arc;
    ///
    /// let ledger = Arc::new(OutputLedger::default());
    /// let mut sockets = WebSockets::new(0, WebSocketOptions::default());
    /// sockets.account(LoopOutput::new(Arc::clone(&ledger), 0));
    /// assert_eq!(ledger.bytes(), 0);
    /// ```
    pub fn account(&mut self, accounts: LoopOutput) {
        self.shared.accounts = Some(accounts);
    }

    /// Connections open now, those included that are closing.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns true if `token` names a connection.
    pub fn contains(&self, token: Token) -> bool {
        self.connections.get(token).is_some()
    }

    /// The names of all connections.
    pub fn tokens(&self) -> impl Iterator<Item = Token> + '_ {
        self.connections.tokens()
    }

    /// Takes over a connection on which the handshake is done, and that is registered with no loop.
    /// Bytes that the peer has sent already are handed over in the next turn.
    ///
    /// # Errors
    /// When the loop cannot register it, or there are too many connections; it is closed then.
    ///
    /// ```
    /// use dwell_engine::Detached;
    /// use dwell_engine::websocket::{Negotiated, WebSockets};
    /// use dwell_evloop::{Context, Token};
    /// use std::io;
    ///
    /// /// What an app's `detached` leads to, once no callback runs.
    /// fn take(
    ///     sockets: &mut WebSockets,
    ///     context: &mut Context,
    ///     detached: Detached,
    ///     tag: u64,
    /// ) -> io::Result<Token> {
    ///     let negotiated = Negotiated::from_bits(tag as u32);
    ///     let socket = sockets.adopt(context, detached, negotiated, 0)?;
    ///     sockets.with_socket(context, socket, |socket| socket.text("welcome"));
    ///     Ok(socket)
    /// }
    /// #
    /// # use dwell_engine::websocket::{Role, WebSocketOptions};
    /// # let (detached, mut client) = dwell_testkit::detached();
    /// # let negotiated = Negotiated::new(Role::Server, None);
    /// # let mut event_loop = dwell_evloop::EventLoop::<()>::new()?;
    /// # let mut sockets = WebSockets::new(0, WebSocketOptions::default());
    /// # let tag = negotiated.to_bits().into();
    /// # take(&mut sockets, event_loop.context(), detached, tag)?;
    /// # let mut frame = [0; 9];
    /// # std::io::Read::read_exact(&mut client, &mut frame)?;
    /// # assert_eq!(&frame, b"\x81\x07welcome");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn adopt(
        &mut self,
        context: &mut Context,
        detached: Detached,
        negotiated: Negotiated,
        tag: u64,
    ) -> io::Result<Token> {
        let limit = self.options.connections_max;
        let connection = Connection::new(detached.into(), negotiated, tag, context.tick());
        let token = self
            .connections
            .insert(connection)
            .map_err(|_| io::Error::other(format!("websockets exceed {limit}")))?;
        if let Some(connection) = self.connections.get_mut(token)
            && let Err(error) = context.register(&mut connection.peer.stream, token)
        {
            self.connections.remove(token);
            return Err(error);
        }
        self.with_socket(context, token, |_| ());
        Ok(token)
    }

    /// A socket of this component is ready.
    pub fn ready<A: WebSocketApp>(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        app: &mut A,
    ) {
        self.visit(context, token, app, |visit| visit.ready(readiness));
    }

    /// The deadline of a token of this component has passed.
    pub fn expired<A: WebSocketApp>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        self.visit(context, token, app, |visit| {
            visit.expired();
        });
    }

    /// Lets `act` work on one connection, from outside its callbacks; `None` where it is gone.
    ///
    /// Shape: what it sends goes out when `act` ends. If it ends the connection,
    /// [`WebSocketApp::closed`] is called in the next turn, not before this returns.
    pub fn with_socket<T>(
        &mut self,
        context: &mut Context,
        token: Token,
        act: impl FnOnce(&mut WebSocketRef<'_>) -> T,
    ) -> Option<T> {
        let mut nobody = ();
        let mut visit = self.visit_of(context, token, &mut nobody)?;
        let result = act(&mut visit.socket());
        visit.rest();
        let is_news = visit.connection.state == State::Ended || visit.connection.is_drained();
        let output = std::mem::take(&mut visit.output);
        context.return_output(output);
        if is_news {
            context.again(token, Readiness::default());
        }
        fan_out::send_if_full(self, context);
        Some(result)
    }

    /// Sends a message; as [`WebSocketRef::send`], from outside its callbacks.
    ///
    /// # Errors
    /// [`WebSocketSendError`].
    pub fn send(
        &mut self,
        context: &mut Context,
        token: Token,
        kind: MessageKind,
        payload: &[u8],
    ) -> Result<(), WebSocketSendError> {
        self.with_socket(context, token, |socket| socket.send(kind, payload))
            .unwrap_or(Err(WebSocketSendError::Closed))
    }

    /// Sends a message that goes to many to one of them; a socket that refuses it keeps it by
    /// reference.
    ///
    /// # Errors
    /// [`WebSocketSendError`].
    pub fn send_shared(
        &mut self,
        context: &mut Context,
        token: Token,
        message: &Broadcast,
    ) -> Result<(), WebSocketSendError> {
        self.with_socket(context, token, |socket| socket.write_shared(message))
            .unwrap_or(Err(WebSocketSendError::Closed))
    }

    /// Sends one message to many connections.
    ///
    /// Shape: encoded once, and compressed once for all connections that have negotiated the same
    /// window; slow ones hold no copy of it. [`WebSocketOptions::overflow`] decides what happens to
    /// a connection that has no room.
    ///
    /// ```
    /// use dwell_engine::websocket::{
    ///     Broadcast, Delivered, MessageKind, WebSocketOptions, WebSockets,
    /// };
    /// use dwell_evloop::EventLoop;
    ///
    /// let mut event_loop = EventLoop::<()>::new()?;
    /// let mut sockets = WebSockets::new(3, WebSocketOptions::default());
    /// let members: Vec<_> = sockets.tokens().collect();
    /// let news = Broadcast::new(MessageKind::Text, b"news");
    /// let delivered = sockets.broadcast(event_loop.context(), members, &news);
    /// assert_eq!(delivered, Delivered::default(), "there is no connection yet");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn broadcast(
        &mut self,
        context: &mut Context,
        tokens: impl IntoIterator<Item = Token>,
        message: &Broadcast,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        for token in tokens {
            match self.send_shared(context, token, message) {
                Ok(()) => delivered.sent += 1,
                Err(WebSocketSendError::Full { .. }) => delivered.full += 1,
                Err(WebSocketSendError::Closed) => delivered.closed += 1,
            }
        }
        delivered
    }

    /// Sends a ping. Does nothing where the connection is gone or full.
    ///
    /// ```
    /// use dwell_engine::websocket::{CloseCode, WebSockets};
    /// use dwell_evloop::Context;
    ///
    /// /// Asks all whether they are there, or sends them away.
    /// fn all(sockets: &mut WebSockets, context: &mut Context, is_ending: bool) {
    ///     if is_ending {
    ///         return sockets.drain(context, CloseCode::GOING_AWAY, "until tomorrow");
    ///     }
    ///     let tokens: Vec<_> = sockets.tokens().collect();
    ///     for token in tokens {
    ///         sockets.ping(context, token, b"");
    ///     }
    /// }
    /// #
    /// # let frames = dwell_testkit::socket_once(|sockets, context, _| {
    /// #     all(sockets, context, false);
    /// #     all(sockets, context, true);
    /// # });
    /// # assert_eq!(frames[..3], [0x89, 0, 0x88], "a ping, then a close frame");
    /// ```
    pub fn ping(&mut self, context: &mut Context, token: Token, payload: &[u8]) {
        let _ = self.with_socket(context, token, |socket| socket.ping(payload));
    }

    /// Closes a connection in order; as [`WebSocketRef::close`]. Does nothing where it is gone.
    pub fn close(&mut self, context: &mut Context, token: Token, code: CloseCode, reason: &str) {
        self.with_socket(context, token, |socket| socket.close(code, reason));
    }

    /// Ends a connection without sending what is queued; as [`WebSocketRef::abort`]. Does nothing
    /// where it is gone.
    pub fn abort(&mut self, context: &mut Context, token: Token) {
        self.with_socket(context, token, |socket| {
            socket.abort();
        });
    }

    /// Closes every connection in order. A server that stops sends 1001, one that comes back 1012.
    /// Each connection ends within [`WebSocketOptions::close_timeout`].
    pub fn drain(&mut self, context: &mut Context, code: CloseCode, reason: &str) {
        let tokens: Vec<_> = self.connections.tokens().collect();
        for token in tokens {
            self.close(context, token, code, reason);
        }
    }

    /// Resets a connection at once and calls the app for its end; its queued output is lost.
    /// Returns false if it was gone. For peers that do not take their output.
    pub fn cut<A: WebSocketApp>(
        &mut self,
        context: &mut Context,
        token: Token,
        app: &mut A,
    ) -> bool {
        let is_there = self.contains(token);
        self.visit(context, token, app, |visit| visit.socket().abort());
        is_there
    }

    /// Ends every connection that is left.
    pub fn close_all<A: WebSocketApp>(&mut self, context: &mut Context, app: &mut A) {
        let tokens: Vec<_> = self.connections.tokens().collect();
        for token in tokens {
            self.visit(context, token, app, |visit| visit.socket().cut());
        }
    }

    fn visit_of<'v, A>(
        &'v mut self,
        context: &'v mut Context,
        token: Token,
        app: &'v mut A,
    ) -> Option<Visit<'v, A>> {
        fan_out::send_before(self, context, token);
        let connection = self.connections.get_mut(token)?;
        let output = context.take_output();
        Some(Visit {
            context,
            app,
            connection,
            token,
            options: &self.options,
            shared: &mut self.shared,
            output,
            progressed: false,
            message_bytes: 0,
            has_begun: false,
        })
    }

    /// Acts on one connection and takes it out of the table when that was its end.
    fn visit<A: WebSocketApp>(
        &mut self,
        context: &mut Context,
        token: Token,
        app: &mut A,
        act: impl FnOnce(&mut Visit<'_, A>),
    ) {
        let Some(mut visit) = self.visit_of(context, token, app) else {
            return;
        };
        act(&mut visit);
        visit.settle();
        let output = std::mem::take(&mut visit.output);
        let is_over = visit.connection.state == State::Ended;
        context.return_output(output);
        if is_over && let Some(mut connection) = self.connections.remove(token) {
            context.disarm(token);
            if !connection.peer.stream.is_flushed() {
                // What is lost must not look whole, nor wait in the system to be taken.
                connection.peer.stream.reset_on_drop();
            }
            let ending = connection.beside.take_ending();
            let ending = ending.unwrap_or_else(|| Box::new(Ending::new(EndCause::Lost)));
            app.closed(context, token, connection.tag, ending.view());
        }
    }
}
