//! The one answer to a poll: where it goes, and what is written down of it on the way.

use super::tables::{KeptRequest, Poll};
use super::wanted::Several;
use crate::access::{CorsGrant, CorsTable};
use crate::config::{RouteId, Routes};
use crate::held::{held, hold};
use crate::metrics::PollOutcome;
use crate::response_log::{Logged, ResponseLog};
use bytes::Bytes;
use dwell_engine::{Body, ExchangeId, Http, Outcome, Reply, Request, Response};
use dwell_evloop::Context;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The part of an answer that all polls of a loop share: its log, and the fields for web pages.
#[derive(Debug)]
pub(super) struct Responses {
    pub(super) log: ResponseLog,
    pub(super) cors: CorsTable,
}

impl Responses {
    pub(super) fn new(log: ResponseLog, routes: &Routes) -> Self {
        let cors = CorsTable::of(routes);
        Self { log, cors }
    }
}

/// The one answer to one request: at hand, or held.
pub(crate) struct Responder<'a, 'r> {
    exchange: Exchange<'a, 'r>,
    responses: Arc<Responses>,
    /// Method and target, for the access log.
    line: Option<(&'a str, &'a str)>,
    arrived: Instant,
    outcome: &'static str,
    /// Route and origin of the page that asked, if answers say anything of it.
    page: Option<(RouteId, CorsGrant)>,
}

/// The exchange that an answer belongs to: at hand, or held.
pub(crate) enum Exchange<'a, 'r> {
    Now(&'a mut Reply<'r>),
    Held(&'a mut Http, ExchangeId),
}

impl<'r> Exchange<'_, 'r> {
    /// Holds it for so long: at hand by the outcome, and held already by another tag.
    pub(crate) fn hold(&mut self, context: &mut Context, tag: u64, timeout: Duration) -> Outcome {
        match self {
            Self::Now(_) => held(tag, timeout),
            Self::Held(http, exchange) => {
                hold(http, context, *exchange, tag, timeout);
                Outcome::Answered
            }
        }
    }

    fn reborrow(&mut self) -> Exchange<'_, 'r> {
        match self {
            Self::Now(reply) => Exchange::Now(reply),
            Self::Held(http, exchange) => Exchange::Held(http, *exchange),
        }
    }
}

/// The outcome of a request that is no poll.
const FORWARDED: &str = "forward";

impl<'a, 'r> Responder<'a, 'r> {
    /// To the request at hand.
    pub(crate) fn now(
        reply: &'a mut Reply<'r>,
        request: &'a Request<'_>,
        responses: &Arc<Responses>,
        context: &Context,
    ) -> Self {
        Self {
            exchange: Exchange::Now(reply),
            responses: Arc::clone(responses),
            line: Some((request.head.method, request.head.target)),
            arrived: context.now(),
            outcome: FORWARDED,
            page: None,
        }
    }

    /// To the request at hand, which was held and is `poll`.
    pub(crate) fn ended(
        reply: &'a mut Reply<'r>,
        poll: &'a Poll,
        responses: &Arc<Responses>,
    ) -> Self {
        Self::of_poll(Exchange::Now(reply), poll, responses)
    }

    /// To a held request.
    pub(crate) fn held(http: &'a mut Http, poll: &'a Poll, responses: &Arc<Responses>) -> Self {
        Self::of_poll(Exchange::Held(http, poll.exchange), poll, responses)
    }

    pub(crate) fn of_poll(
        exchange: Exchange<'a, 'r>,
        poll: &'a Poll,
        responses: &Arc<Responses>,
    ) -> Self {
        let page = (poll.route, poll.origin);
        let kept = poll.request.as_deref();
        Self::later(exchange, kept, poll.arrived, page, responses)
    }

    /// To the request at hand, which was held and is a poll of several keys.
    pub(crate) fn ended_several(
        reply: &'a mut Reply<'r>,
        poll: &'a Several,
        responses: &Arc<Responses>,
    ) -> Self {
        let kept = poll.request.as_deref();
        Self::later(
            Exchange::Now(reply),
            kept,
            poll.arrived,
            poll.page(),
            responses,
        )
    }

    /// To a held request that is a poll of several keys.
    pub(crate) fn held_several(
        http: &'a mut Http,
        poll: &'a Several,
        responses: &Arc<Responses>,
    ) -> Self {
        let exchange = Exchange::Held(http, poll.exchange);
        let kept = poll.request.as_deref();
        Self::later(exchange, kept, poll.arrived, poll.page(), responses)
    }

    fn later(
        exchange: Exchange<'a, 'r>,
        kept: Option<&'a KeptRequest>,
        arrived: Instant,
        page: (RouteId, CorsGrant),
        responses: &Arc<Responses>,
    ) -> Self {
        Self {
            exchange,
            responses: Arc::clone(responses),
            line: kept.and_then(|kept| request_line(kept.head())),
            arrived,
            outcome: FORWARDED,
            page: Some(page),
        }
    }

    /// The client's address, asked of the system.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        match &self.exchange {
            Exchange::Now(reply) => reply.peer_address(),
            Exchange::Held(http, exchange) => http.peer_address(*exchange),
        }
    }

    /// Counts how a poll ends; said before its answer is sent.
    pub(crate) fn ends(&mut self, outcome: PollOutcome) {
        self.responses.log.metrics.polls.increment(outcome);
        self.outcome = outcome.as_str();
    }

    /// The exchange, without what is written down of its answer.
    pub(crate) fn exchange(&mut self) -> Exchange<'_, 'r> {
        self.exchange.reborrow()
    }

    /// Holds the exchange for so long; its answer follows, by another responder.
    pub(crate) fn hold(&mut self, context: &mut Context, tag: u64, timeout: Duration) -> Outcome {
        self.exchange.hold(context, tag, timeout)
    }

    pub(crate) fn send(&mut self, context: &mut Context, response: &Response<'_>) {
        self.stream(context, response, &[]);
    }

    /// Says which page asks, by its origin among those of a route.
    pub(crate) fn tell_origin(&mut self, route: RouteId, origin: CorsGrant) {
        self.page = Some((route, origin));
    }

    /// Sends an answer and, where it is a streaming one, its first piece.
    pub(crate) fn stream(
        &mut self,
        context: &mut Context,
        response: &Response<'_>,
        piece: &[Bytes],
    ) {
        let Some((route, origin)) = self.page.filter(|(_, origin)| origin.has_fields()) else {
            return self.stream_as(context, response, piece);
        };
        let responses = Arc::clone(&self.responses);
        let mut fields = response.fields.to_vec();
        responses
            .cors
            .fields(route, origin, response.status, &mut fields);
        let response = Response {
            status: response.status,
            fields: &fields,
            body: same(&response.body),
        };
        self.stream_as(context, &response, piece);
    }

    fn stream_as(&mut self, context: &mut Context, response: &Response<'_>, piece: &[Bytes]) {
        self.responses.log.count(response.status);
        if self.responses.log.is_written() {
            self.write_line(context, response);
        }
        let send = |reply: &mut Reply<'_>| {
            reply.send(response);
            if !piece.is_empty() {
                // Nothing is queued before it; a socket that has failed is told of later.
                let _ = reply.write_parts(piece);
            }
        };
        match &mut self.exchange {
            Exchange::Now(reply) => send(reply),
            Exchange::Held(http, exchange) => {
                http.with_reply(context, *exchange, send);
            }
        }
    }

    /// A status with a line of text.
    pub(crate) fn text(&mut self, context: &mut Context, status: u16, text: &str) {
        self.text_with(context, status, text, &[]);
    }

    /// A status with a line of text and further fields.
    pub(crate) fn text_with(
        &mut self,
        context: &mut Context,
        status: u16,
        text: &str,
        fields: &[(&str, &[u8])],
    ) {
        let mut all: Vec<(&str, &[u8])> = vec![
            ("Content-Type", b"text/plain; charset=utf-8"),
            ("Cache-Control", b"no-store"),
        ];
        all.extend_from_slice(fields);
        let body = format!("{text}\n");
        let body = Body::Slice(body.as_bytes());
        self.send(
            context,
            &Response {
                status,
                fields: &all,
                body,
            },
        );
    }

    fn write_line(&self, context: &Context, response: &Response<'_>) {
        let (method, target) = self.line.unwrap_or_default();
        let has_body = method != "HEAD" && !matches!(response.status, 204 | 304);
        let logged = Logged {
            method,
            target,
            remote: self.peer_address(),
            arrived: self.arrived,
            status: response.status,
            bytes: response.body.len().filter(|_| has_body).unwrap_or(0),
            outcome: self.outcome,
        };
        self.responses.log.write(context, &logged);
    }
}

/// The same body once more; nothing is copied.
fn same<'b>(body: &Body<'b>) -> Body<'b> {
    match body {
        Body::Empty => Body::Empty,
        Body::Absent(length) => Body::Absent(*length),
        Body::Slice(bytes) => Body::Slice(bytes),
        Body::Shared(bytes) => Body::Shared(bytes.clone()),
        Body::Parts(parts) => Body::Parts(parts),
        Body::File(slice) => Body::File(slice.clone()),
        Body::Stream(length) => Body::Stream(*length),
    }
}

/// Method and target of a head that was parsed once already.
pub(super) fn request_line(head: &[u8]) -> Option<(&str, &str)> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    Some((words.next()?, words.next()?))
}
