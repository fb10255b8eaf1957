//! The component: its table of connections, and what the driver and the app ask of it.

mod accept;
mod requests;
mod visit;

use crate::app::{App, ExchangeId};
use crate::connection::{Connection, Phase};
use crate::date::DateCache;
use crate::limits::Limits;
use crate::reply::Response;
use dwell_evloop::{Context, INPUT_BYTES, Listener, Readiness, Slab, Token};
use std::net::SocketAddr;
use std::time::Duration;
use visit::{Fate, Visit};

/// The token kinds a component uses; no other component of the loop may use them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kinds {
    /// Of listeners.
    pub listener: u8,
    /// Of connections.
    pub connection: u8,
}

/// An HTTP/1.1 server on one loop.
#[derive(Debug)]
pub struct Http {
    kinds: Kinds,
    limits: Limits,
    listeners: Slab<Listener>,
    connections: Slab<Connection>,
    date: DateCache,
    draining: bool,
}

impl Http {
    /// Makes a component without listeners.
    ///
    /// # Panics
    /// When `limits.head.head_bytes_max` is not below the loop's input buffer, [`INPUT_BYTES`]:
    /// a head is parsed in one piece.
    pub fn new(kinds: Kinds, limits: Limits) -> Self {
        assert!(
            limits.head.head_bytes_max < INPUT_BYTES,
            "a head must fit the input buffer"
        );
        Self {
            kinds,
            limits,
            listeners: Slab::new(kinds.listener, accept::LISTENERS_MAX),
            connections: Slab::new(kinds.connection, limits.connections_max),
            date: DateCache::default(),
            draining: false,
        }
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
        let visit = self.visit(context, token, app);
        let fate = visit.map(|mut visit| visit.ready(readiness));
        self.settle(context, token, fate, app);
    }

    /// The deadline of a token of this component has passed.
    pub fn expired<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        if token.kind() == self.kinds.listener {
            self.accept(context, token, app);
            return;
        }
        let visit = self.visit(context, token, app);
        let fate = visit.map(|mut visit| visit.expired());
        self.settle(context, token, fate, app);
    }

    /// Sends the answer to a held exchange; false when nobody waits for it any more.
    pub fn answer(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        response: &Response<'_>,
    ) -> bool {
        if !self.is_held(exchange) {
            return false;
        }
        let (token, mut nobody) = (exchange.token, ());
        let visit = self.visit(context, token, &mut nobody);
        let fate = visit.map(|mut visit| visit.answer(response));
        if fate == Some(Fate::Close) {
            self.forget(context, token);
        }
        true
    }

    /// Whether the answer to `exchange` is still owed and waited for.
    pub fn is_held(&self, exchange: ExchangeId) -> bool {
        self.held(exchange).is_some()
    }

    /// Changes the tag and the timeout of a held exchange; false when nobody waits any more.
    ///
    /// Shape: a new hold: [`App::peer_closed`] is asked again of a peer that has ended its side.
    pub fn hold(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        timeout: Option<Duration>,
    ) -> bool {
        if !self.is_held(exchange) {
            return false;
        }
        if let Some(connection) = self.connections.get_mut(exchange.token) {
            connection.hold(tag);
            visit::arm_hold(context, exchange.token, timeout);
            if connection.is_peer_closed() {
                context.again(exchange.token, Readiness::default());
            }
        }
        true
    }

    /// The client's address of a held exchange.
    pub fn peer_address(&self, exchange: ExchangeId) -> Option<SocketAddr> {
        self.held(exchange)?.stream.peer_address().ok().flatten()
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
            connection.phase == Phase::Held && connection.sequence == exchange.sequence
        })
    }

    /// One connection with all that acting on it needs; `None` where it is gone.
    fn visit<'v, A>(
        &'v mut self,
        context: &'v mut Context,
        token: Token,
        app: &'v mut A,
    ) -> Option<Visit<'v, A>> {
        let connection = self.connections.get_mut(token)?;
        let start = self.date.at(context.unix_seconds(), context.wall());
        Some(Visit {
            context,
            app,
            connection,
            token,
            limits: &self.limits,
            start,
            draining: self.draining,
        })
    }

    /// Closes a connection whose visit ended so; whoever still owes it an answer is told.
    fn settle<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        fate: Option<Fate>,
        app: &mut A,
    ) {
        if fate == Some(Fate::Close)
            && let Some(connection) = self.forget(context, token)
            && connection.phase == Phase::Held
        {
            app.abandoned(context, connection.exchange(token), connection.tag);
        }
    }

    fn forget(&mut self, context: &mut Context, token: Token) -> Option<Connection> {
        context.disarm(token);
        self.connections.remove(token)
    }
}
