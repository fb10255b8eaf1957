//! The admin listener: health, metrics and the dashboard.

use crate::dashboard::{self, Dashboard, Setting};
use crate::driver::ADMIN_KINDS;
use crate::metrics::{self, Health, Metrics};
use crate::store_server::StoreService;
use dwell_engine::{
    App, Body, BodyPlan, ExchangeId, Http, Limits, Outcome, Reply, Request, Response,
};
use dwell_evloop::{Context, Listener, Readiness, Stream, Token};
use dwell_proto::http1::RequestHead;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// An HTTP server of its own, so that it answers when the clients' one is full.
#[derive(Debug)]
pub(crate) struct Admin {
    http: Http,
    app: AdminApp,
}

#[derive(Debug)]
struct AdminApp {
    metrics: Arc<Metrics>,
    service: Option<Arc<StoreService>>,
    dashboard: Dashboard,
    started: Instant,
    draining: bool,
}

/// Connections of scrapers and health checks.
const CONNECTIONS_MAX: usize = 256;

impl Admin {
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        service: Option<Arc<StoreService>>,
        setting: Setting,
        started: Instant,
    ) -> Self {
        let limits = Limits {
            connections_max: CONNECTIONS_MAX,
            ..Limits::default()
        };
        let app = AdminApp {
            dashboard: Dashboard::new(Arc::clone(&metrics), service.clone(), setting, started),
            metrics,
            service,
            started,
            draining: false,
        };
        Self {
            http: Http::new(ADMIN_KINDS, limits),
            app,
        }
    }

    pub(crate) fn listen(&mut self, context: &mut Context, listener: Listener) -> io::Result<()> {
        self.http.listen(context, listener).map(drop)
    }

    /// Says from now on that the process is ending.
    pub(crate) fn drain(&mut self) {
        self.app.draining = true;
        self.app.dashboard.drain();
    }

    pub(crate) fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.http.ready(context, token, readiness, &mut self.app);
    }

    pub(crate) fn expired(&mut self, context: &mut Context, token: Token) {
        self.http.expired(context, token, &mut self.app);
    }
}

impl AdminApp {
    fn health(&self, context: &Context) -> Health {
        self.metrics
            .health(context.now().duration_since(self.started), self.draining)
    }
}

impl App for AdminApp {
    fn body(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        _: &RequestHead<'_, '_>,
        _: &Stream,
    ) -> BodyPlan {
        BodyPlan::Collect { bytes_max: 0 }
    }

    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        const NO_STORE: (&str, &[u8]) = ("Cache-Control", b"no-store");
        match (request.head.method, request.head.path) {
            ("GET" | "HEAD", "/-/health") => {
                let health = self.health(context);
                reply.send(&Response {
                    status: health.status,
                    fields: &[("Content-Type", b"application/json"), NO_STORE],
                    body: Body::Slice(health.body.as_bytes()),
                });
            }
            ("GET" | "HEAD", "/-/metrics") => {
                let text = self
                    .metrics
                    .render(self.service.as_deref().map(StoreService::figures));
                reply.send(&Response {
                    status: 200,
                    fields: &[("Content-Type", metrics::CONTENT_TYPE.as_bytes()), NO_STORE],
                    body: Body::Slice(text.as_bytes()),
                });
            }
            (_, dashboard::PAGE_PATH | dashboard::EVENTS_PATH) => {
                return self.dashboard.request(context, request, reply);
            }
            (_, "/-/health" | "/-/metrics") => reply.send(&Response {
                status: 405,
                fields: &[("Allow", b"GET, HEAD")],
                body: Body::Empty,
            }),
            _ => reply.text(404, "here are /-/, /-/health and /-/metrics"),
        }
        Outcome::Answered
    }

    // Only the streams of the dashboard are held.
    fn expired(
        &mut self,
        context: &mut Context,
        _: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        self.dashboard.expired(context, tag, reply)
    }

    fn abandoned(&mut self, _: &mut Context, _: ExchangeId, _: u64) {
        self.dashboard.abandoned();
    }
}
