//! The proxied requests of a loop, and their clients' side: heads and bodies, and clients that
//! leave.

use super::actions::{Action, Actions};
use super::request::{Client, LoggedRequest, ProxiedRequest};
use super::response::{ErrorResponse, ProxiedResponse, ProxyReason};
use super::upload::{Upload, passing};
use crate::access::{
    client_address, counted_as, is_certificate_left_out, is_trusted, sent_certificate,
};
use crate::config::Config;
use crate::held::held;
use crate::ids::ProxiedId;
use crate::metrics::{LoopMetrics, UpstreamOutcome};
use crate::responder::{RequestLine, ResponseLog};
use crate::retry_after::RetryAfter;
use bytes::Bytes;
use dwell_engine::{BodyPlan, Outcome, Reply, Request};
use dwell_evloop::{Context, Id, Slab, Token};
use dwell_proto::http1::{BodyFraming, Trailers};
use dwell_upstream::{
    ForwardedFor, RequestBody, Taking, UpstreamRequest, encode_forward, is_idempotent, nominated,
    upgrade_of,
};
use std::sync::Arc;
use std::time::Duration;

/// Longest time for which a body is held back until the application asks for it (100 Continue).
/// Many applications never ask.
///
/// Source: RFC 9110 section 10.1.1.
pub(super) const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after which a waiting client that has closed its sending side is probed.
///
/// Shape: longer than most responses take, so a client that closes its side by habit and reads on
/// rarely gets an interim response. Short enough that the application hardly works for a client
/// that has left. (nginx does not probe: it treats such a client as gone.)
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_millis(100);

/// Time after which a held exchange is held again, if its record still exists; its request and
/// response have deadlines of their own.
pub(super) const HOLD_TIMEOUT: Duration = Duration::from_secs(60);

/// The proxied requests of one loop.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(super) config: Arc<Config>,
    loops: usize,
    pub(super) log: ResponseLog,
    pub(super) records: Slab<ProxiedRequest, ProxiedId>,
    pub(super) actions: Actions,
    retry_after: RetryAfter,
}

impl Proxy {
    pub(crate) fn new(config: Arc<Config>, log: ResponseLog, loops: usize, seed: u64) -> Self {
        let requests_max = config.limits.connections_per_loop(loops);
        Self {
            config,
            log,
            loops,
            records: ProxiedId::slab(requests_max),
            actions: Actions::default(),
            retry_after: RetryAfter::new(seed),
        }
    }

    /// Applies a configuration; open requests keep the one before.
    pub(crate) fn reconfigure(&mut self, config: &Arc<Config>, log: &ResponseLog) {
        self.config = Arc::clone(config);
        self.log = log.clone();
        let requests_max = config.limits.connections_per_loop(self.loops);
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

    pub(super) fn metrics(&self) -> &LoopMetrics {
        &self.log.metrics
    }

    /// True while the request is open.
    pub(super) fn contains(&self, id: ProxiedId) -> bool {
        self.records.get(id).is_some()
    }

    /// The connection that carries the response.
    pub(super) fn connection(&self, id: ProxiedId) -> Option<Token> {
        self.records.get(id)?.connection
    }

    /// Keeps a piece of a body until the request has another connection.
    pub(super) fn keep(&mut self, id: ProxiedId, piece: &[u8], is_last: bool) {
        if let Some(record) = self.records.get_mut(id) {
            record.upload.keep(piece, is_last);
        }
    }

    /// Removes a request, and writes its line of the access log.
    pub(super) fn end(&mut self, context: &Context, id: ProxiedId) {
        let record = self.records.remove(id);
        if let Some(logged) = record.as_ref().and_then(ProxiedRequest::logged) {
            self.log.write(context, &logged);
        }
    }

    /// The `Retry-After` of an error. Only clients that get a 503 are counted.
    pub(super) fn retry_after(&mut self, context: &Context, status: u16) -> Option<String> {
        (status == 503).then(|| self.retry_after.next(context.now()))
    }

    /// The way a request body is read: completely, or its begin, before the request gets a
    /// connection.
    pub(crate) fn body_plan(&self) -> BodyPlan {
        let config = &self.config;
        let bytes_max = config.limits.body_bytes_max;
        let first_bytes = config.upstream.request_buffer_bytes;
        if first_bytes == 0 || !config.has_upstream() {
            return BodyPlan::Stream { bytes_max };
        }
        BodyPlan::Gather {
            first_bytes,
            bytes_max,
        }
    }

    /// Takes a request that is not a poll.
    pub(crate) fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let head = request.head;
        if !self.config.has_upstream() {
            return self.refuse(context, request, reply, 404, "no route and no upstream");
        }
        if self.records.is_full() {
            let refused = UpstreamOutcome::Refused;
            self.metrics().upstream_requests.increment(refused);
            let reason = "too many requests are in progress";
            return self.refuse(context, request, reply, 503, reason);
        }
        let peer = reply.peer_address();
        let trusted = &self.config.server.trusted_proxies;
        let forwarded = ForwardedFor {
            peer: peer.map(|peer| peer.ip()),
            proto: if request.is_secure { "https" } else { "http" },
            is_trusted: is_trusted(peer, trusted),
            certificate: sent_certificate(&self.config, reply.client_names(), || peer),
        };
        if is_certificate_left_out(&self.config, reply.client_names()) {
            self.metrics().client_certs_too_long.increment();
        }
        let client = client_address(peer, head.fields, trusted).map(counted_as);
        let body = if request.body_follows {
            RequestBody::Begins(request.body)
        } else {
            RequestBody::Whole(request.body)
        };
        let nominated = nominated(head.framing, head.fields);
        let trailers = passing(request.trailers, nominated.as_deref(), &self.config.routes);
        let host = &self.config.upstream.default_host;
        let bytes = encode_forward(head, body, &trailers, host, forwarded);
        let is_head = head.method == "HEAD";
        let line = self.log.is_written();
        let line = line.then(|| Box::new(LoggedRequest::new(RequestLine::of(request), peer)));
        let record = ProxiedRequest {
            client: Client::new(request.exchange, context.now(), line),
            connection: None,
            upload: if request.body_follows {
                let expects = head.expect_continue && request.body.is_empty();
                let is_chunked = head.framing == BodyFraming::Chunked;
                Upload::waiting(expects, is_chunked, nominated)
            } else {
                Upload::complete()
            },
            response: ProxiedResponse::new(ProxyReason::Bypass, is_head),
        };
        let Ok(id) = self.records.insert(record) else {
            return Outcome::Close;
        };
        let tag = id.to_bits();
        self.actions.push(Action::Send(Box::new(UpstreamRequest {
            bytes,
            is_head,
            is_idempotent: is_idempotent(head.method),
            body_follows: request.body_follows,
            upgrade: upgrade_of(head).map(Bytes::copy_from_slice),
            taking: Taking::Parts,
            client,
            tag,
        })));
        held(tag, HOLD_TIMEOUT)
    }

    /// Sends an error instead of proxying a request.
    fn refuse(
        &mut self,
        context: &Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
        status: u16,
        reason: &str,
    ) -> Outcome {
        let retry_after = self.retry_after(context, status);
        let refusal = ErrorResponse::new(status, reason, retry_after);
        let fields = refusal.fields();
        self.log
            .send(context, request, reply, &refusal.response(&fields));
        Outcome::Answered
    }

    /// Handles a piece of a request body.
    pub(crate) fn body_data(&mut self, id: ProxiedId, data: &[u8]) -> Outcome {
        if let Some(record) = self.records.get_mut(id) {
            let piece = self.actions.piece_of(id, false);
            record.upload.receive(data, piece);
        }
        held_on(id)
    }

    /// Handles the end of a request body.
    pub(crate) fn body_end(&mut self, id: ProxiedId, trailers: Trailers<'_>) -> Outcome {
        if let Some(record) = self.records.get_mut(id) {
            let piece = self.actions.piece_of(id, true);
            record.upload.finish(trailers, &self.config.routes, piece);
        }
        held_on(id)
    }

    /// Handles a client that has read all response bytes so far.
    pub(crate) fn drained(&mut self, id: ProxiedId) -> Outcome {
        if let Some(record) = self.records.get_mut(id)
            && let Some(connection) = record.connection
        {
            let bytes = record.response.take_unread();
            self.actions.push(Action::Grant {
                id,
                connection,
                bytes,
            });
        }
        held_on(id)
    }

    /// Handles a timeout: sends a body that the application has not asked for, or else checks the
    /// exchange.
    pub(crate) fn expired(&mut self, id: ProxiedId, reply: &mut Reply<'_>) -> Outcome {
        let Some(record) = self.records.get_mut(id) else {
            return Outcome::Close;
        };
        if record.connection.is_some() && record.upload.release() {
            reply.grant(self.config.upstream.window_bytes);
            // It may now be lost with its connection, so it is not retried on another.
            self.actions.piece_of(id, false);
        } else if record.is_probed() {
            // A client that reads on skips it; the system of one that has left sends a reset.
            reply.informational(100, &[]);
        }
        held_on(id)
    }

    /// Handles the end of what a client sends; returns true if that means that the client has left.
    ///
    /// Shape: a client may close only its sending side and read on. While it waits for a response
    /// it is probed with an interim response, which every client has to skip (RFC 9110 section
    /// 15.2). Later, writing the response finds out. An event stream may be silent for long, but
    /// its clients keep their side open.
    pub(crate) fn peer_closed(&mut self, id: ProxiedId) -> bool {
        let Some(record) = self.records.get_mut(id) else {
            return true;
        };
        if record.half_close() {
            let exchange = record.client.exchange;
            self.actions.push(Action::Probe { id, exchange });
        }
        record.response.is_stream()
    }

    /// Handles a client that has left.
    pub(crate) fn abandoned(&mut self, context: &Context, id: ProxiedId) {
        let record = self.records.get(id);
        let connection = record.and_then(|record| record.connection);
        if let Some(record) = record.filter(|record| record.response.has_begun()) {
            self.count_answer(record.response.status());
        }
        self.end(context, id);
        let request = id.into();
        self.actions.push(Action::Cancel {
            connection,
            request,
        });
    }
}

/// Keeps the exchange held.
fn held_on(id: ProxiedId) -> Outcome {
    held(id.to_bits(), HOLD_TIMEOUT)
}
