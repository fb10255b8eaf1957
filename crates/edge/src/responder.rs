//! The one response to one request: where it goes, and what is written down of it on the way.
//!
//! A [`Responder`] counts its response, writes its line of the access log and adds the fields for
//! web pages. A [`ResponseLog`] alone is enough for responses that are sent in another way.

mod response_log;

pub(crate) use self::response_log::{FORWARDED, Logged, Protocol, RequestLine, ResponseLog};

use crate::access::{CorsGrant, CorsTable, ShownClient};
use crate::config::{RouteId, Routes};
use crate::constant_fields::{ConstantFields, Usual};
use crate::held::{held, hold};
use crate::log::RequestFields;
use crate::metrics::{PollOutcome, RouteCells};
use crate::route_figures::RouteFigures;
use bytes::Bytes;
use dwell_engine::{
    Body, ClientNames, ExchangeId, Http, Outcome, Reply, Request, Response, SharedFields,
};
use dwell_evloop::Context;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The part of an answer that all polls of a loop share: its log, and the fields for web pages.
#[derive(Debug)]
pub(crate) struct Responses {
    pub(crate) log: ResponseLog,
    pub(crate) cors: CorsTable,
    /// The places of the figures of routes.
    pub(crate) figures: RouteFigures,
    constant: ConstantFields,
}

impl Responses {
    pub(crate) fn new(log: ResponseLog, routes: &Routes) -> Self {
        Self::with(log, CorsTable::of(routes), routes)
    }

    fn with(log: ResponseLog, cors: CorsTable, routes: &Routes) -> Self {
        Self {
            figures: RouteFigures::of(&log.metrics, routes),
            constant: ConstantFields::of(routes),
            log,
            cors,
        }
    }

    /// The same for routes that have changed: what was granted to held requests stays theirs.
    pub(crate) fn reconfigured(&self, log: ResponseLog, routes: &Routes) -> Self {
        Self::with(log, self.cors.reconfigured(routes), routes)
    }
}

/// The one answer to one request: at hand, or held.
pub(crate) struct Responder<'a, 'r> {
    exchange: Exchange<'a, 'r>,
    responses: Arc<Responses>,
    /// The request, for the access log.
    line: Option<RequestLine<'a>>,
    /// The key of the poll at hand, for the access log.
    key: Option<Box<[u8]>>,
    protocol: Protocol,
    arrived: Instant,
    /// Its request was held for a change, for as long as its client has allowed.
    was_held: bool,
    /// The outcome of a poll, unless it is the application's.
    outcome: Option<PollOutcome>,
    /// The route of the request.
    route: Option<RouteId>,
    /// Route and origin of the page that asked, if answers say anything of it.
    page: Option<(RouteId, CorsGrant)>,
    /// The connection is closed after the answer.
    closes: bool,
}

/// The record of a held request, as far as its answer needs it.
pub(crate) trait HeldRequest {
    fn exchange(&self) -> ExchangeId;

    fn arrived(&self) -> Instant;

    /// Returns true if it was held for a change.
    fn was_held(&self) -> bool;

    /// The request as far as it was kept for the access log.
    fn line(&self) -> Option<RequestLine<'_>>;

    fn route(&self) -> RouteId;

    /// Its route and the CORS grant of its page, if it has one.
    fn page(&self) -> Option<(RouteId, CorsGrant)>;
}

/// The client of a held request that another component answers.
#[derive(Debug)]
pub(crate) struct HeldClient<'a> {
    pub(crate) exchange: ExchangeId,
    pub(crate) arrived: Instant,
    /// It was held for a change.
    pub(crate) was_held: bool,
    /// The place of its route among the figures of routes.
    pub(crate) route_place: Option<usize>,
    /// The prefix of its route.
    pub(crate) route: Option<&'a str>,
    /// The request as far as it was kept for the access log.
    pub(crate) line: Option<RequestLine<'a>>,
    pub(crate) is_head: bool,
}

/// The exchange that an answer belongs to: at hand, or held.
pub(crate) enum Exchange<'a, 'r> {
    Now(&'a mut Reply<'r>),
    Held(&'a mut Http, ExchangeId),
}

impl<'r> Exchange<'_, 'r> {
    /// Holds it for `timeout`: at hand by the outcome, and held already by another tag.
    pub(crate) fn hold(&mut self, context: &mut Context, tag: u64, timeout: Duration) -> Outcome {
        match self {
            Self::Now(_) => held(tag, timeout),
            Self::Held(http, exchange) => {
                hold(http, context, *exchange, tag, timeout);
                Outcome::Answered
            }
        }
    }

    /// The label of the listener of its connection.
    fn listener_label(&self) -> Option<u8> {
        match self {
            Self::Now(reply) => reply.listener_label(),
            Self::Held(http, exchange) => http.listener_label(*exchange),
        }
    }

    fn reborrow(&mut self) -> Exchange<'_, 'r> {
        match self {
            Self::Now(reply) => Exchange::Now(reply),
            Self::Held(http, exchange) => Exchange::Held(http, *exchange),
        }
    }
}

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
            line: Some(RequestLine::of(request)),
            key: None,
            protocol: Protocol::of(request.exchange),
            arrived: context.now(),
            was_held: false,
            outcome: None,
            route: None,
            page: None,
            closes: false,
        }
    }

    /// To the request at hand, which was held.
    pub(crate) fn ended(
        reply: &'a mut Reply<'r>,
        request: &'a impl HeldRequest,
        responses: &Arc<Responses>,
    ) -> Self {
        Self::of(Exchange::Now(reply), request, responses)
    }

    /// To a held request.
    pub(crate) fn held(
        http: &'a mut Http,
        request: &'a impl HeldRequest,
        responses: &Arc<Responses>,
    ) -> Self {
        let exchange = Exchange::Held(http, request.exchange());
        Self::of(exchange, request, responses)
    }

    /// To a request with a record, by its exchange.
    pub(crate) fn of(
        exchange: Exchange<'a, 'r>,
        request: &'a impl HeldRequest,
        responses: &Arc<Responses>,
    ) -> Self {
        Self {
            exchange,
            responses: Arc::clone(responses),
            line: request.line(),
            key: None,
            protocol: Protocol::of(request.exchange()),
            arrived: request.arrived(),
            was_held: request.was_held(),
            outcome: None,
            route: Some(request.route()),
            page: request.page(),
            closes: false,
        }
    }

    /// Has its response counted among those of a route.
    pub(crate) fn on_route(mut self, route: RouteId) -> Self {
        self.route = Some(route);
        self
    }

    /// Has the key of its poll in its line of the access log, if there is one.
    pub(crate) fn name_key(&mut self, key: &[u8]) {
        if self.responses.log.is_written() {
            self.key = Some(key.into());
        }
    }

    /// The client's address, asked of the system.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        match &self.exchange {
            Exchange::Now(reply) => reply.peer_address(),
            Exchange::Held(http, exchange) => http.peer_address(*exchange),
        }
    }

    /// The client, as its connection knows it, which is under TLS or not.
    pub(crate) fn client(&self, is_secure: bool) -> ShownClient {
        ShownClient::of(is_secure, self.client_names().cloned())
    }

    /// The names of the client and its certificate, as far as its connection keeps them.
    pub(crate) fn client_names(&self) -> Option<&ClientNames> {
        match &self.exchange {
            Exchange::Now(reply) => reply.client_names(),
            Exchange::Held(http, exchange) => http.client_names(*exchange),
        }
    }

    /// Closes the connection after the answer, which is to be sent next.
    pub(crate) fn close_after(&mut self) {
        self.closes = true;
    }

    /// Counts how a poll ends; said before its answer is sent.
    pub(crate) fn ends(&mut self, outcome: PollOutcome) {
        self.responses.log.metrics.polls.increment(outcome);
        if let Some(cells) = self.route_cells() {
            cells.polls.increment(outcome);
        }
        self.outcome = Some(outcome);
    }

    /// The time at which the request arrived.
    pub(crate) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// The exchange, without what is written down of its answer.
    pub(crate) fn exchange(&mut self) -> Exchange<'_, 'r> {
        self.exchange.reborrow()
    }

    /// Holds the exchange for `timeout`; its answer follows, by another responder.
    pub(crate) fn hold(&mut self, context: &mut Context, tag: u64, timeout: Duration) -> Outcome {
        self.exchange.hold(context, tag, timeout)
    }

    pub(crate) fn send(&mut self, context: &mut Context, response: &Response<'_>) {
        self.stream(context, response, &[]);
    }

    /// Says which page asks, by its origin among those of a route.
    pub(crate) fn tell_origin(&mut self, route: RouteId, origin: Option<CorsGrant>) {
        self.page = origin.map(|origin| (route, origin));
    }

    /// Sends an answer and, where it is a streaming one, its first piece.
    pub(crate) fn stream(
        &mut self,
        context: &mut Context,
        response: &Response<'_>,
        piece: &[Bytes],
    ) {
        let Some((route, origin)) = self.page else {
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

    /// The fields of an answer and those for its page, encoded for all that get the same.
    pub(crate) fn share(&self, status: u16, fields: &[(&str, &[u8])]) -> SharedFields {
        let Some((route, origin)) = self.page else {
            return SharedFields::new(status, fields);
        };
        let mut fields = fields.to_vec();
        let cors = &self.responses.cors;
        cors.fields(route, origin, status, &mut fields);
        SharedFields::new(status, &fields)
    }

    /// Sends an answer whose fields were encoded for others.
    pub(crate) fn send_shared(
        &mut self,
        context: &mut Context,
        fields: &SharedFields,
        body: &Body<'_>,
    ) {
        self.note(context, fields.status(), body);
        match &mut self.exchange {
            Exchange::Now(reply) => reply.send_shared(fields, body),
            Exchange::Held(http, exchange) => {
                http.with_reply(context, *exchange, |reply| reply.send_shared(fields, body));
            }
        }
    }

    /// Sends a usual answer, with fields of its `own` before those of all such answers; false if
    /// this one has others.
    pub(crate) fn send_usual(
        &mut self,
        context: &mut Context,
        own: &[(&str, &[u8])],
        usual: &Usual<'_>,
        body: &Body<'_>,
    ) -> bool {
        let fields = self.responses.constant.find(usual);
        let Some(fields) = fields.filter(|_| self.page.is_none() && !self.closes) else {
            return false;
        };
        self.note(context, fields.status(), body);
        match &mut self.exchange {
            Exchange::Now(reply) => reply.send_joined(own, fields, body),
            Exchange::Held(http, exchange) => {
                http.with_reply(context, *exchange, |reply| {
                    reply.send_joined(own, fields, body);
                });
            }
        }
        true
    }

    fn stream_as(&mut self, context: &mut Context, response: &Response<'_>, piece: &[Bytes]) {
        self.note(context, response.status, &response.body);
        let closes = self.closes;
        let send = |reply: &mut Reply<'_>| {
            if closes {
                reply.close_after();
            }
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

    /// Counts an answer, and writes its line of the access log.
    fn note(&self, context: &Context, status: u16, body: &Body<'_>) {
        let log = &self.responses.log;
        let arrived = (!self.was_held).then_some(self.arrived);
        let places = (self.exchange.listener_label(), self.route_cells());
        log.count(context, places, status, arrived);
        if log.is_written() {
            self.write_line(context, status, body);
        }
    }

    fn route_cells(&self) -> Option<&RouteCells> {
        let responses = &self.responses;
        responses.figures.cells(&responses.log.metrics, self.route?)
    }

    fn write_line(&self, context: &Context, status: u16, body: &Body<'_>) {
        let RequestLine {
            method,
            target,
            head,
            key,
        } = self.line.unwrap_or_default();
        let has_body = method != "HEAD" && !matches!(status, 204 | 304);
        let logged = Logged {
            method,
            target,
            protocol: self.protocol,
            remote: self.peer_address(),
            arrived: self.arrived,
            status,
            bytes: body.len().filter(|_| has_body).unwrap_or(0),
            outcome: self.outcome.map_or(FORWARDED, PollOutcome::as_str),
            fields: RequestFields::of_head(head),
            route: self
                .route
                .and_then(|route| self.responses.figures.prefix(route)),
            key: self.key.as_deref().or(key),
            upstream: None,
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
