//! The proxy: requests that are no polls pass to the application as they come, and its answers
//! back.
//!
//! A [`ProxiedRequest`] joins an exchange of the clients' server to one of the upstream client.
//! Neither side is read further than the other takes it: what may be on its way is a *window* of
//! body bytes in each direction, which is granted again as it is taken. So a client that does not
//! read stops the application through the kernel's buffers, and the other way round, and nothing is
//! held here.
//!
//! [`Proxy`] does no I/O towards the application: it leaves [`Action`]s, which are carried out when
//! the turn ends. A connection that has changed its protocol leaves both sides and becomes one of
//! the [`Tunnels`]. Nothing here imports the polls.

mod actions;
mod answering;
mod arriving;
mod tunnels;

use actions::Action;
pub(crate) use actions::carry_out;
pub(crate) use answering::Adopted;
use answering::Source;
pub(crate) use tunnels::{Tunnel, Tunnels};

use crate::config::{Config, share};
use crate::metrics::LoopMetrics;
use crate::response_log::{Logged, ResponseLog};
use crate::retry_after::RetryAfter;
use dwell_engine::{Body, ExchangeId, Response};
use dwell_evloop::{Context, Slab, Token};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// The kind of the tokens of [`ProxiedRequest`]s. They name no sockets, so the loop never sees
/// them; but the tags of exchanges and requests have them.
pub(crate) const KIND: u8 = 20;

/// The proxied request that a tag names, if it names one.
pub(crate) fn proxied_of(tag: u64) -> Option<Token> {
    let token = Token::from_bits(tag);
    (token.kind() == KIND).then_some(token)
}

/// A request on its way to the application, and the answer on its way back.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct ProxiedRequest {
    exchange: ExchangeId,
    /// The exchange of the upstream client, as soon as it is known.
    connection: Option<Token>,
    arrived: Instant,
    /// The part of a line of the access log that the request brings; absent if there is no log.
    line: Option<Box<Line>>,
    upload: Upload,
    /// Body bytes of the request that the application has not taken yet.
    up: u64,
    /// The part of them, framed, that came while the request changed its connection; and true if
    /// its last is the end of the body.
    kept: Option<(Vec<u8>, bool)>,
    /// Body bytes of the answer that the client has not taken yet.
    down: usize,
    /// Body bytes of the answer so far.
    sent: u64,
    /// Status of the answer, once its head is passed on; before, 0.
    status: u16,
    /// The origin that the answer names.
    source: Source,
    is_head: bool,
    /// The body of the request goes on in chunks.
    is_chunked: bool,
    /// The `Connection` of a request with such a body, until that has ended.
    nominated: Option<Box<[u8]>>,
    /// The client has ended its sending side.
    is_half_closed: bool,
    /// The answer is a stream of events.
    is_stream: bool,
}

/// The progress of the body of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Upload {
    /// There is none, or it went along with its head, or all of it has come.
    Complete,
    /// It waits for a connection to the application, and then, if so, for its leave.
    Waiting { expects: bool },
    /// It comes.
    Granted,
}

/// The request line of a proxied request, and its client.
#[derive(Debug)]
struct Line {
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
    records: Slab<ProxiedRequest>,
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
            records: Slab::new(KIND, requests_max),
            actions: Vec::new(),
            retry_after: RetryAfter::new(seed),
        }
    }

    /// Goes by another configuration from now on; requests under way end by the one before.
    pub(crate) fn reconfigure(&mut self, config: &Arc<Config>, log: &ResponseLog) {
        self.config = Arc::clone(config);
        self.log = log.clone();
        let requests_max = share(config.limits.connections_max, self.loops);
        self.records.set_capacity_max(requests_max);
    }

    /// True if nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.records.is_empty() && self.actions.is_empty()
    }

    /// True if anything is to be done when the turn ends.
    pub(crate) fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// Takes what is to be done by now.
    fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    fn metrics(&self) -> &LoopMetrics {
        &self.log.metrics
    }

    /// True if this one is under way.
    fn contains(&self, forward: Token) -> bool {
        self.records.get(forward).is_some()
    }

    /// The connection that brings the answer.
    fn connection(&self, forward: Token) -> Option<Token> {
        self.records.get(forward)?.connection
    }

    /// Keeps a piece of a body until the request has another connection. There are never more of
    /// them than a window of bytes, as nothing is granted meanwhile.
    fn keep(&mut self, forward: Token, piece: &[u8], is_last: bool) {
        if let Some(record) = self.records.get_mut(forward) {
            let (bytes, has_last) = record.kept.get_or_insert_default();
            bytes.extend_from_slice(piece);
            *has_last |= is_last;
        }
    }

    /// Forgets a request, which is written down.
    fn end(&mut self, context: &Context, forward: Token) {
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

    /// The `Retry-After` of a refusal; only clients that get a 503 count among those that come
    /// back.
    fn retry_after(&mut self, context: &Context, status: u16) -> Option<String> {
        (status == 503).then(|| self.retry_after.next(context.now()))
    }
}

impl Line {
    fn new(method: &str, target: &str, remote: Option<SocketAddr>) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            remote,
        }
    }
}

/// A line of text instead of an answer of the application.
#[derive(Debug)]
struct Refusal {
    status: u16,
    body: String,
    retry_after: Option<String>,
}

impl Refusal {
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
