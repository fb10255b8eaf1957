//! Connections of HTTP/2: their sessions and streams beside the table of connections.
//!
//! A connection that begins with the preface, or has agreed on HTTP/2 under TLS, stays in the
//! table, in the phase `Http2`, and has a [`Session`](session::Session) from then on. Each request
//! is a [`Stream`](stream::Stream) in a table of its own, whose token names the exchange and its
//! deadline. Frames become calls of the app in `frames`, `requests` and `bodies`; what the app
//! gives waits in an [`Outflow`] until `writing` gives the stream its turn.

mod answers;
mod bodies;
mod calm;
mod figures;
mod frames;
mod head;
#[cfg(feature = "sim")]
mod load;
mod outflow;
mod requests;
mod serve;
mod session;
mod stream;
mod tables;
mod tunnels;
mod unread;
mod waiting;
mod work;
mod writing;

use super::moving::Leaving;
use super::visit;
use super::{Beside, Http, Origins};
use crate::Detached;
use crate::app::{App, ExchangeId, Outcome, Request};
use crate::connection::Phase;
use crate::reply::Reply;
use answers::Given;
use dwell_evloop::{Context, Readiness, Token};
use dwell_proto::http2::{ErrorCode, SectionLimits};
use serve::{Ends, Fate, Serve};
use session::Session;
use std::time::{Duration, Instant};
use stream::Stream;
use tables::Tables;

pub use figures::{CodeCounts, Http2Figures, StreamRefusals};
#[cfg(feature = "sim")]
pub use load::Http2Load;
pub(crate) use outflow::Outflow;
pub use work::UnderWay;
pub(crate) use work::Work;

/// The ways in which a client may come to speak HTTP/2.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ways {
    /// Without TLS, by beginning with the preface (h2c).
    pub(super) by_preface: bool,
    /// Under TLS, by ALPN.
    pub(super) by_tls: bool,
}

/// The part of a component that speaks HTTP/2.
#[derive(Debug)]
pub(super) struct Http2 {
    kind: u8,
    pub(super) ways: Ways,
    tables: Tables,
    /// By the places of their connections.
    sessions: Vec<Option<Box<Session>>>,
}

impl Beside {
    pub(super) fn ways(&self) -> Ways {
        let http2 = self.http2.as_ref();
        http2.map(|http2| http2.ways).unwrap_or_default()
    }
}

impl Http {
    /// Serves clients without TLS that begin with the preface of HTTP/2, too. Streams have tokens
    /// of this kind, which no other component uses.
    ///
    /// Shape: an exchange on a stream is answered, held and ended as one of HTTP/1.1 is. Its
    /// connection cannot leave the component: [`Outcome::Detach`](crate::Outcome::Detach) and
    /// [`Reply::verbatim`](crate::Reply::verbatim) end the stream by `HTTP_1_1_REQUIRED`.
    ///
    /// ```
    /// use dwell_engine::{Http, Kinds, Limits};
    ///
    /// let kinds = Kinds { listener: 0, connection: 1 };
    /// let http = Http::new(kinds, Limits::default()).speak_h2c(2);
    /// assert_eq!(http.connections(), 0);
    /// ```
    #[must_use]
    pub fn speak_h2c(mut self, stream_kind: u8) -> Self {
        self.speak(stream_kind).by_preface = true;
        self
    }

    /// Serves clients that have agreed on HTTP/2 under TLS, as a listener with an
    /// [acceptor](dwell_evloop::Acceptor) that offers it lets them.
    ///
    /// Shape: as [`speak_h2c`](Self::speak_h2c), with which it may be combined; the kind is the
    /// same then. Without it such a client is taken to speak HTTP/1.1, and is refused.
    ///
    /// ```
    /// use dwell_engine::{Http, Kinds, Limits};
    /// use dwell_evloop::{Acceptor, Listener};
    ///
    /// /// Lets clients speak HTTP/2 or HTTP/1.1, under TLS alone.
    /// fn offer_both(http: Http, listener: &mut Listener, acceptor: &Acceptor) -> Http {
    ///     listener.secure(acceptor.with_http2());
    ///     http.speak_http2(2)
    /// }
    /// #
    /// # let any = ([127, 0, 0, 1], 0).into();
    /// # let mut listener = dwell_evloop::bind_group(any, 1, Default::default())?.remove(0);
    /// # let http = Http::new(Kinds { listener: 0, connection: 1 }, Limits::default());
    /// # let acceptor = Acceptor::new(Vec::new(), 1000);
    /// # assert_eq!(offer_both(http, &mut listener, &acceptor).connections(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn speak_http2(mut self, stream_kind: u8) -> Self {
        self.speak(stream_kind).by_tls = true;
        self
    }

    fn speak(&mut self, stream_kind: u8) -> &mut Ways {
        let http2 = self.beside.http2.get_or_insert_with(|| {
            Box::new(Http2 {
                kind: stream_kind,
                ways: Ways::default(),
                tables: Tables::new(stream_kind),
                sessions: Vec::new(),
            })
        });
        &mut http2.ways
    }

    /// Lets streams of HTTP/2 leave HTTP for WebSocket by an extended CONNECT (RFC 8441), which is
    /// announced to clients.
    ///
    /// Shape: it comes to the app as the request for an upgrade that it would be in HTTP/1.1, and
    /// is accepted as that is, by a 101 and [`Outcome::Detach`](crate::Outcome::Detach), or by
    /// [`detach`](Self::detach). The stream that leaves is [carried](dwell_evloop::Carrier) by the
    /// connection. The driver gives [`ready`](Self::ready) the events of streams' tokens, too. To
    /// be called behind those that let clients speak HTTP/2.
    ///
    /// ```
    /// use dwell_engine::{Http, Kinds, Limits};
    ///
    /// let kinds = Kinds { listener: 0, connection: 1 };
    /// let http = Http::new(kinds, Limits::default()).speak_h2c(2).take_connect();
    /// assert_eq!(http.connections(), 0);
    /// ```
    #[must_use]
    pub fn take_connect(mut self) -> Self {
        if let Some(http2) = &mut self.beside.http2 {
            http2.tables.takes_connect = true;
        }
        self
    }

    /// Takes note that the driver has counted the streams that have left, for
    /// [`App::stream_may_leave`]: [`Limits`](crate::Limits) bounds fewer connections by that. Until
    /// then they are counted here.
    ///
    /// ```
    /// use dwell_engine::{Http, Limits};
    ///
    /// /// At the end of each turn of a driver whose WebSockets count as connections.
    /// fn count(http: &mut Http, web_sockets: usize, connections_max: usize) {
    ///     http.counted_left();
    ///     http.set_limits(Limits {
    ///         connections_max: connections_max.saturating_sub(web_sockets),
    ///         ..Limits::default()
    ///     });
    /// }
    /// #
    /// # let kinds = dwell_engine::Kinds { listener: 0, connection: 1 };
    /// # let mut http = Http::new(kinds, Limits::default()).speak_h2c(2).take_connect();
    /// # count(&mut http, 3, 10);
    /// # assert_eq!(http.connections(), 0);
    /// ```
    pub fn counted_left(&mut self) {
        if let Some(http2) = &mut self.beside.http2 {
            http2.tables.leaves.left = 0;
        }
    }

    /// The most that any connection of HTTP/2 keeps, of either.
    ///
    /// ```
    /// use dwell_engine::{Http, Http2Load, Kinds, Limits};
    ///
    /// let kinds = Kinds { listener: 0, connection: 1 };
    /// let http = Http::new(kinds, Limits::default()).speak_h2c(2);
    /// assert_eq!(http.http2_load(), Http2Load::default());
    /// ```
    #[cfg(feature = "sim")]
    pub fn http2_load(&self) -> Http2Load {
        let http2 = self.beside.http2.as_deref();
        http2.map(Http2::load).unwrap_or_default()
    }

    /// The figures of HTTP/2, where that is spoken.
    pub fn http2_figures(&self) -> Option<&Http2Figures> {
        let http2 = self.beside.http2.as_deref();
        http2.map(|http2| &http2.tables.figures)
    }

    /// Returns true if the token is one of a stream.
    pub(crate) fn is_stream(&self, token: Token) -> bool {
        let http2 = self.beside.http2.as_deref();
        http2.is_some_and(|http2| http2.kind == token.kind())
    }

    /// Returns true for a connection that speaks HTTP/2.
    pub(crate) fn is_http2(&self, connection: Token) -> bool {
        // Until one speaks it, no connection is looked for at each readiness.
        let http2 = self.beside.http2.as_ref();
        http2.is_some_and(|http2| !http2.sessions.is_empty())
            && self
                .connections
                .get(connection)
                .is_some_and(|connection| connection.exchange.phase == Phase::Http2)
    }

    /// The streams that keep parts of bodies, or bytes without a reader, and since when.
    pub(super) fn stream_bodies(&self) -> impl Iterator<Item = (Instant, Token)> + '_ {
        let http2 = self.beside.http2.as_deref();
        let tables = http2.map(|http2| &http2.tables);
        tables.into_iter().flat_map(|tables| {
            let streams = &tables.streams;
            let since = |token| Some((streams.get(token)?.keeps_since()?, token));
            let gathered = streams.tokens().filter_map(since);
            gathered.chain(tables.unread.since())
        })
    }

    /// Drops the body on a stream.
    pub(super) fn shed_stream<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        if let Some(connection) = self.stream(token).map(|stream| stream.connection) {
            self.visit_http2(context, connection, app, |serve| serve.shed(token));
        }
    }

    /// Ends a stream, and tells the app; false if there is no such stream.
    pub(super) fn cut_stream<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        app: &mut A,
    ) -> bool {
        let Some(connection) = self.stream(token).map(|stream| stream.connection) else {
            return false;
        };
        self.visit_http2(context, connection, app, |serve| serve.cut(token));
        true
    }

    pub(super) fn stream(&self, token: Token) -> Option<&Stream> {
        self.beside.http2.as_deref()?.tables.streams.get(token)
    }

    /// The stream of an exchange whose answer is owed.
    pub(super) fn held_stream(&self, exchange: ExchangeId) -> Option<&Stream> {
        let stream = self.stream(exchange.token)?;
        let is_it = stream.exchange.is_held() && stream.exchange.sequence == exchange.sequence;
        (is_it && !stream.is_doomed()).then_some(stream)
    }

    /// One connection with all that acting on it needs.
    fn serve<A, T>(
        &mut self,
        context: &mut Context,
        token: Token,
        app: &mut A,
        act: impl FnOnce(&mut Serve<'_, A>) -> T,
    ) -> Option<T> {
        let http2 = self.beside.http2.as_deref_mut()?;
        http2.tables.leaves.connections = (self.connections.len(), self.limits.connections_max);
        let connection = self.connections.get_mut(token)?;
        let session = http2.sessions.get_mut(token.index() as usize)?;
        let session = session.as_deref_mut()?;
        let origins = Origins::new(self.beside.peers.as_ref(), self.beside.labels.as_ref());
        let start = self.date.at(context.unix_seconds(), context.wall());
        let ends = match self.leaving {
            Leaving::No if self.draining => Ends::Here,
            Leaving::No => Ends::No,
            _ => Ends::Elsewhere,
        };
        Some(act(&mut Serve {
            context,
            app,
            connection,
            token,
            session,
            tables: &mut http2.tables,
            limits: &self.limits,
            start,
            waits: self.waits,
            ends,
            accounts: &self.accounts,
            origins,
            begun: false,
            written: 0,
            served: false,
        }))
    }

    /// The preface has come, or was agreed on.
    pub(super) fn begin_http2<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        let limits = SectionLimits {
            section_bytes_max: self.limits.head.head_bytes_max,
            field_count_max: self.limits.head.field_count_max,
        };
        let (Some(http2), Some(connection)) = (
            self.beside.http2.as_deref_mut(),
            self.connections.get_mut(token),
        ) else {
            return;
        };
        let session = Session::new(limits, http2.tables.takes_connect, context.tick());
        connection.exchange.phase = Phase::Http2;
        let place = token.index() as usize;
        if place >= http2.sessions.len() {
            http2.sessions.resize_with(place + 1, || None);
        }
        http2.sessions[place] = Some(Box::new(session));
        http2.tables.figures.connections += 1;
        let first = self.waits.first_request_timeout;
        context.arm(token, first.unwrap_or(self.limits.idle_timeout));
        // While connections go over to another process, this one stays, and ends here.
        if self.draining || self.leaving != Leaving::No {
            self.drain_http2(context, token, app);
        }
        self.http2_ready(context, token, Readiness::default(), app);
    }

    pub(super) fn http2_ready<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        app: &mut A,
    ) {
        self.visit_http2(context, token, app, |serve| serve.ready(readiness));
    }

    /// The owner of a stream that has left HTTP has done something.
    pub(super) fn tunnel_ready<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        app: &mut A,
    ) {
        let Some(connection) = self.stream(token).map(|stream| stream.connection) else {
            return;
        };
        self.visit_http2(context, connection, app, |serve| serve.carry(token));
    }

    /// Takes the stream of a held exchange out of HTTP; `None` where it cannot leave, and is reset.
    pub(super) fn detach_stream(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
    ) -> Option<Detached> {
        if self.held_stream(exchange)?.carrier.is_none() {
            self.abort_stream(context, exchange, ErrorCode::HTTP_1_1_REQUIRED);
            return None;
        }
        let connection = self.stream(exchange.token)?.connection;
        let switch = |serve: &mut Serve<'_, ()>| serve.switch(exchange.token);
        self.serve(context, connection, &mut (), switch)?
    }

    /// The deadline of a connection, or of a stream, has passed.
    pub(super) fn http2_expired<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        app: &mut A,
    ) {
        let connection = match self.stream(token) {
            Some(stream) => stream.connection,
            None => token,
        };
        self.visit_http2(context, connection, app, |serve| {
            if connection == token {
                serve.expired()
            } else {
                serve.stream_expired(token)
            }
        });
    }

    /// Notes streams that end from now on, for an owner that takes them after each callback.
    pub(crate) fn note_ended_streams(&mut self) {
        if let Some(http2) = &mut self.beside.http2 {
            http2.tables.ended = Some(Vec::new());
        }
    }

    /// Returns true if streams have ended that were not taken yet.
    pub(crate) fn has_ended_streams(&self) -> bool {
        let http2 = self.beside.http2.as_deref();
        let ended = http2.and_then(|http2| http2.tables.ended.as_ref());
        ended.is_some_and(|ended| !ended.is_empty())
    }

    /// Takes the streams that have ended since the last call.
    pub(crate) fn take_ended_streams(&mut self) -> Vec<Token> {
        let http2 = self.beside.http2.as_deref_mut();
        let ended = http2.and_then(|http2| http2.tables.ended.as_mut());
        ended.map(std::mem::take).unwrap_or_default()
    }

    /// Ends a connection behind what was written on it, without telling an app. Returns false if
    /// it is gone by that.
    pub(crate) fn end_http2_untold(&mut self, context: &mut Context, token: Token) -> bool {
        self.end_http2(context, token, &mut Nobody);
        self.connections.get(token).is_some()
    }

    /// Lets the streams of a connection finish, and no others begin. Returns false if it is gone by
    /// that.
    pub(crate) fn drain_http2_untold(&mut self, context: &mut Context, token: Token) -> bool {
        self.drain_http2(context, token, &mut Nobody);
        self.connections.get(token).is_some()
    }

    /// Ends a connection behind what was written on it, and tells the app of what it owes there.
    pub(crate) fn end_http2<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        let end = |serve: &mut Serve<'_, A>| serve.fail(ErrorCode::NO_ERROR);
        self.visit_http2(context, token, app, end);
    }

    pub(super) fn drain_http2<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        let drain = |serve: &mut Serve<'_, A>| serve.drain();
        self.visit_http2(context, token, app, drain);
    }

    /// Acts on a connection, and on what that means for it.
    fn visit_http2<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        app: &mut A,
        act: impl FnOnce(&mut Serve<'_, A>) -> Fate,
    ) {
        let fate = self.serve(context, token, app, |serve| {
            let fate = act(serve);
            serve.visited(fate)
        });
        match fate {
            None | Some(Fate::Keep) => {}
            Some(Fate::Close) => self.settle(context, token, Some(visit::Fate::Close), app),
            Some(Fate::Finish) => {
                self.end_session(context, token, app);
                let visit = self.visit(context, token, app);
                let fate = visit.map(|mut visit| visit.finish());
                self.settle(context, token, fate, app);
            }
        }
    }

    /// Ends the session of a connection, and tells the app of what it owes there.
    pub(super) fn end_session<A: App>(
        &mut self,
        context: &mut Context,
        connection: Token,
        app: &mut A,
    ) {
        for (token, stream) in self.take_session(context, connection) {
            if stream.exchange.is_held() {
                let id = stream.exchange_id(token);
                app.abandoned(context, id, stream.exchange.tag());
            }
        }
    }

    /// Takes the session of a connection out, if it has one; returns its streams.
    pub(super) fn take_session(
        &mut self,
        context: &mut Context,
        connection: Token,
    ) -> Vec<(Token, Stream)> {
        if !self.is_http2(connection) {
            return Vec::new();
        }
        let Some(http2) = self.beside.http2.as_deref_mut() else {
            return Vec::new();
        };
        let place = http2.sessions.get_mut(connection.index() as usize);
        let Some(session) = place.and_then(Option::take) else {
            return Vec::new();
        };
        let take = |token| {
            context.disarm(token);
            Some((token, http2.tables.remove(token)?))
        };
        let streams = session.streams().filter_map(take).collect();
        http2.tables.figures.connections -= 1;
        streams
    }

    /// As [`with_reply`](Self::with_reply), on a stream.
    pub(super) fn with_framed_reply<T>(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        make: impl FnOnce(&mut Reply<'_>) -> T,
    ) -> Option<T> {
        let token = exchange.token;
        let connection = self.held_stream(exchange)?.connection;
        self.serve(context, connection, &mut (), |serve| {
            let (result, given) = serve.with_reply(token, |_, (), reply| make(reply))?;
            match given {
                Given::Nothing | Given::Open => {}
                Given::Whole => serve.complete(token),
                Given::Reset(code) => serve.doom(token, code),
            }
            // What it was given is written in the next turn.
            serve.context.again(connection, Readiness::default());
            Some(result)
        })?
    }

    pub(super) fn hold_stream(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        timeout: Option<Duration>,
    ) -> bool {
        let Some(stream) = self.held_stream(exchange) else {
            return false;
        };
        let connection = stream.connection;
        let hold = |serve: &mut Serve<'_, ()>| serve.hold(exchange.token, tag, timeout);
        self.serve(context, connection, &mut (), hold).is_some()
    }

    /// Ends the stream of a held exchange at once. Returns false if the exchange has ended.
    pub(crate) fn abort_stream(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        code: ErrorCode,
    ) -> bool {
        self.held_stream(exchange).is_some() && self.reset_stream(context, exchange.token, code)
    }

    /// Ends a stream at once, whatever is left of its answer. Returns false if it has ended.
    pub(crate) fn reset_stream(
        &mut self,
        context: &mut Context,
        token: Token,
        code: ErrorCode,
    ) -> bool {
        let Some(connection) = self.stream(token).map(|stream| stream.connection) else {
            return false;
        };
        let reset = |serve: &mut Serve<'_, ()>| serve.reset(token, code);
        let result = self.serve(context, connection, &mut (), reset);
        let is_too_much = matches!(result, Some(Err(_)));
        let readiness = if is_too_much {
            Readiness::HANGUP
        } else {
            Readiness::default()
        };
        context.again(connection, readiness);
        true
    }
}

/// The app of a connection whose own app is not called.
#[derive(Debug)]
struct Nobody;

impl App for Nobody {
    fn request(&mut self, _: &mut Context, _: &Request<'_>, _: &mut Reply<'_>) -> Outcome {
        Outcome::Close
    }
}
