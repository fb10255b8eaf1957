//! The record of one proxied request.

use super::response::ProxiedResponse;
use super::upload::Upload;
use crate::log::{RequestFields, kept_fields};
use crate::responder::{Logged, Protocol, RequestLine, ResponseLog};
use dwell_engine::ExchangeId;
use dwell_evloop::{Context, Token};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A request on its way to the application, and the response on its way back.
#[derive(Debug)]
pub(super) struct ProxiedRequest {
    pub(super) client: Client,
    /// The exchange of the upstream client, once there is one.
    pub(super) connection: Option<Token>,
    pub(super) upload: Upload,
    pub(super) response: ProxiedResponse,
}

/// The client's side of a proxied request.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) exchange: ExchangeId,
    pub(super) arrived: Instant,
    /// The request's part of its line in the access log; absent if there is no log.
    pub(super) line: Option<Box<LoggedRequest>>,
    /// The request was held for a change.
    was_held: bool,
    /// The place of its route among the figures of routes.
    route_place: Option<usize>,
    /// The client has closed its sending side.
    is_half_closed: bool,
}

/// The parts of a proxied request that its line of the access log has.
#[derive(Debug)]
pub(super) struct LoggedRequest {
    pub(super) method: Box<str>,
    pub(super) target: Box<str>,
    pub(super) remote: Option<SocketAddr>,
    /// Headers of the request, as [`kept_fields`] keeps them.
    fields: Box<[u8]>,
    /// The prefix of the route, and the key, of a poll.
    route: Option<Box<str>>,
    key: Option<Box<[u8]>>,
    /// The server that responds, with the time to the head of its response.
    upstream: Option<(SocketAddr, Duration)>,
}

impl ProxiedRequest {
    /// Its line of the access log, if there is a log.
    pub(super) fn logged(&self) -> Option<Logged<'_>> {
        let Client { line, arrived, .. } = &self.client;
        let line = line.as_ref()?;
        Some(Logged {
            method: &line.method,
            target: &line.target,
            protocol: Protocol::of(self.client.exchange),
            remote: line.remote,
            arrived: *arrived,
            status: self.response.status(),
            bytes: self.response.sent(),
            outcome: self.response.outcome(),
            fields: RequestFields::of_head(&line.fields),
            route: line.route.as_deref(),
            key: line.key.as_deref(),
            upstream: line.upstream,
        })
    }

    /// The client has closed its sending side; returns true if it is to be probed.
    pub(super) fn half_close(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.client.is_half_closed, true);
        is_first && !self.response.has_begun()
    }

    /// True if a probe is to tell that the client is still there.
    pub(super) fn is_probed(&self) -> bool {
        self.client.is_half_closed && !self.response.has_begun()
    }
}

impl Client {
    pub(super) fn new(
        exchange: ExchangeId,
        arrived: Instant,
        line: Option<Box<LoggedRequest>>,
    ) -> Self {
        Self {
            exchange,
            arrived,
            line,
            was_held: false,
            route_place: None,
            is_half_closed: false,
        }
    }

    /// Notes the place of the figures of a poll's route, and whether it was held for a change.
    pub(super) fn on_route(mut self, place: Option<usize>, was_held: bool) -> Self {
        (self.route_place, self.was_held) = (place, was_held);
        self
    }

    /// Counts the response, whose head is written, for the listener with this label.
    pub(super) fn count(
        &self,
        context: &Context,
        log: &ResponseLog,
        listener: Option<u8>,
        status: u16,
    ) {
        let arrived = (!self.was_held).then_some(self.arrived);
        let route = log.metrics.route_cells(self.route_place);
        log.count(context, (listener, route), status, arrived);
    }
}

impl LoggedRequest {
    pub(super) fn new(line: RequestLine<'_>, remote: Option<SocketAddr>) -> Self {
        Self {
            method: line.method.into(),
            target: line.target.into(),
            remote,
            fields: kept_fields(&[], line.head).into(),
            route: None,
            key: line.key.map(Into::into),
            upstream: None,
        }
    }

    /// Notes the prefix of the route of a poll.
    pub(super) fn on_route(mut self, route: Option<&str>) -> Self {
        self.route = route.map(Into::into);
        self
    }

    /// Notes the server that responds, with the time until it did.
    pub(super) fn responds(&mut self, server: SocketAddr, after: Duration) {
        self.upstream = Some((server, after));
    }
}
