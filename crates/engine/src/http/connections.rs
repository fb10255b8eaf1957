//! Queries and actions for a connection as a whole.

use super::Http;
use super::visit::Fate;
use crate::app::{App, ExchangeId};
use crate::connection::Phase;
use crate::fan_out::{self, FanOut};
use crate::reply::Outgoing;
use dwell_evloop::{ClientNames, Context, PeerCertificates, Stream, TlsFacts, Token};
use std::net::SocketAddr;

impl Http {
    /// Returns true if `connection` is still here.
    ///
    /// ```
    /// use dwell_engine::Http;
    /// use dwell_evloop::{Context, Readiness, Sends, Sent, Token};
    ///
    /// /// Ends a connection that an operator has named; in order, if it can be.
    /// fn end(http: &mut Http, context: &mut Context, connection: Token) {
    ///     if !http.contains(connection) {
    ///         return;
    ///     }
    ///     let peer = http.peer_address_of(connection);
    ///     let own = http.local_address_of(connection);
    ///     println!("{peer:?} to {own:?}: {} bytes queued", http.queued_bytes(connection));
    ///     if http.exchange_on(connection).is_some() || http.queued_bytes(connection) > 0 {
    ///         http.close_connection(context, connection);
    ///     } else {
    ///         http.abort_connection(context, connection);
    ///     }
    /// }
    /// #
    /// # dwell_testkit::hold_once(|http, context, exchange| {
    /// #     end(http, context, exchange.connection());
    /// #     assert!(!http.contains(exchange.connection()));
    /// # });
    /// ```
    pub fn contains(&self, connection: Token) -> bool {
        self.connections.get(connection).is_some() || self.stream(connection).is_some()
    }

    /// The held exchange of a connection, if an answer is owed on it.
    pub fn exchange_on(&self, connection: Token) -> Option<ExchangeId> {
        if let Some(stream) = self.stream(connection) {
            return stream
                .exchange
                .is_held()
                .then(|| stream.exchange_id(connection));
        }
        let entry = self.connections.get(connection)?;
        entry
            .exchange
            .is_held()
            .then(|| entry.exchange_id(connection))
    }

    /// Returns the connection of a token: that of a stream of HTTP/2, and any other itself.
    pub(crate) fn connection_of(&self, token: Token) -> Token {
        self.stream(token).map_or(token, |stream| stream.connection)
    }

    /// Returns the tag of the app's hold, if a response is owed on a connection.
    pub(crate) fn tag_on(&self, connection: Token) -> Option<u64> {
        let entry = self.connections.get(connection)?;
        entry.exchange.is_held().then_some(entry.exchange.tag())
    }

    /// Bytes of output that wait for the peer of a connection; 0 where it is gone.
    pub fn queued_bytes(&self, connection: Token) -> usize {
        if let Some(stream) = self.stream(connection) {
            return stream.out.bytes();
        }
        let entry = self.connections.get(connection);
        entry.map_or(0, |entry| entry.peer.stream.queued_bytes())
    }

    /// Returns true if no output waits for the client of a held exchange; also if the exchange has
    /// ended.
    ///
    /// ```
    /// use dwell_engine::{ExchangeId, Http};
    /// use dwell_evloop::Context;
    ///
    /// /// Writes the next piece only when the client has taken the last one.
    /// fn next(
    ///     http: &mut Http,
    ///     context: &mut Context,
    ///     exchange: ExchangeId,
    ///     piece: &[u8],
    /// ) -> bool {
    ///     http.is_flushed(exchange)
    ///         && http
    ///             .with_reply(context, exchange, |reply| reply.write(piece))
    ///             .is_some_and(|written| written.is_ok())
    /// }
    /// #
    /// # let answer = dwell_testkit::stream_once(|http, context, exchange| {
    /// #     assert!(next(http, context, exchange, b"a piece"));
    /// # });
    /// # assert!(answer.ends_with("\r\n\r\na piece"), "{answer}");
    /// ```
    pub fn is_flushed(&self, exchange: ExchangeId) -> bool {
        if let Some(stream) = self.held_stream(exchange) {
            return stream.is_flushed();
        }
        self.held(exchange)
            .is_none_or(|entry| entry.peer.stream.is_flushed())
    }

    /// The client's address of a held exchange.
    pub fn peer_address(&self, exchange: ExchangeId) -> Option<SocketAddr> {
        self.peer_address_of(self.held_connection(exchange)?)
    }

    /// The [label](Self::label) of the listener that has accepted the connection of a held
    /// exchange, if it has one.
    pub fn listener_label(&self, exchange: ExchangeId) -> Option<u8> {
        let labels = self.beside.labels.as_ref()?;
        labels.find(self.held_connection(exchange)?)
    }

    /// The names of the client of a held exchange, as
    /// [`Reply::client_names`](crate::Reply::client_names) has them.
    pub fn client_names(&self, exchange: ExchangeId) -> Option<&ClientNames> {
        let entry = match self.held_stream(exchange) {
            Some(stream) => self.connections.get(stream.connection)?,
            None => self.held(exchange)?,
        };
        entry.peer.stream.client_names()
    }

    /// The connection of a held exchange, which may be one of a stream.
    fn held_connection(&self, exchange: ExchangeId) -> Option<Token> {
        if let Some(stream) = self.held_stream(exchange) {
            return Some(stream.connection);
        }
        self.held(exchange).map(|_| exchange.token)
    }

    /// Returns the client's address, as [`Reply::peer_address`](crate::Reply::peer_address) does.
    pub fn peer_address_of(&self, connection: Token) -> Option<SocketAddr> {
        let connection = self.connection_of(connection);
        let entry = self.connections.get(connection)?;
        let origin = self.beside.origins().of(connection);
        origin.address(&entry.peer.stream)
    }

    /// Returns the certificates that the client has shown, as
    /// [`Reply::peer_certificates`](crate::Reply::peer_certificates) does.
    pub(crate) fn peer_certificates_of(&self, connection: Token) -> Option<&PeerCertificates> {
        let entry = self.connections.get(self.connection_of(connection))?;
        entry.peer.stream.peer_certificates()
    }

    /// Returns the facts of the client's handshake, once it is over; `None` without TLS.
    pub(crate) fn tls_facts_of(&self, connection: Token) -> Option<TlsFacts<'_>> {
        let entry = self.connections.get(self.connection_of(connection))?;
        entry.peer.stream.tls_facts()
    }

    /// Returns the address that the client has connected to, asked of the system at each call.
    pub fn local_address_of(&self, connection: Token) -> Option<SocketAddr> {
        let entry = self.connections.get(self.connection_of(connection))?;
        entry.peer.stream.local_address().ok().flatten()
    }

    /// Closes a connection when its output is out. No more requests are served on it, and a
    /// response that is owed or open is cut off. The app is not called for the exchange. Returns
    /// false if the connection is gone, before or by this.
    pub fn close_connection(&mut self, context: &mut Context, connection: Token) -> bool {
        let mut nobody = ();
        let Some(mut visit) = self.visit(context, connection, &mut nobody) else {
            return false;
        };
        let entry = &mut *visit.connection;
        if !matches!(entry.exchange.phase, Phase::Writing | Phase::Lingering) {
            entry.exchange.phase = Phase::Idle;
        }
        entry.exchange.outgoing = Outgoing::None;
        entry.incoming = None;
        entry.peer.drop_tail();
        entry.finished = true;
        if entry.exchange.phase != Phase::Lingering && visit.rest(true) == Fate::Close {
            self.forget(context, connection);
            return false;
        }
        true
    }

    /// Resets a connection at once and calls the app for what ends with it; its queued output is
    /// lost. Returns false if it was gone. For clients that do not read their responses.
    ///
    /// ```
    /// use dwell_engine::{HttpDriver, Limits, Outcome, Reply, Request};
    /// use dwell_evloop::{Context, EventLoop};
    /// # use std::io::{Read, Write};
    ///
    /// # let held = std::cell::Cell::new(None);
    /// let app = |_: &mut Context, request: &Request<'_>, _: &mut Reply<'_>| {
    ///     # held.set(Some(request.exchange.connection()));
    ///     Outcome::Held { tag: 0, timeout: None }
    /// };
    /// let mut event_loop = EventLoop::new()?;
    /// let mut driver = HttpDriver::new(Limits::default(), app);
    /// let address = driver.listen(event_loop.context(), ([127, 0, 0, 1], 0).into())?;
    /// # let mut client = std::net::TcpStream::connect(address)?;
    /// # client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
    /// # while held.get().is_none() {
    /// #     event_loop.turn(&mut driver, None)?;
    /// # }
    /// # let connection = held.get().expect("it has come");
    /// // ... turns, until a client has waited too long:
    /// let HttpDriver { http, app } = &mut driver;
    /// assert!(http.cut(event_loop.context(), connection, app));
    /// assert!(!http.contains(connection));
    /// # let error = client.read(&mut [0]).unwrap_err();
    /// # assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cut<A: App>(&mut self, context: &mut Context, connection: Token, app: &mut A) -> bool {
        if self.is_stream(connection) {
            return self.cut_stream(context, connection, app);
        }
        let Some(entry) = self.connections.get(connection) else {
            return false;
        };
        entry.peer.stream.reset_on_drop();
        self.settle(context, connection, Some(Fate::Close), app);
        true
    }

    /// Resets a connection at once; its queued output is lost. Returns false if it was gone. The
    /// app is not called.
    pub fn abort_connection(&mut self, context: &mut Context, connection: Token) -> bool {
        let connection = self.forget(context, connection);
        if let Some(connection) = &connection {
            connection.peer.stream.reset_on_drop();
        }
        connection.is_some()
    }
}

/// Answers to many at once, which are gathered and sent by one system call.
impl Http {
    /// Gathers from now on what [`with_reply`](Self::with_reply) is given for held exchanges, if
    /// `count` of them are worth it and the loop has [`Sends`](dwell_evloop::Sends), until it is
    /// [sent](Self::send_gathered).
    ///
    /// Shape: for one callback of the driver, which ends with that.
    ///
    /// ```
    /// use dwell_engine::{Body, ExchangeId, Http, SharedFields};
    /// use dwell_evloop::{Context, Sends};
    ///
    /// /// Answers all who wait, by few system calls where the loop was given `Sends`.
    /// fn tell(http: &mut Http, context: &mut Context, waiting: &[ExchangeId]) {
    ///     let fields = SharedFields::new(200, &[]);
    ///     http.gather(context, waiting.len());
    ///     for exchange in waiting {
    ///         http.with_reply(context, *exchange, |reply| {
    ///             reply.send_shared(&fields, &Body::Slice(b"news"));
    ///         });
    ///     }
    ///     http.send_gathered(context);
    /// }
    /// #
    /// # let answer = dwell_testkit::hold_once(|http, context, exchange| {
    /// #     context.set_sends(Some(Sends::default()));
    /// #     tell(http, context, &[exchange]);
    /// # });
    /// # assert!(answer.ends_with("\r\n\r\nnews"), "{answer}");
    /// ```
    pub fn gather(&mut self, context: &mut Context, count: usize) {
        fan_out::begin(self, context, count);
    }

    /// Sends what was gathered, and gathers no longer.
    pub fn send_gathered(&mut self, context: &mut Context) {
        fan_out::end(self, context);
    }
}

impl FanOut for Http {
    fn kind(&self) -> u8 {
        self.kinds.connection
    }

    fn stream(&self, token: Token) -> Option<&Stream> {
        Some(&self.connections.get(token)?.peer.stream)
    }

    fn mark(&mut self, token: Token) -> Option<&mut bool> {
        Some(&mut self.connections.get_mut(token)?.is_gathered)
    }

    fn refused(&mut self, context: &mut Context, token: Token, rest: &[u8]) {
        if let Some(mut visit) = self.visit(context, token, &mut ()) {
            visit.refused(rest);
        }
    }
}
