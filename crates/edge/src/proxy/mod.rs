//! The proxy: passes requests that are not polls to the application, and its responses back.
//!
//! A [`ProxiedRequest`] joins an exchange of the clients' server to one of the upstream client.
//! Neither side is read further than the other side reads: each direction has a *window* of body
//! bytes, which is granted again as bytes are read. So a client that does not read stops the
//! application through the kernel's buffers, and the other way round, and nothing is buffered here.
//!
//! [`Proxy`] does no I/O towards the application: it leaves [`Action`]s, which are carried out when
//! the turn ends. A connection that has switched its protocol leaves both sides and becomes one of
//! the [`Tunnels`]. Nothing here imports the polls.

mod actions;
mod answering;
mod arriving;
mod tunnels;

use actions::Action;
pub(crate) use actions::carry_out;
pub(crate) use answering::Adopted;
use answering::ProxyReason;
pub(crate) use tunnels::{Tunnel, Tunnels};

use crate::config::{Config, share};
use crate::ids::{ProxiedId, kind};
use crate::metrics::LoopMetrics;
use crate::response_log::{Logged, ResponseLog};
use crate::retry_after::RetryAfter;
use dwell_engine::{Body, ExchangeId, Response};
use dwell_evloop::{Context, Slab, Token};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// A request on its way to the application, and the response on its way back.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct ProxiedRequest {
    exchange: ExchangeId,
    /// The exchange of the upstream client, once there is one.
    connection: Option<Token>,
    arrived: Instant,
    /// The request's part of its line in the access log; absent if there is no log.
    line: Option<Box<RequestLine>>,
    upload: Upload,
    /// Body bytes of the request that the application has not read.
    up: u64,
    /// The framed part of them that came while the request changed its connection, and true if it
    /// includes the end of the body.
    kept: Option<(Vec<u8>, bool)>,
    /// Body bytes of the response that the client has not read.
    down: usize,
    /// Body bytes of the response so far.
    sent: u64,
    /// Status of the response; 0 until its head is passed on.
    status: u16,
    /// Reason why the request is proxied.
    source: ProxyReason,
    is_head: bool,
    /// The rest of the request body is chunked.
    is_chunked: bool,
    /// The `Connection` field of a request with such a body, until the body has ended.
    nominated: Option<Box<[u8]>>,
    /// The client has closed its sending side.
    is_half_closed: bool,
    /// The response is an event stream.
    is_stream: bool,
}

/// State of a request body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Upload {
    /// There is no body, or all of it has come.
    Complete,
    /// It waits for a connection to the application, and with `expects` for 100 Continue too.
    Waiting { expects: bool },
    /// It is being received.
    Granted,
}

/// The request line of a proxied request, and the address of its client.
#[derive(Debug)]
struct RequestLine {
    method: Box<str>,
    target: Box<str>,
    remote: Option<SocketAddr>,
}

/// The proxied requests of one loop.
#[derive(Debug)]
pub(crate) struct Proxy {
    config: Arc<Config>,
    loops: usize,
    log: ResponseLog,
    records: Slab<ProxiedRequest, ProxiedId>,
    actions: Vec<Action>,
    retry_after: RetryAfter,
}

impl Proxy {
    pub(crate) fn new(config: Arc<Config>, log: ResponseLog, loops: usize, seed: u64) -> Self {
        let requests_max = share(config.limits.connections_max, loops);
        Self {
            config,
            log,
            loops,
            records: Slab::with_ids(kind::PROXIED, requests_max),
            actions: Vec::new(),
            retry_after: RetryAfter::new(seed),
        }
    }

    /// Applies a configuration; open requests keep the one before.
    pub(crate) fn reconfigure(&mut self, config: &Arc<Config>, log: &ResponseLog) {
        self.config = Arc::clone(config);
        self.log = log.clone();
        let requests_max = share(config.limits.connections_max, self.loops);
        self.records.set_capacity_max(requests_max);
    }

    /// True if no request is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.records.is_empty() && self.actions.is_empty()
    }

    /// True if there are actions for the end of the turn.
    pub(crate) fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// Takes the actions.
    fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    fn metrics(&self) -> &LoopMetrics {
        &self.log.metrics
    }

    /// True while the request is open.
    fn contains(&self, forward: ProxiedId) -> bool {
        self.records.get(forward).is_some()
    }

    /// The connection that carries the response.
    fn connection(&self, forward: ProxiedId) -> Option<Token> {
        self.records.get(forward)?.connection
    }

    /// Keeps a piece of a body until the request has another connection. Kept pieces never exceed a
    /// window of bytes, as nothing is granted meanwhile.
    fn keep(&mut self, forward: ProxiedId, piece: &[u8], is_last: bool) {
        if let Some(record) = self.records.get_mut(forward) {
            let (bytes, has_last) = record.kept.get_or_insert_default();
            bytes.extend_from_slice(piece);
            *has_last |= is_last;
        }
    }

    /// Removes a request, and writes its line of the access log.
    fn end(&mut self, context: &Context, forward: ProxiedId) {
        if let Some(record) = self.records.remove(forward) {
            self.write_line(context, &record);
        }
    }

    fn write_line(&self, context: &Context, record: &ProxiedRequest) {
        let Some(line) = &record.line else { return };
        let logged = Logged {
            method: &line.method,
            target: &line.target,
            remote: line.remote,
            arrived: record.arrived,
            status: record.status,
            bytes: record.sent,
            outcome: record.source.outcome(),
        };
        self.log.write(context, &logged);
    }

    /// The `Retry-After` of an error. Only clients that get a 503 are counted.
    fn retry_after(&mut self, context: &Context, status: u16) -> Option<String> {
        (status == 503).then(|| self.retry_after.next(context.now()))
    }
}

impl RequestLine {
    fn new(method: &str, target: &str, remote: Option<SocketAddr>) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            remote,
        }
    }
}

/// An error response of the proxy itself.
#[derive(Debug)]
struct ErrorResponse {
    status: u16,
    body: String,
    retry_after: Option<String>,
}

impl ErrorResponse {
    fn new(status: u16, reason: &str, retry_after: Option<String>) -> Self {
        Self {
            status,
            body: format!("{reason}\n"),
            retry_after,
        }
    }

    fn fields(&self) -> Vec<(&str, &[u8])> {
        let mut fields: Vec<(&str, &[u8])> = vec![
            ("Content-Type", b"text/plain; charset=utf-8"),
            ("Cache-Control", b"no-store"),
        ];
        if let Some(seconds) = &self.retry_after {
            fields.push(("Retry-After", seconds.as_bytes()));
        }
        fields
    }

    fn response<'a>(&'a self, fields: &'a [(&'a str, &'a [u8])]) -> Response<'a> {
        Response {
            status: self.status,
            fields,
            body: Body::Slice(self.body.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests;
