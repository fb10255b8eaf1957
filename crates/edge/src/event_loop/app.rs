//! The clients' requests: each goes to the polls of the loop, or to the proxy.

use super::admission::Admission;
use super::challenges;
use super::listener_figures;
use crate::config::Config;
use crate::held::held;
use crate::ids::{Held, ProxiedId, Requested, StreamId};
use crate::log::LogThrottle;
use crate::metrics::{
    ClientTimeout, ConnectionRefusal, HandshakeKind, HandshakeOutcome, ProxyHeaderFault,
    RefusedStatus,
};
use crate::ops::admin::{is_for_a_name, is_of_another_site};
use crate::pages::{PAGE_BODY_BYTES_MAX, PageRequest, Pages};
use crate::polls::{Polls, TooLarge, seconds};
use crate::proxy::{self, Adopted, Proxy, Tunnels};
use crate::responder::ResponseLog;
use dwell_engine::{
    App, Body, BodyPlan, Detached, ExchangeId, Http, HttpEvent, Outcome, ProxyHeaderFailure, Reply,
    Request, Response,
};
use dwell_evloop::{Context, Id, Stream, Token};
use dwell_proto::http1::{RequestHead, Trailers};
use dwell_store::{Expiry, Store};
use dwell_upstream::{FaultReport, Unsent, UpstreamError, UpstreamEvent, Upstreams};
use std::net::SocketAddr;
use std::sync::Arc;

/// The application of the clients' server. It chooses the component that serves a request, and
/// passes every callback to it by the tag of the exchange.
#[derive(Debug)]
pub(crate) struct Front {
    pub(super) config: Arc<Config>,
    log: ResponseLog,
    pub(crate) polls: Polls,
    pub(crate) proxy: Proxy,
    pub(crate) admission: Admission,
    /// Pages that are served before any route, and the store that they set keys in.
    pages: Option<(Box<dyn Pages>, Arc<Store>)>,
    /// Clients that began TLS without there being any.
    tls_on_plain: LogThrottle,
    /// Connections of balancers without the header of the PROXY protocol.
    no_proxy_header: LogThrottle,
}

impl Front {
    pub(crate) fn new(
        config: Arc<Config>,
        log: ResponseLog,
        polls: Polls,
        proxy: Proxy,
        admission: Admission,
    ) -> Self {
        Self {
            config,
            log,
            polls,
            proxy,
            admission,
            pages: None,
            tls_on_plain: LogThrottle::default(),
            no_proxy_header: LogThrottle::default(),
        }
    }

    /// Serves these pages before any route.
    pub(crate) fn serve_pages(&mut self, pages: Box<dyn Pages>, store: Arc<Store>) {
        self.pages = Some((pages, store));
    }

    /// Has what comes by a listener counted under its address.
    pub(crate) fn name_listener(
        &self,
        http: &mut Http,
        listener: Token,
        address: SocketAddr,
        is_secure: bool,
    ) {
        listener_figures::name(&self.log.metrics, http, listener, address, is_secure);
    }

    /// Applies a configuration; returns the one before.
    pub(crate) fn reconfigure(&mut self, config: &Arc<Config>) -> Arc<Config> {
        self.log = self.log.reconfigured(config);
        self.polls.reconfigure(config);
        self.proxy.reconfigure(config, &self.log);
        self.admission.reconfigure(config);
        std::mem::replace(&mut self.config, Arc::clone(config))
    }

    /// True if no exchange waits for its response.
    pub(crate) fn is_idle(&self) -> bool {
        self.polls.is_idle() && self.proxy.is_idle()
    }

    /// True if the end of a turn has left something to be sent.
    pub(crate) fn has_left(&self) -> bool {
        self.polls.has_left() || self.proxy.has_actions()
    }

    /// Handles an event of a request to the application.
    pub(crate) fn upstream_event(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        event: UpstreamEvent,
    ) {
        if let UpstreamEvent::Failed { error, report, .. } = &event {
            self.log_failure(Some(Requested::from_bits(event.tag())), error, *report);
        }
        match Requested::from_bits(event.tag()) {
            Requested::Fetch(fetch) => {
                if let Some(large) = self.polls.fetch_event(context, http, fetch, event) {
                    self.pass_on(context, http, &large);
                }
            }
            Requested::AuthSubrequest(subrequest) => {
                self.polls
                    .subrequest_event(context, http, subrequest, &event);
                if let UpstreamEvent::Large { connection, .. } = event {
                    self.proxy.cancel(connection, subrequest.into());
                }
            }
            Requested::Proxied(_) => self.proxy.upstream_event(context, http, event),
        }
    }

    /// Logs a request that the application has failed, if a line is due.
    fn log_failure(&self, request: Option<Requested>, error: &UpstreamError, report: FaultReport) {
        let FaultReport { server, count } = report;
        let Some(count) = count else { return };
        let route = match request {
            Some(Requested::Fetch(fetch)) => self.polls.route_of_fetch(fetch),
            Some(Requested::AuthSubrequest(subrequest)) => {
                self.polls.route_of_subrequest(subrequest)
            }
            Some(Requested::Proxied(_)) | None => None,
        };
        let server = server.map_or_else(|| "(none)".to_owned(), |server| server.to_string());
        let route = route.unwrap_or("(forwarded)");
        tracing::warn!(%server, %route, %error, count, "upstream does not answer");
    }

    /// Carries out the actions of the proxy when the turn ends.
    pub(super) fn carry_out(
        &mut self,
        context: &mut Context,
        upstreams: &mut Upstreams,
        http: &mut Http,
        tunnels: &mut Tunnels,
    ) {
        let unsent = proxy::carry_out(context, upstreams, &mut self.proxy, http, tunnels);
        for Unsent { error, report } in unsent {
            self.log_failure(None, &error, report);
        }
    }

    /// Passes a response that is too large for polls on to the client whose request was sent, or
    /// cancels it.
    fn pass_on(&mut self, context: &mut Context, http: &mut Http, large: &TooLarge) {
        let (connection, fetch) = (large.connection, large.fetch);
        let figures = self.polls.route_figures();
        let is_taken = large.client(figures).is_some_and(|client| {
            let adopted = Adopted {
                client,
                connection,
                server: large.server,
                fetch,
            };
            self.proxy.adopt(context, http, &adopted, &large.parts)
        });
        if !is_taken {
            self.proxy.cancel(connection, fetch.into());
            self.polls.refuse_large(context, http, large);
        }
    }

    /// Serves a page of the program; false for all other requests.
    fn serve_page(&self, context: &Context, request: &Request<'_>, reply: &mut Reply<'_>) -> bool {
        let Some((pages, store)) = &self.pages else {
            return false;
        };
        let asked = PageRequest {
            method: request.head.method,
            path: request.head.path,
            body: request.body,
            is_of_another_site: is_of_another_site(request.head),
            is_for_a_name: is_for_a_name(request.head),
        };
        let Some(page) = pages.respond(&asked) else {
            return false;
        };
        if let Some((key, value)) = page.set {
            store.set(key.as_bytes(), 0, Expiry::NEVER, value, seconds(context));
        }
        let response = Response {
            status: page.status,
            fields: &[
                ("Content-Type", page.content_type.as_bytes()),
                ("Cache-Control", b"no-store"),
            ],
            body: Body::Slice(&page.body),
        };
        self.log.send(context, request, reply, &response);
        true
    }
}

impl App for Front {
    fn body(
        &mut self,
        _context: &mut Context,
        _exchange: ExchangeId,
        head: &RequestHead<'_, '_>,
        stream: &Stream,
    ) -> BodyPlan {
        if let Some((pages, _)) = &self.pages
            && pages.has(head.path)
        {
            return BodyPlan::Collect {
                bytes_max: PAGE_BODY_BYTES_MAX,
            };
        }
        match self.polls.routes.choose(head.path) {
            Ok(Some(route)) => self.polls.body_plan(route, head, stream),
            Ok(None) => self.proxy.body_plan(),
            // It is rejected without its body.
            Err(_) => BodyPlan::Stream {
                bytes_max: self.config.limits.body_bytes_max,
            },
        }
    }

    fn body_data(
        &mut self,
        _context: &mut Context,
        _exchange: ExchangeId,
        tag: u64,
        data: &[u8],
        _reply: &mut Reply<'_>,
    ) -> Outcome {
        self.proxy.body_data(ProxiedId::from_bits(tag), data)
    }

    fn body_end(
        &mut self,
        _context: &mut Context,
        _exchange: ExchangeId,
        tag: u64,
        trailers: Trailers<'_>,
        _reply: &mut Reply<'_>,
    ) -> Outcome {
        self.proxy.body_end(ProxiedId::from_bits(tag), trailers)
    }

    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let listener = reply.listener_label();
        if let Some(cells) = self.log.metrics.listener_cells(listener) {
            cells.requests.increment();
        }
        if self.pages.is_some() && self.serve_page(context, request, reply) {
            return Outcome::Answered;
        }
        if let Some(folder) = &self.config.tls.acme_challenge
            && let Some(token) = request.head.path.strip_prefix(challenges::PREFIX)
        {
            let response = challenges::respond(folder, request.head.method, token);
            response.send(|response| self.log.send(context, request, reply, response));
            return Outcome::Answered;
        }
        match self.polls.routes.choose(request.head.path) {
            Ok(Some(route)) => self.polls.request(context, route, request, reply),
            Ok(None) => self.proxy.request(context, request, reply),
            Err(_) => self.polls.refuse_ambiguous(context, request, reply),
        }
    }

    fn puts_off(&mut self, context: &Context, head: &RequestHead<'_, '_>) -> bool {
        self.polls.puts_off(context, head)
    }

    fn expired(
        &mut self,
        context: &mut Context,
        _exchange: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        match Held::from_bits(tag) {
            Held::Poll(poll) => self.polls.poll_expired(context, poll, reply),
            Held::Stream(stream) => self.polls.event_streams().expired(context, stream, reply),
            Held::MultiPoll(poll) => self.polls.multi_polls().expired(context, poll, reply),
            Held::Publish(publish) => self.polls.publications().expired(publish),
            Held::Proxied(proxied) => self.proxy.expired(proxied, reply),
        }
    }

    fn drained(
        &mut self,
        context: &mut Context,
        _exchange: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        match Held::from_bits(tag) {
            Held::Stream(stream) => self.polls.event_streams().drained(context, stream, reply),
            Held::Poll(_) | Held::MultiPoll(_) | Held::Publish(_) => {
                held(tag, self.polls.owed_time())
            }
            Held::Proxied(proxied) => self.proxy.drained(proxied),
        }
    }

    fn peer_closed(&mut self, _exchange: ExchangeId, tag: u64) -> bool {
        // A client that ends its side and only then reads gets an answer that is on its way.
        match Held::from_bits(tag) {
            Held::Poll(poll) => !self.polls.is_owed(poll),
            Held::Stream(_) => true,
            Held::MultiPoll(poll) => !self.polls.multi_polls().is_asking(poll),
            Held::Publish(_) => false,
            Held::Proxied(proxied) => self.proxy.peer_closed(proxied),
        }
    }

    fn abandoned(&mut self, context: &mut Context, _exchange: ExchangeId, tag: u64) {
        match Held::from_bits(tag) {
            Held::Poll(poll) => self.polls.poll_abandoned(poll),
            Held::Stream(stream) => self.polls.event_streams().abandoned(stream),
            Held::MultiPoll(poll) => self.polls.multi_polls().abandoned(poll),
            Held::Publish(_) => {}
            Held::Proxied(proxied) => self.proxy.abandoned(context, proxied),
        }
    }

    fn detached(
        &mut self,
        _context: &mut Context,
        _exchange: ExchangeId,
        tag: u64,
        detached: Detached,
    ) {
        self.polls.detached(StreamId::from_bits(tag), detached);
    }

    fn accepted(&mut self, _: &mut Context, stream: Stream, open: usize) -> Option<Stream> {
        // Connections that have left HTTP count as well.
        self.admission.admit(stream, open + self.polls.sockets())
    }

    fn expects_proxy_header(&mut self, stream: &Stream) -> bool {
        self.admission.expects_proxy_header(stream)
    }

    fn identified(&mut self, _: &mut Context, stream: &mut Stream) -> bool {
        self.admission.admit_identified(stream)
    }

    fn streams_open(&mut self, stream: &mut Stream, open: usize) -> bool {
        self.admission.count_requests(stream, open)
    }

    fn stream_may_leave(&mut self, is_full: bool) -> bool {
        // It counts as a connection from then on, as one of HTTP/1.1 that has left goes on to do.
        if is_full {
            self.admission.refused(ConnectionRefusal::ConnectionsMax);
        }
        !is_full
    }

    fn event(&mut self, event: HttpEvent) {
        let metrics = &self.log.metrics;
        let timeouts = &metrics.client_timeouts;
        let handshakes = &metrics.tls_handshakes;
        match event {
            HttpEvent::Accepted => metrics.connections.increment(),
            HttpEvent::Refused => self.admission.refused(ConnectionRefusal::ConnectionsMax),
            HttpEvent::Exhausted => self.admission.refused(ConnectionRefusal::Descriptors),
            HttpEvent::HandshakeDone(agreed) => {
                handshakes.increment(HandshakeOutcome::Done);
                metrics.tls_established.increment(HandshakeKind::of(agreed));
            }
            HttpEvent::HandshakeFailed(failure) => {
                handshakes.increment(HandshakeOutcome::of(failure));
            }
            HttpEvent::WriteTimeout => timeouts.increment(ClientTimeout::Write),
            HttpEvent::TlsOnPlain => {
                metrics.tls_on_plain.increment();
                if let Some(count) = self.tls_on_plain.note(dwell_evloop::now()) {
                    tracing::warn!(
                        count,
                        "a client began TLS on an address of server.listen, which is plain: move \
                         the address to tls.listen, or have the client use http://"
                    );
                }
            }
            HttpEvent::ProxyHeaderFailed { why, from } => {
                metrics
                    .proxy_headers_failed
                    .increment(ProxyHeaderFault::of(why));
                if why == ProxyHeaderFailure::Invalid
                    && let Some(count) = self.no_proxy_header.note(dwell_evloop::now())
                {
                    let balancer = from.map(|from| from.ip().to_canonical().to_string());
                    tracing::warn!(
                        balancer = balancer.unwrap_or_default(),
                        count,
                        "a connection has no header of the PROXY protocol and was closed: have \
                         the balancer send it, or remove its address from server.proxy_protocol"
                    );
                }
            }
            HttpEvent::BodyTimeout => timeouts.increment(ClientTimeout::Request),
            HttpEvent::Rejected { status, listener } => {
                if status == 408 {
                    timeouts.increment(ClientTimeout::Request);
                }
                metrics.bad_requests.increment(RefusedStatus::of(status));
                if let Some(cells) = metrics.listener_cells(listener) {
                    cells.rejected.increment();
                }
                self.log.count_status(listener, status);
            }
            _ => {}
        }
    }
}
