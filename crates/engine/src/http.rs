//! The component: its table of connections, and its operations for the driver and the app.

mod accept;
mod bodies;
mod connections;
mod driver;
mod exchange;
mod http2;
mod listener_labels;
mod moving;
mod origins;
mod peers;
mod preface;
mod requests;
mod shedding;
mod visit;

use crate::Detached;
use crate::app::{App, ExchangeId};
use crate::budget::Budget;
use crate::connection::{Connection, Phase};
use crate::date::DateCache;
use crate::fan_out;
use crate::limits::{Limits, Waits};
use crate::reply::{Reply, Response};
use dwell_evloop::{Context, INPUT_BYTES, Listeners, LoopOutput, Readiness, Slab, Token};
use dwell_proto::http2::ErrorCode;
use listener_labels::ListenerLabels;
use moving::Leaving;
use shedding::Overload;
use std::time::Duration;
use visit::{Fate, Visit};

pub use driver::HttpDriver;
#[cfg(feature = "sim")]
pub use http2::Http2Load;
pub use http2::{CodeCounts, Http2Figures, StreamRefusals, UnderWay};
pub(crate) use http2::{Outflow, Work};
pub(crate) use origins::{Origin, Origins};
use peers::Peers;

/// The token kinds a component uses; no other component of the loop may use them.
///
/// ```
/// use dwell_engine::Kinds;
///
/// // Two components of one driver share no kind.
/// let public = Kinds { listener: 0, connection: 1 };
/// let admin = Kinds { listener: 2, connection: 3 };
/// assert_ne!(public, admin);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kinds {
    /// The kind of listeners.
    pub listener: u8,
    /// The kind of connections.
    pub connection: u8,
}

/// The tables beside that of the connections.
#[derive(Debug, Default)]
struct Beside {
    /// The addresses of the clients, if they are kept.
    peers: Option<Peers>,
    /// The labels of listeners, if these have some.
    labels: Option<ListenerLabels>,
    /// Sessions and streams, if HTTP/2 is spoken.
    http2: Option<Box<http2::Http2>>,
}

impl Beside {
    /// The origins of connections.
    fn origins(&self) -> Origins<'_> {
        Origins::new(self.peers.as_ref(), self.labels.as_ref())
    }
}

/// The accounts of what all connections hold.
#[derive(Debug, Default)]
struct Accounts {
    /// Output that their clients do not take.
    output: Option<LoopOutput>,
    /// Long input behind held requests.
    held_input: Budget,
    /// Unfinished requests, and as much as has come of their bodies.
    gathered: Budget,
}

/// A server of HTTP/1.1 and HTTP/2 on one loop.
///
/// ```
/// use dwell_engine::{App, BodyPlan, ExchangeId, Http, Kinds, Limits, Outcome, Reply, Request};
/// use dwell_evloop::{
///     Context, Driver, EventLoop, ListenOptions, Readiness, Stream, Token, bind_group,
/// };
/// use dwell_proto::http1::RequestHead;
/// use std::io::{Read, Write};
///
/// struct Hello;
/// impl App for Hello {
///     fn request(&mut self, _: &mut Context, _: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
///         reply.close_after();
///         reply.text(200, "hello");
///         Outcome::Answered
///     }
///     fn closed(&mut self, context: &mut Context, _: Token) {
///         context.stop();
///     }
/// }
///
/// struct Server(Http);
/// impl Driver for Server {
///     type Message = ();
///     fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
///         self.0.ready(context, token, readiness, &mut Hello);
///     }
///     fn expired(&mut self, context: &mut Context, token: Token) {
///         self.0.expired(context, token, &mut Hello);
///     }
///     fn message(&mut self, _: &mut Context, (): ()) {}
/// }
///
/// let mut event_loop = EventLoop::new()?;
/// let kinds = Kinds { listener: 0, connection: 1 };
/// let mut server = Server(Http::new(kinds, Limits::default()));
/// for listener in bind_group(([127, 0, 0, 1], 0).into(), 1, ListenOptions::default())? {
///     let address = server.0.listen(event_loop.context(), listener)?;
///     let mut client = std::net::TcpStream::connect(address.expect("it is no unix socket"))?;
///     client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
///     event_loop.run(&mut server)?;
///     let mut answer = String::new();
///     client.read_to_string(&mut answer)?;
///     assert!(answer.ends_with("\r\n\r\nhello\n"));
/// }
/// assert_eq!(server.0.connections(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Http {
    kinds: Kinds,
    limits: Limits,
    listeners: Listeners,
    connections: Slab<Connection>,
    /// Connections of the batch that is being accepted, of which nothing was read yet.
    unread: Vec<Token>,
    date: DateCache,
    pub(crate) draining: bool,
    /// Requests that have not begun are another process's.
    leaving: Leaving,
    pub(crate) waits: Waits,
    accounts: Accounts,
    overload: Overload,
    beside: Beside,
}

impl Http {
    /// Makes a component without listeners.
    ///
    /// # Panics
    /// When `limits.head.head_bytes_max` is not below the loop's input buffer, [`INPUT_BYTES`]:
    /// a head is parsed in one piece.
    pub fn new(kinds: Kinds, limits: Limits) -> Self {
        Self::with_input_bytes(kinds, limits, INPUT_BYTES)
    }

    /// Makes a component as [`new`](Self::new) does, for a loop whose input buffer has this size.
    pub(crate) fn with_input_bytes(kinds: Kinds, limits: Limits, input_bytes: usize) -> Self {
        assert!(
            limits.head.head_bytes_max < input_bytes,
            "a head must fit the input buffer"
        );
        Self {
            kinds,
            limits,
            listeners: Listeners::new(kinds.listener, accept::LISTENERS_MAX),
            connections: Slab::new(kinds.connection, limits.connections_max),
            unread: Vec::new(),
            date: DateCache::default(),
            draining: false,
            leaving: Leaving::No,
            waits: Waits::default(),
            accounts: Accounts::default(),
            overload: Overload::default(),
            beside: Beside::default(),
        }
    }

    /// Accounts from now on for what the connections hold because their clients do not take it.
    ///
    /// ```
    /// use dwell_engine::{Http, Kinds, Limits};
    /// use dwell_evloop::{LoopOutput, OutputLedger};
    /// use std::sync::Arc;
    ///
    /// let ledger = Arc::new(OutputLedger::default());
    /// let mut http = Http::new(Kinds { listener: 1, connection: 2 }, Limits::default());
    /// http.account(LoopOutput::new(Arc::clone(&ledger), 0));
    /// assert_eq!(ledger.bytes(), 0);
    /// ```
    pub fn account(&mut self, output: LoopOutput) {
        self.accounts.output = Some(output);
    }

    /// Counts what is gathered of bodies together with the other components that are given this:
    /// the bound, [`Limits::gathered_bytes_max`], is then one for all of them.
    ///
    /// Shape: what was gathered before stays with the count that it began with. See [`Budget`] for
    /// an example.
    pub fn share_gathered(&mut self, gathered: Budget) {
        self.accounts.gathered = gathered;
    }

    /// Goes by other limits from now on, but for those of heads, which stay.
    ///
    /// Shape: deadlines that run are not moved, and connections beyond a lowered limit stay open.
    ///
    /// ```
    /// use dwell_engine::{Http, Kinds, Limits};
    /// use std::time::Duration;
    ///
    /// let kinds = Kinds { listener: 0, connection: 1 };
    /// let mut http = Http::new(kinds, Limits::default());
    /// let idle_timeout = Duration::from_secs(5);
    /// http.set_limits(Limits { idle_timeout, ..Limits::default() });
    /// ```
    pub fn set_limits(&mut self, limits: Limits) {
        let head = self.limits.head;
        self.limits = Limits { head, ..limits };
        self.connections.set_capacity_max(limits.connections_max);
    }

    /// Connections open now.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// A socket of this component is ready.
    pub fn ready<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        app: &mut A,
    ) {
        if token.kind() == self.kinds.listener {
            self.accept(context, token, app);
            return;
        }
        self.shed_bodies(context, app);
        if self.is_stream(token) {
            return self.tunnel_ready(context, token, app);
        }
        if self.is_http2(token) {
            return self.http2_ready(context, token, readiness, app);
        }
        let visit = self.visit(context, token, app);
        let fate = visit.map(|mut visit| visit.ready(readiness));
        self.settle(context, token, fate, app);
        if let Some(Fate::Shake(at_once_max)) = fate {
            self.handshake_began(context, token, at_once_max, app);
        }
    }

    /// The deadline of a token of this component has passed.
    pub fn expired<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        if token.kind() == self.kinds.listener {
            self.accept(context, token, app);
            return;
        }
        if self.is_stream(token) || self.is_http2(token) {
            return self.http2_expired(context, token, app);
        }
        let visit = self.visit(context, token, app);
        let fate = visit.map(|mut visit| visit.expired());
        self.settle(context, token, fate, app);
    }

    /// Sends the response to a held exchange. Returns false if the exchange has ended.
    pub fn answer(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        response: &Response<'_>,
    ) -> bool {
        self.with_reply(context, exchange, |reply| reply.send(response))
            .is_some()
    }

    /// Lets `make` write the response to a held exchange. Returns `None` if the exchange has ended.
    ///
    /// Shape: an answer that is complete ends the exchange; a streaming one that is open, or none,
    /// leaves it held as it was. The app gets no call for what it does here itself. If the
    /// connection has failed meanwhile, [`App::abandoned`] is called in the next turn, unless the
    /// answer was complete.
    ///
    /// ```
    /// use dwell_engine::{ExchangeId, Http, WriteError};
    /// use dwell_evloop::Context;
    ///
    /// /// Writes a line into a streaming answer; one whose client does not keep up is cut off.
    /// fn tell(http: &mut Http, context: &mut Context, exchange: ExchangeId, line: &str) {
    ///     let line = line.as_bytes();
    ///     let written = http.with_reply(context, exchange, |reply| reply.write(line));
    ///     if let Some(Err(WriteError::Full { .. })) = written {
    ///         http.abort(context, exchange);
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::stream_once(|http, context, exchange| {
    /// #     tell(http, context, exchange, "a line\n");
    /// # });
    /// # assert!(answer.ends_with("\r\n\r\na line\n"), "{answer}");
    /// ```
    pub fn with_reply<T>(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        make: impl FnOnce(&mut Reply<'_>) -> T,
    ) -> Option<T> {
        if self.is_stream(exchange.token) {
            return self.with_framed_reply(context, exchange, make);
        }
        self.held(exchange)?;
        let (token, mut nobody) = (exchange.token, ());
        let mut visit = self.visit(context, token, &mut nobody)?;
        let mut output = visit.context.take_output();
        let (result, delivery) = visit.with_reply(&mut output, |_, (), reply| make(reply));
        let fate = visit.delivered(delivery, output);
        if fate == Fate::Close && self.is_held(exchange) {
            context.again(token, Readiness::HANGUP);
        } else if fate == Fate::Close {
            self.forget(context, token);
        }
        fan_out::send_if_full(self, context);
        Some(result)
    }

    /// Lets `bytes` more of the streamed body of a held exchange come, as [`Reply::grant`] does.
    /// Returns false if the exchange has ended.
    ///
    /// ```
    /// use dwell_engine::{ExchangeId, Http};
    /// use dwell_evloop::Context;
    ///
    /// /// Another component has used up this much of a streamed body: as much more may come.
    /// fn used(http: &mut Http, context: &mut Context, exchange: ExchangeId, bytes: u64) {
    ///     if !http.grant(context, exchange, bytes) {
    ///         println!("its client has left");
    ///     }
    /// }
    /// #
    /// # dwell_testkit::hold_once(|http, context, exchange| {
    /// #     used(http, context, exchange, 64 * 1024);
    /// #     assert!(http.is_held(exchange));
    /// # });
    /// ```
    pub fn grant(&mut self, context: &mut Context, exchange: ExchangeId, bytes: u64) -> bool {
        self.with_reply(context, exchange, |reply| reply.grant(bytes))
            .is_some()
    }

    /// Takes the connection of a held exchange out of the component; `None` when it is gone.
    ///
    /// Shape: what is left of a streamed body goes with it, as it came; see
    /// [`Reply::has_unread_body`]. A connection of which input was not kept, as
    /// [`Limits::held_input_bytes_max`] has it, is not taken out, but closed.
    ///
    /// ```
    /// use dwell_engine::{ExchangeId, Http, Streams};
    /// use dwell_evloop::{Context, Token};
    ///
    /// /// Accepts an upgrade that was decided on elsewhere.
    /// fn upgrade(
    ///     http: &mut Http,
    ///     streams: &mut Streams,
    ///     context: &mut Context,
    ///     exchange: ExchangeId,
    /// ) -> Option<Token> {
    ///     let detached = http.detach(context, exchange)?;
    ///     let stream = streams.adopt(context, detached.stream, detached.input, 7).ok()?;
    ///     let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n";
    ///     streams.write(context, stream, head.as_bytes()).then_some(stream)
    /// }
    /// #
    /// # let answer = dwell_testkit::hold_once(|http, context, exchange| {
    /// #     let mut streams = Streams::new(2, 3, dwell_engine::StreamLimits::default());
    /// #     let stream = upgrade(http, &mut streams, context, exchange).expect("it waits");
    /// #     assert_eq!(stream.kind(), 3);
    /// # });
    /// # assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    /// ```
    pub fn detach(&mut self, context: &mut Context, exchange: ExchangeId) -> Option<Detached> {
        if self.is_stream(exchange.token) {
            return self.detach_stream(context, exchange);
        }
        if self.held(exchange)?.has_given_up_input() {
            context.again(exchange.token, Readiness::HANGUP);
            return None;
        }
        let connection = self.forget(context, exchange.token)?;
        Some(unregistered(context, connection))
    }

    /// Closes the connection of a held exchange at once; its queued output is lost. Returns false
    /// if the exchange has ended. The app is not called.
    pub fn abort(&mut self, context: &mut Context, exchange: ExchangeId) -> bool {
        if self.is_stream(exchange.token) {
            return self.abort_stream(context, exchange, ErrorCode::INTERNAL_ERROR);
        }
        self.is_held(exchange) && self.abort_connection(context, exchange.token)
    }

    /// Returns true if the response to `exchange` is still owed.
    pub fn is_held(&self, exchange: ExchangeId) -> bool {
        self.held(exchange).is_some() || self.held_stream(exchange).is_some()
    }

    /// Changes the tag and the timeout of a held exchange. Returns false if the exchange has ended.
    ///
    /// Shape: a new hold: [`App::peer_closed`] is asked again of a peer that has ended its side.
    ///
    /// ```
    /// use dwell_engine::{ExchangeId, Http};
    /// use dwell_evloop::Context;
    /// use std::time::Duration;
    ///
    /// /// Lets a client wait for another 25 seconds.
    /// fn prolong(http: &mut Http, context: &mut Context, exchange: ExchangeId, tag: u64) {
    ///     let from = http.peer_address(exchange);
    ///     assert!(http.client_names(exchange).is_none(), "it is not under TLS");
    ///     assert!(http.listener_label(exchange).is_none(), "its listener has no label");
    ///     if http.hold(context, exchange, tag, Some(Duration::from_secs(25))) {
    ///         println!("{from:?} waits on");
    ///     }
    /// }
    /// #
    /// # dwell_testkit::hold_once(|http, context, exchange| {
    /// #     prolong(http, context, exchange, 7);
    /// #     assert!(http.is_held(exchange));
    /// # });
    /// ```
    pub fn hold(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        timeout: Option<Duration>,
    ) -> bool {
        if self.is_stream(exchange.token) {
            return self.hold_stream(context, exchange, tag, timeout);
        }
        if !self.is_held(exchange) {
            return false;
        }
        let mut nobody = ();
        if let Some(mut visit) = self.visit(context, exchange.token, &mut nobody) {
            visit.hold(tag, timeout);
            if visit.connection.peer.has_ended() {
                visit.context.again(exchange.token, Readiness::default());
            }
        }
        true
    }

    /// Closes every connection that is left.
    pub fn close_all<A: App>(&mut self, context: &mut Context, app: &mut A) {
        let connections: Vec<_> = self.connections.tokens().collect();
        for token in connections {
            self.settle(context, token, Some(Fate::Close), app);
        }
    }

    fn held(&self, exchange: ExchangeId) -> Option<&Connection> {
        self.connections.get(exchange.token).filter(|connection| {
            connection.exchange.is_held() && connection.exchange.sequence == exchange.sequence
        })
    }

    /// One connection with all that acting on it needs; `None` where it is gone.
    fn visit<'v, A>(
        &'v mut self,
        context: &'v mut Context,
        token: Token,
        app: &'v mut A,
    ) -> Option<Visit<'v, A>> {
        fan_out::send_before(self, context, token);
        let connection = self.connections.get_mut(token)?;
        let start = self.date.at(context.unix_seconds(), context.wall());
        let stalled = connection.exchange.phase == Phase::Writing || connection.is_blocked();
        Some(Visit {
            context,
            app,
            connection,
            token,
            limits: &self.limits,
            start,
            draining: self.draining,
            leaving: self.leaving,
            waits: self.waits,
            served: false,
            received: 0,
            written: 0,
            stalled,
            scanned: 0,
            accounts: &self.accounts,
            origins: self.beside.origins(),
            ways: self.beside.ways(),
        })
    }

    /// Removes a connection whose visit ended so. Calls the app if a response is still owed.
    fn settle<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        fate: Option<Fate>,
        app: &mut A,
    ) {
        let tag = match fate {
            None | Some(Fate::Keep | Fate::Shake(_)) => return,
            Some(Fate::Switch) => return self.begin_http2(context, token, app),
            Some(Fate::Close) => None,
            Some(Fate::Detach(tag)) => Some(tag),
        };
        self.end_session(context, token, app);
        let Some(connection) = self.forget(context, token) else {
            return;
        };
        let exchange = connection.exchange_id(token);
        if let Some(tag) = tag {
            let detached = unregistered(context, connection);
            app.detached(context, exchange, tag, detached);
            return;
        }
        if connection.exchange.outgoing.ends_with_connection() {
            connection.peer.stream.reset_on_drop();
        }
        if connection.exchange.is_held() {
            app.abandoned(context, exchange, connection.exchange.tag());
        }
        app.closed(context, token);
    }

    fn forget(&mut self, context: &mut Context, token: Token) -> Option<Connection> {
        // Another connection may have the place.
        self.connections.get(token)?;
        fan_out::send_before(self, context, token);
        drop(self.take_session(context, token));
        context.disarm(token);
        if let Some(peers) = &mut self.beside.peers {
            peers.forget(token);
        }
        if let Some(labels) = &mut self.beside.labels {
            labels.forget(token);
        }
        self.connections.remove(token)
    }
}

/// Takes a socket off the loop, so that its next owner can register it under another token.
fn unregistered(context: &mut Context, connection: Connection) -> Detached {
    let is_registered = connection.is_registered;
    let mut detached = Detached::from(connection.peer);
    if is_registered {
        // It fails only for a socket that the loop has no registration of, which is as well.
        let _ = context.deregister(&mut detached.stream);
    }
    detached
}
