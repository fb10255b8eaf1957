//! The admin listener: health, metrics, the dashboard, and the values of keys.

mod guard;

use crate::access::{Bearer, Tokens};
use crate::config::Config;
use crate::cursor::Cursor;
use crate::descriptors::Descriptors;
use crate::held::held;
use crate::metrics::{self, AdminRefusal, Health, Metrics, PublishOutcome, StoreFigures};
use crate::ops::dashboard::{self, Dashboard, Setting};
use crate::ops::query::{ClientQuery, EXPLAIN_PATH, LoopQuery, PendingQueries, WATCHED_PATH};
use crate::polls::{Valued, seconds};
use crate::publish::{self, Finished, PublishRequest, PublishResult};
use dwell_engine::{
    App, Body, BodyPlan, Detached, ExchangeId, Http, Kinds, Limits, Outcome, Reply, Request,
    Response,
};
use dwell_evloop::{Context, Listener, Readiness, Stream, Token};
use dwell_proto::http1::RequestHead;
use dwell_store_server::StoreService;
use guard::Guard;
pub(crate) use guard::{is_for_a_name, is_of_another_site};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The admin listener: an HTTP server of its own, so that it answers when the clients' server is
/// full.
#[derive(Debug)]
pub(crate) struct Admin {
    http: Http,
    app: AdminApp,
}

#[derive(Debug)]
struct AdminApp {
    metrics: Arc<Metrics>,
    service: Option<Arc<StoreService>>,
    descriptors: Arc<Descriptors>,
    dashboard: Dashboard,
    started: Instant,
    draining: bool,
    guard: Guard,
    /// Tokens of publishers.
    tokens: Arc<Tokens>,
    value_bytes_max: u64,
    /// Requests of publishers for memcached.
    publish_requests: Vec<AdminPublish>,
    desk: PendingQueries,
}

/// A publisher's request for memcached: the exchange, the request, the key and the value.
pub(crate) type AdminPublish = (ExchangeId, PublishRequest, Vec<u8>, Vec<u8>);

/// Path of keys; a percent-encoded key follows.
const KEYS: &str = "/-/keys/";
/// Tag of an exchange that waits for memcached; streams of the dashboard have others.
const PUBLISH: u64 = u64::MAX;
/// Longest time for a request of a publisher; each query to memcached has a shorter one.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(60);

const NO_STORE: (&str, &[u8]) = ("Cache-Control", b"no-store");

/// Connections of scrapers and health checks.
const CONNECTIONS_MAX: usize = 256;

impl Admin {
    /// Makes a server without listeners; its tokens have `kinds`.
    pub(crate) fn new(
        kinds: Kinds,
        (metrics, service, descriptors): (
            Arc<Metrics>,
            Option<Arc<StoreService>>,
            Arc<Descriptors>,
        ),
        started: Instant,
        config: &Config,
        tokens: &Arc<Tokens>,
    ) -> Self {
        let limits = Limits {
            connections_max: CONNECTIONS_MAX,
            ..Limits::default()
        };
        let app = AdminApp {
            dashboard: Dashboard::new(
                Arc::clone(&metrics),
                service.clone(),
                Setting::of(config, &descriptors),
                started,
            ),
            metrics,
            service,
            descriptors,
            started,
            draining: false,
            guard: Guard::of(&config.server),
            tokens: Arc::clone(tokens),
            value_bytes_max: config.publish.value_bytes_max,
            publish_requests: Vec::new(),
            desk: PendingQueries::default(),
        };
        Self {
            http: Http::new(kinds, limits),
            app,
        }
    }

    /// Keeps a reading of the figures for the dashboard, and returns whether they have changed.
    pub(crate) fn keep_reading(&mut self, context: &Context) -> bool {
        self.app.dashboard.keep_reading(context)
    }

    pub(crate) fn listen(&mut self, context: &mut Context, listener: Listener) -> io::Result<()> {
        self.http.listen(context, listener).map(drop)
    }

    /// Applies a configuration, and the tokens of publishers.
    pub(crate) fn reconfigure(&mut self, config: &Config, tokens: &Arc<Tokens>) {
        self.app.guard = Guard::of(&config.server);
        self.app.tokens = Arc::clone(tokens);
        self.app.value_bytes_max = config.publish.value_bytes_max;
        let setting = Setting::of(config, &self.app.descriptors);
        self.app.dashboard.reconfigure(setting);
    }

    /// Reports from now on that the process drains.
    pub(crate) fn drain(&mut self) {
        self.app.draining = true;
        self.app.dashboard.drain();
    }

    /// Closes the listeners, and hands at most so many idle connections to `leave`; returns their
    /// number.
    pub(crate) fn hand_over(
        &mut self,
        context: &mut Context,
        count_max: usize,
        mut leave: impl FnMut(Detached),
    ) -> usize {
        self.drain();
        let leave = |_: &mut Context, detached| leave(detached);
        let (http, app) = (&mut self.http, &mut self.app);
        http.hand_over(context, app, false, count_max, leave)
    }

    /// Ends the connections that have not been handed over, with their next answer.
    pub(crate) fn end(&mut self, context: &mut Context) {
        self.http.drain(context, &mut self.app);
    }

    /// Serves a client of the predecessor.
    pub(crate) fn adopt(&mut self, context: &mut Context, detached: Detached) {
        self.http.adopt_detached(context, detached, &mut self.app);
    }

    /// The listeners, for a successor.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = &Listener> {
        self.http.listeners()
    }

    /// Takes the requests for memcached.
    pub(crate) fn publish_requests(&mut self) -> Vec<AdminPublish> {
        std::mem::take(&mut self.app.publish_requests)
    }

    /// Sends the result of a publisher's request.
    pub(crate) fn publish_ended(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        finished: &Finished<()>,
    ) {
        publish::send(&finished.published, finished.cursor, |answer| {
            self.http.answer(context, exchange, answer);
        });
    }

    /// Takes the queries that the loops are to be asked.
    pub(crate) fn queries(&mut self) -> Vec<Arc<LoopQuery>> {
        self.app.desk.outbox()
    }

    /// Takes the queries that `loops` loops have answered, or that have timed out.
    pub(crate) fn answered_queries(&mut self, loops: usize) -> Vec<(ExchangeId, ClientQuery)> {
        self.app.desk.answered(loops)
    }

    /// Makes the tag of a lookup whose value is for `query`.
    pub(crate) fn lookup_tag(&mut self, query: &Arc<LoopQuery>) -> Token {
        self.app.desk.lookup_tag(query)
    }

    /// Delivers the value of a lookup.
    pub(crate) fn found(&mut self, token: Token, value: &Valued) {
        self.app.desk.found(token, value);
    }

    /// Sends the response to a query: JSON, or the fault in the query.
    pub(crate) fn queried(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        status: u16,
        text: &[u8],
    ) {
        let content_type: &[u8] = match status {
            200 => b"application/json",
            _ => b"text/plain; charset=utf-8",
        };
        let answer = Response {
            status,
            fields: &[("Content-Type", content_type), NO_STORE],
            body: Body::Slice(text),
        };
        self.http.answer(context, exchange, &answer);
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
        let uptime = context.now().duration_since(self.started);
        Health::of(&self.metrics, uptime, self.draining)
    }

    /// Handles a request for the value of a key.
    fn keys(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        path: &str,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let counts = &self.metrics.loops()[0].publishes;
        let send = |answer: &Response<'_>| reply.send(answer);
        let bearer = self.tokens.bearer(request.head.fields);
        if self.tokens.is_empty() {
            let why = "publishing needs publish.token or publish.token_file";
            publish::refuse(403, why, send);
        } else if bearer != Bearer::Known {
            counts.increment(PublishOutcome::Denied);
            publish::denied(bearer == Bearer::Unknown, send);
        } else {
            return self.carry_out(context, request, path, reply);
        }
        Outcome::Answered
    }

    fn carry_out(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        path: &str,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let counts = &self.metrics.loops()[0].publishes;
        let publish_request = match PublishRequest::of(request.head) {
            Ok(Some(publish_request)) => publish_request,
            Ok(None) => {
                reply.send(&Response {
                    status: 405,
                    fields: &[("Allow", b"GET, HEAD, PUT, POST, DELETE")],
                    body: Body::Empty,
                });
                return Outcome::Answered;
            }
            Err(error) => {
                counts.increment(PublishOutcome::Invalid);
                publish::refuse(error.status(), &error.to_string(), |to| reply.send(to));
                return Outcome::Answered;
            }
        };
        let key = match publish::decoded_key(path) {
            Ok(key) => key,
            Err(error) => {
                counts.increment(PublishOutcome::Invalid);
                publish::refuse(error.status(), &error.to_string(), |to| reply.send(to));
                return Outcome::Answered;
            }
        };
        let Some(service) = &self.service else {
            let value = request.body.to_vec();
            self.publish_requests
                .push((request.exchange, publish_request, key, value));
            return held(PUBLISH, PUBLISH_TIMEOUT);
        };
        let (store, now) = (service.store(), seconds(context));
        let published = publish::carry_out(store, publish_request, &key, request.body, now);
        counts.increment(published.outcome());
        let cursor = Cursor::of(request.body, 0);
        publish::send(&published, cursor, |answer| reply.send(answer));
        Outcome::Answered
    }
}

impl App for AdminApp {
    fn body(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        head: &RequestHead<'_, '_>,
        _: &Stream,
    ) -> BodyPlan {
        if !head.path.starts_with(KEYS) {
            return BodyPlan::Collect { bytes_max: 0 };
        }
        let is_refused = self.guard.refusal(head).is_some();
        if is_refused || self.tokens.bearer(head.fields) != Bearer::Known {
            // Its head alone is answered, so that the length of the body decides nothing.
            return BodyPlan::Stream {
                bytes_max: u64::MAX,
            };
        }
        BodyPlan::Collect {
            bytes_max: self.value_bytes_max,
        }
    }

    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        if let Some(refusal) = self.guard.refusal(request.head) {
            self.metrics.loops()[0].admin_refused.increment(refusal);
            match refusal {
                AdminRefusal::Host => reply.text(421, "not a name of server.admin_hosts"),
                AdminRefusal::Site => reply.text(403, "a page of another origin changes nothing"),
            }
            return Outcome::Answered;
        }
        if let Some(path) = request.head.path.strip_prefix(KEYS) {
            return self.keys(context, request, path, reply);
        }
        match (request.head.method, request.head.path) {
            ("GET" | "HEAD", path @ ("/-/health" | "/-/ready")) => {
                let health = self.health(context);
                let status = match path {
                    "/-/ready" => health.readiness,
                    _ => health.status,
                };
                reply.send(&Response {
                    status,
                    fields: &[("Content-Type", b"application/json"), NO_STORE],
                    body: Body::Slice(health.body.as_bytes()),
                });
            }
            ("GET" | "HEAD", "/-/metrics") => {
                let text = self
                    .metrics
                    .render(self.service.as_deref().map(StoreFigures::of));
                reply.send(&Response {
                    status: 200,
                    fields: &[("Content-Type", metrics::CONTENT_TYPE.as_bytes()), NO_STORE],
                    body: Body::Slice(text.as_bytes()),
                });
            }
            (
                _,
                dashboard::PAGE_PATH
                | dashboard::EVENTS_PATH
                | dashboard::HISTORY_PATH
                | dashboard::RECENT_PATH,
            ) => return self.dashboard.request(context, request, reply),
            (_, EXPLAIN_PATH) => return self.desk.explain(request, reply),
            (_, WATCHED_PATH) => return self.desk.watched(request, reply),
            (_, "/-/health" | "/-/ready" | "/-/metrics") => reply.send(&Response {
                status: 405,
                fields: &[("Allow", b"GET, HEAD")],
                body: Body::Empty,
            }),
            _ => reply.text(
                404,
                "here are /-/, /-/health, /-/ready, /-/metrics, /-/history, /-/events, \
                 /-/watched, /-/explain and /-/keys/KEY",
            ),
        }
        Outcome::Answered
    }

    fn expired(
        &mut self,
        context: &mut Context,
        _: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        if tag == PUBLISH {
            let unanswered = PublishResult::Unanswered("memcached has not answered in time");
            publish::send(&unanswered, Cursor::of(b"", 0), |answer| reply.send(answer));
            return Outcome::Answered;
        }
        if PendingQueries::is_own(tag) {
            return self.desk.expired(tag);
        }
        self.dashboard.expired(context, tag, reply)
    }

    fn abandoned(&mut self, _: &mut Context, _: ExchangeId, tag: u64) {
        if tag == PUBLISH {
            return;
        }
        if PendingQueries::is_own(tag) {
            self.desk.abandoned(tag);
        } else {
            self.dashboard.abandoned();
        }
    }
}
