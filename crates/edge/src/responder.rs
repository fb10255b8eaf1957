//! The one response to one request: where it goes, and what is written down of it on the way.
//!
//! A [`Responder`] counts its response, writes its line of the access log and adds the fields for
//! web pages. A [`ResponseLog`] alone is enough for responses that are sent in another way.

use crate::access::{CorsGrant, CorsTable, ShownClient, redacted};
use crate::config::{Config, RouteId, Routes};
use crate::constant_fields::{ConstantFields, Usual};
use crate::held::{held, hold};
use crate::ids::CLIENT_STREAM;
use crate::log::{AccessLine, AccessWriter, RequestFields};
use crate::metrics::{LoopMetrics, PollOutcome, RouteCells};
use crate::route_figures::{RouteFigures, class_of, count_response, is_prompt};
use bytes::Bytes;
use dwell_engine::{
    Body, ClientNames, ExchangeId, Http, Outcome, Reply, Request, Response, SharedFields,
};
use dwell_evloop::Context;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The metrics of a loop, and its writer of the access log.
#[derive(Clone, Debug)]
pub(crate) struct ResponseLog {
    pub(crate) metrics: Arc<LoopMetrics>,
    access: Option<AccessWriter>,
    /// The query parameter with a token, which is redacted.
    token_parameter: Option<String>,
}

/// One response, for the access log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) protocol: Protocol,
    /// The client's address, unless the system did not give it.
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) arrived: Instant,
    pub(crate) status: u16,
    /// Units: bytes of the body.
    pub(crate) bytes: u64,
    pub(crate) outcome: &'a str,
    pub(crate) fields: RequestFields<'a>,
    pub(crate) route: Option<&'a str>,
    pub(crate) key: Option<&'a [u8]>,
    /// The server of a forwarded request, with the time to the head of its response.
    pub(crate) upstream: Option<(SocketAddr, Duration)>,
}

/// The parts of a request that its line of the access log has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestLine<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    /// The head, or as much of it as is kept.
    pub(crate) head: &'a [u8],
    /// The key of a poll that was kept.
    pub(crate) key: Option<&'a [u8]>,
}

impl<'a> RequestLine<'a> {
    pub(crate) fn of(request: &Request<'a>) -> Self {
        Self {
            method: request.head.method,
            target: request.head.target,
            head: request.head_bytes,
            key: None,
        }
    }
}

/// The version of HTTP that a client speaks, as far as the access log tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    /// HTTP/1.1 or HTTP/1.0.
    Http1,
    Http2,
}

impl Protocol {
    /// The protocol of an exchange.
    pub(crate) fn of(exchange: ExchangeId) -> Self {
        if exchange.connection().kind() == CLIENT_STREAM {
            Self::Http2
        } else {
            Self::Http1
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1",
            Self::Http2 => "HTTP/2",
        }
    }
}

impl ResponseLog {
    pub(crate) fn new(
        metrics: Arc<LoopMetrics>,
        access: Option<AccessWriter>,
        config: &Config,
    ) -> Self {
        Self {
            metrics,
            access,
            token_parameter: config.jwt.query_parameter.clone(),
        }
    }

    /// Makes the same log for another configuration.
    pub(crate) fn reconfigured(&self, config: &Config) -> Self {
        Self::new(Arc::clone(&self.metrics), self.access.clone(), config)
    }

    /// True if there is an access log, for which requests have to be kept.
    pub(crate) const fn is_written(&self) -> bool {
        self.access.is_some()
    }

    /// Counts a response by its status.
    pub(crate) fn count(&self, status: u16) {
        self.metrics.http_requests.increment(class_of(status));
    }

    /// Sends and logs a response to the request at hand, which is neither a poll nor proxied.
    pub(crate) fn send(
        &self,
        context: &Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
        response: &Response<'_>,
    ) {
        self.count(response.status);
        if self.is_written() {
            let has_body = request.head.method != "HEAD";
            let logged = Logged {
                method: request.head.method,
                target: request.head.target,
                protocol: Protocol::of(request.exchange),
                remote: reply.peer_address(),
                arrived: context.now(),
                status: response.status,
                bytes: response.body.len().filter(|_| has_body).unwrap_or(0),
                outcome: FORWARDED,
                fields: RequestFields::of_head(request.head_bytes),
                route: None,
                key: None,
                upstream: None,
            };
            self.write(context, &logged);
        }
        reply.send(response);
    }

    /// Writes a line of the access log, if there is one.
    pub(crate) fn write(&self, context: &Context, response: &Logged<'_>) {
        let Some(access) = &self.access else { return };
        let unknown = (Ipv4Addr::UNSPECIFIED, 0).into();
        access.write(&AccessLine {
            time: context.wall(),
            remote: response.remote.unwrap_or(unknown),
            method: response.method,
            target: &redacted(response.target, self.token_parameter.as_deref()),
            protocol: response.protocol.as_str(),
            status: response.status,
            bytes: response.bytes,
            duration: context.now().saturating_duration_since(response.arrived),
            outcome: response.outcome,
            fields: response.fields,
            route: response.route,
            key: response.key,
            upstream: response.upstream,
        });
    }
}

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

/// Outcome, in the access log, of every response that is no poll's.
pub(crate) const FORWARDED: &str = "forward";

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
        self.responses.log.count(status);
        if let Some(cells) = self.route_cells() {
            count_response(cells, status);
        }
        if let (Exchange::Now(_), Some(route)) = (&self.exchange, self.route)
            && self.outcome.is_some_and(is_prompt)
        {
            let waited = context.now().saturating_duration_since(self.arrived);
            let Responses { figures, log, .. } = &*self.responses;
            figures.observe(&log.metrics, route, waited);
        }
        if self.responses.log.is_written() {
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
