//! Log of the responses of one loop: metrics, and lines of the access log.

use crate::access::redacted;
use crate::config::Config;
use crate::log::{AccessLine, AccessWriter};
use crate::metrics::{LoopMetrics, StatusClass};
use dwell_engine::{Reply, Request, Response};
use dwell_evloop::Context;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

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
    /// The client's address, unless the system did not give it.
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) arrived: Instant,
    pub(crate) status: u16,
    /// Units: bytes of the body.
    pub(crate) bytes: u64,
    pub(crate) outcome: &'a str,
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
        let class = StatusClass::of(status);
        self.metrics.http_requests.increment(class);
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
                remote: reply.peer_address(),
                arrived: context.now(),
                status: response.status,
                bytes: response.body.len().filter(|_| has_body).unwrap_or(0),
                outcome: "forward",
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
            status: response.status,
            bytes: response.bytes,
            duration: context.now().saturating_duration_since(response.arrived),
            outcome: response.outcome,
        });
    }
}
