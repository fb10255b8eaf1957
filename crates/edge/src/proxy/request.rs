//! The record of one proxied request.

use super::response::ProxiedResponse;
use super::upload::Upload;
use crate::log::{RequestFields, kept_fields};
use crate::responder::{Logged, Protocol, RequestLine};
use dwell_engine::ExchangeId;
use dwell_evloop::Token;
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
            route: None,
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
            is_half_closed: false,
        }
    }
}

impl LoggedRequest {
    pub(super) fn new(line: RequestLine<'_>, remote: Option<SocketAddr>) -> Self {
        Self {
            method: line.method.into(),
            target: line.target.into(),
            remote,
            fields: kept_fields(&[], line.head).into(),
            key: line.key.map(Into::into),
            upstream: None,
        }
    }

    /// Notes the server that responds, after so long.
    pub(super) fn responds(&mut self, server: SocketAddr, after: Duration) {
        self.upstream = Some((server, after));
    }
}
