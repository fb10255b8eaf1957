//! The counts of responses, and their lines in the access log.

use crate::access::{redacted, redacted_key};
use crate::config::{Config, RouteConfig};
use crate::ids::CLIENT_STREAM;
use crate::log::{AccessLine, AccessWriter, RequestFields};
use crate::metrics::{LoopMetrics, RouteCells};
use crate::route_figures::{class_of, count_response};
use dwell_engine::{ExchangeId, Reply, Request, Response};
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
    /// Prefixes of the routes whose keys are made of that parameter.
    token_routes: Arc<[String]>,
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
        let token_parameter = config.jwt.query_parameter.clone();
        let takes_token = |route: &&Arc<RouteConfig>| {
            let parameter = token_parameter.as_deref();
            parameter.is_some_and(|parameter| route.key.takes_query(parameter))
        };
        let token_routes = config.routes.iter().filter(takes_token);
        Self {
            metrics,
            access,
            token_routes: token_routes.map(|route| route.prefix.clone()).collect(),
            token_parameter,
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

    /// Counts a response by its status, and the time since its request arrived; `arrived` is
    /// absent of a request that was held for a change.
    ///
    /// Shape: every response is counted here, once, when its head is written. `listener` is the
    /// label of the listener of its connection.
    pub(crate) fn count(
        &self,
        context: &Context,
        (listener, route): (Option<u8>, Option<&RouteCells>),
        status: u16,
        arrived: Option<Instant>,
    ) {
        self.count_status(listener, status);
        if let Some(cells) = route {
            count_response(cells, status);
        }
        let Some(arrived) = arrived else { return };
        let duration = context.now().saturating_duration_since(arrived);
        self.metrics.http_request_duration.observe(duration);
        if let Some(cells) = route {
            cells.duration.observe(duration);
        }
    }

    /// Counts a response by its status alone: its request could not be read.
    pub(crate) fn count_status(&self, listener: Option<u8>, status: u16) {
        let class = class_of(status);
        self.metrics.http_requests.increment(class);
        if let Some(cells) = self.metrics.listener_cells(listener) {
            cells.responses.increment(class);
        }
    }

    /// Sends and logs a response to the request at hand, which is neither a poll nor proxied.
    pub(crate) fn send(
        &self,
        context: &Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
        response: &Response<'_>,
    ) {
        let places = (reply.listener_label(), None);
        self.count(context, places, response.status, Some(context.now()));
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
        let parameter = self.token_parameter.as_deref();
        let has_token = |prefix: &str| self.token_routes.iter().any(|of| of == prefix);
        let redacted_key = (response.key.zip(parameter))
            .filter(|_| response.route.is_some_and(has_token))
            .map(|(key, parameter)| redacted_key(key, response.target, parameter));
        access.write(&AccessLine {
            time: context.wall(),
            remote: response.remote.unwrap_or(unknown),
            method: response.method,
            target: &redacted(response.target, parameter),
            protocol: response.protocol.as_str(),
            status: response.status,
            bytes: response.bytes,
            duration: context.now().saturating_duration_since(response.arrived),
            outcome: response.outcome,
            fields: response.fields,
            route: response.route,
            key: redacted_key.as_deref().or(response.key),
            upstream: response.upstream,
        });
    }
}

/// Outcome, in the access log, of every response that is no poll's.
pub(crate) const FORWARDED: &str = "forward";
