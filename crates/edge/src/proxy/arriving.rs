//! The client's side of proxied requests: heads and bodies, and clients that leave.

use super::answering::ProxyReason;
use super::{Action, ErrorResponse, ProxiedRequest, Proxy, RequestLine, Upload};
use crate::access::{client_address, counted_as, is_trusted};
use crate::config::RouteConfig;
use crate::held::held;
use crate::ids::ProxiedId;
use bytes::Bytes;
use dwell_engine::{BodyPlan, Outcome, Reply, Request};
use dwell_evloop::{Context, Id};
use dwell_proto::http1::{BodyFraming, Trailers, encode, list_tokens};
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

/// Interval at which a held exchange is checked; its request and response have deadlines of their
/// own.
pub(super) const HOLD_TIMEOUT: Duration = Duration::from_secs(60);

impl Proxy {
    /// The way a request body is read: completely, or its begin, before the request gets a
    /// connection.
    pub(crate) fn body_plan(&self) -> BodyPlan {
        let config = &self.config;
        let bytes_max = config.limits.body_bytes_max;
        let first_bytes = config.upstream.request_buffer_bytes;
        if first_bytes == 0 || config.upstream.url.is_empty() {
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
        if self.config.upstream.url.is_empty() {
            return self.refuse(context, request, reply, 404, "no route and no upstream");
        }
        if self.records.is_full() {
            let reason = "too many requests are under way";
            return self.refuse(context, request, reply, 503, reason);
        }
        let peer = reply.peer_address();
        let trusted = &self.config.server.trusted_proxies;
        let forwarded = ForwardedFor {
            peer: peer.map(|peer| peer.ip()),
            proto: "http",
            is_trusted: is_trusted(peer, trusted),
        };
        let client = client_address(peer, head.fields, trusted).map(counted_as);
        let body = if request.body_follows {
            RequestBody::Begins(request.body)
        } else {
            RequestBody::Whole(request.body)
        };
        let nominated = nominated(head.framing, head.fields);
        let trailers = self.passing(request.trailers, nominated.as_deref());
        let host = &self.config.upstream.default_host;
        let bytes = encode_forward(head, body, &trailers, host, forwarded);
        let is_logged = self.log.is_written();
        let record = ProxiedRequest {
            exchange: request.exchange,
            connection: None,
            arrived: context.now(),
            line: is_logged.then(|| Box::new(RequestLine::new(head.method, head.target, peer))),
            upload: if request.body_follows {
                let expects = head.expect_continue && request.body.is_empty();
                Upload::Waiting { expects }
            } else {
                Upload::Complete
            },
            up: 0,
            kept: None,
            down: 0,
            sent: 0,
            status: 0,
            source: ProxyReason::Bypass,
            is_head: head.method == "HEAD",
            is_chunked: head.framing == BodyFraming::Chunked,
            nominated: nominated.filter(|_| request.body_follows),
            is_half_closed: false,
            is_stream: false,
        };
        let Ok(forward) = self.records.insert(record) else {
            return Outcome::Close;
        };
        let tag = forward.to_bits();
        self.actions.push(Action::Send(Box::new(UpstreamRequest {
            bytes,
            is_head: head.method == "HEAD",
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
    pub(crate) fn body_data(&mut self, forward: ProxiedId, data: &[u8]) -> Outcome {
        if let Some(record) = self.records.get_mut(forward) {
            record.up += data.len() as u64;
            let is_chunked = record.is_chunked;
            let piece = self.piece_of(forward, false);
            if is_chunked {
                encode::chunk(piece, data);
            } else {
                piece.extend_from_slice(data);
            }
        }
        held_on(forward)
    }

    /// Handles the end of a request body.
    pub(crate) fn body_end(&mut self, forward: ProxiedId, trailers: Trailers<'_>) -> Outcome {
        if let Some(record) = self.records.get_mut(forward) {
            record.upload = Upload::Complete;
            let is_chunked = record.is_chunked;
            let nominated = record.nominated.take();
            let fields = self.passing(trailers, nominated.as_deref());
            let piece = self.piece_of(forward, true);
            if is_chunked {
                encode::last_chunk_with(piece, &fields);
            }
        }
        held_on(forward)
    }

    /// The trailer fields of a request that are passed on.
    fn passing<'t>(
        &self,
        trailers: Trailers<'t>,
        nominated: Option<&[u8]>,
    ) -> Vec<(&'t str, &'t [u8])> {
        let routes = &self.config.routes;
        let passes = |name: &str| trailer_passes(name, nominated, routes);
        let fields = trailers.iter().filter(|(name, _)| passes(name));
        fields.collect()
    }

    /// The piece of a body that is written next, to which more can be added.
    fn piece_of(&mut self, of: ProxiedId, ends: bool) -> &mut Vec<u8> {
        let is_same = matches!(
            self.actions.last(),
            Some(Action::Write { forward, is_last: false, .. }) if *forward == of
        );
        if !is_same {
            self.actions.push(Action::Write {
                forward: of,
                piece: Vec::new(),
                is_last: false,
            });
        }
        match self.actions.last_mut() {
            Some(Action::Write { piece, is_last, .. }) => {
                *is_last = ends;
                piece
            }
            // One was added above if there was none.
            _ => unreachable!("the last order is to write"),
        }
    }

    /// Handles a client that has read all response bytes so far.
    pub(crate) fn drained(&mut self, forward: ProxiedId) -> Outcome {
        if let Some(record) = self.records.get_mut(forward)
            && let Some(connection) = record.connection
        {
            let bytes = std::mem::take(&mut record.down);
            self.actions.push(Action::Grant {
                forward,
                connection,
                bytes,
            });
        }
        held_on(forward)
    }

    /// Handles a timeout: sends a body that the application has not asked for, or else checks the
    /// exchange.
    pub(crate) fn expired(&mut self, forward: ProxiedId, reply: &mut Reply<'_>) -> Outcome {
        if self.records.get(forward).is_none() {
            return Outcome::Close;
        }
        if let Some(record) = self.records.get_mut(forward)
            && record.upload == (Upload::Waiting { expects: true })
            && record.connection.is_some()
        {
            record.upload = Upload::Granted;
            reply.grant(self.config.upstream.window_bytes);
            // It may now be lost with its connection, so it is not retried on another.
            self.piece_of(forward, false);
        } else if let Some(record) = self.records.get(forward)
            && record.is_half_closed
            && record.status == 0
        {
            // A client that reads on skips it; the system of one that has left sends a reset.
            reply.informational(100, &[]);
        }
        held_on(forward)
    }

    /// Handles the end of what a client sends; returns true if that means that the client has left.
    ///
    /// Shape: a client may close only its sending side and read on. While it waits for a response
    /// it is probed with an interim response, which every client has to skip (RFC 9110 section
    /// 15.2). Later, writing the response finds out. An event stream may be silent for long, but
    /// its clients keep their side open.
    pub(crate) fn peer_closed(&mut self, forward: ProxiedId) -> bool {
        let Some(record) = self.records.get_mut(forward) else {
            return true;
        };
        let is_news = !std::mem::replace(&mut record.is_half_closed, true);
        if is_news && record.status == 0 {
            let exchange = record.exchange;
            self.actions.push(Action::Probe { forward, exchange });
        }
        record.is_stream
    }

    /// Handles a client that has left.
    pub(crate) fn abandoned(&mut self, context: &Context, forward: ProxiedId) {
        let connection = self.connection(forward);
        let status = self.records.get(forward).map_or(0, |record| record.status);
        if status > 0 {
            self.count_answer(status);
        }
        self.end(context, forward);
        let tag = forward.to_bits();
        self.actions.push(Action::Cancel { connection, tag });
    }
}

/// Returns true for a trailer field that is passed on. Fields of the connection, fields by which a
/// route identifies clients, and names that CGI and WSGI cannot tell from others are removed.
///
/// Source: RFC 9110 sections 6.5.1 and 7.6.1.
fn trailer_passes(name: &str, nominated: Option<&[u8]>, routes: &[Arc<RouteConfig>]) -> bool {
    let is = |other: &[u8]| name.as_bytes().eq_ignore_ascii_case(other);
    let of_clients = || routes.iter().flat_map(|route| &route.identity_headers);
    !name.contains('_')
        && !list_tokens(nominated.unwrap_or_default()).any(is)
        && !of_clients().any(|header| is(header.as_bytes()))
}

/// Keeps the exchange held.
fn held_on(forward: ProxiedId) -> Outcome {
    held(forward.to_bits(), HOLD_TIMEOUT)
}
