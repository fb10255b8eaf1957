//! Components of the loops.

use super::error::RunError;
use super::listeners::Bound;
use super::notify::Notifier;
use super::outward;
use super::peers::Peers;
use super::plans::resolve;
use super::reload::{ConfigSource, Reloader};
use super::signal_report::SignalReporter;
use super::supervisor::{Files, Supervisor};
use super::tls::Certificates;
use super::upgrade::Upgrader;
use crate::access::Access;
use crate::config::{Config, IoUring, share};
use crate::descriptors::Descriptors;
use crate::event_loop::{
    ADMIN_KINDS, Admission, CLIENT_KINDS, Cache, EdgeLoop, Ending, Front, Hints, HistoryClock,
    HistoryRest, Listening, Message, OutputBound, PRESENCE, PresenceReports, RedisCache, Servers,
    Settings, UPSTREAM_KINDS, http_limits, kind, shown_address,
};
use crate::handoff::Handoff;
use crate::log::AccessLog;
use crate::metrics::{LoopMetrics, Metrics};
use crate::ops::admin::Admin;
use crate::pages::MakePages;
use crate::polls::{LimitLog, LoopMember, Memory, Polls, Source};
use crate::presence::{Presence, WebhookPlan, Webhooks};
use crate::proxy::{Proxy, Tunnels};
use crate::published::Published;
use crate::responder::ResponseLog;
use dwell_engine::Http;
use dwell_engine::websocket::{MessageLimits, WebSocketOptions, WebSockets};
use dwell_evloop::{Context, EventLoop, Fleet, Listener, Sends, Token};
use dwell_memcache::on_loop::{Client, ClientOptions, Completion};
use dwell_memcache::watch::{ChangeFeed, WaitedKeys};
use dwell_store::WatcherId;
use dwell_store_server::{Kinds as StoreKinds, StoreServer, StoreService};
use dwell_upstream::Upstreams;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

const STORE_KINDS: StoreKinds = StoreKinds {
    listener: kind::STORE_LISTENER,
    connection: kind::STORE,
};

const REDIS_KINDS: dwell_redis::Kinds = dwell_redis::Kinds {
    connection: kind::REDIS,
    key: kind::REDIS_KEY,
};

/// Bytes of frames queued for one client, besides the last frame.
const WEBSOCKET_OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Inputs from which the components of every loop are made.
pub(super) struct LoopParts {
    pub(super) config: Arc<Config>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) service: Option<Arc<StoreService>>,
    pub(super) fleet: Arc<Fleet<Message>>,
    pub(super) settings: Arc<Published<Settings>>,
    pub(super) handoff: Arc<Handoff>,
    pub(super) access: Option<AccessLog>,
    pub(super) gate: Arc<Access>,
    pub(super) memory: Arc<Memory>,
    pub(super) limit_log: Arc<LimitLog>,
    pub(super) presence: Option<Arc<Presence>>,
    pub(super) waited: Option<Arc<WaitedKeys>>,
    pub(super) loops: usize,
    pub(super) demo: Option<Arc<dyn MakePages>>,
    pub(super) descriptors: Arc<Descriptors>,
    pub(super) certificates: Arc<Certificates>,
    pub(super) reporter: Option<Arc<SignalReporter>>,
    pub(super) peers: Peers,
    pub(super) history: HistoryRest,
}

impl LoopParts {
    /// Makes the components of every loop; those of the first one have the supervisor.
    pub(super) fn edge_loops(
        &self,
        event_loops: Vec<EventLoop<Message>>,
        bound: &mut Bound,
        source: Option<ConfigSource>,
    ) -> Result<Vec<(EventLoop<Message>, EdgeLoop)>, RunError> {
        let mut ready = Vec::with_capacity(event_loops.len());
        for (index, mut event_loop) in event_loops.into_iter().enumerate() {
            let edge = self.edge_loop(index, &mut event_loop, bound)?;
            ready.push((event_loop, edge));
        }
        if let Some((_, edge)) = ready.first_mut() {
            edge.supervisor = Some(Box::new(self.supervisor(source)));
        }
        Ok(ready)
    }

    fn edge_loop(
        &self,
        index: usize,
        event_loop: &mut EventLoop<Message>,
        bound: &mut Bound,
    ) -> Result<EdgeLoop, RunError> {
        let context = event_loop.context();
        let metrics = self.metrics.of_loop(index);
        let source = match (&self.service, WatcherId::new(index as u8)) {
            (Some(service), Some(watcher)) => {
                Source::Embedded(Arc::clone(service.store()), watcher)
            }
            _ if self.peers.redis.is_some() => Source::Redis,
            _ => Source::Memcached,
        };
        let seed = dwell_evloop::seed();
        let mut front = self.front(index, &source, seed);
        if self.presence.is_some() {
            front.polls.tell_presence();
        }
        let mut servers = self.servers(index, context, bound, &mut front)?;
        let output = self.output();
        servers.account(|| output.account(index));
        let sweep_interval = self.config.sweep_interval();
        let remote = (self.memcached(context)?, self.redis(context, &metrics));
        let feed = self.change_feed(index);
        let mut edge_loop = EdgeLoop {
            servers,
            front,
            cache: Cache::new(source, remote, sweep_interval, Arc::clone(&metrics)),
            hints: Hints::new(feed, self.waited.clone(), Arc::clone(&metrics)),
            upstreams: Upstreams::new(UPSTREAM_KINDS, self.settings.newest().upstream.clone()),
            presence: self.presence(index, seed)?,
            output,
            metrics,
            fleet: Arc::clone(&self.fleet),
            index,
            settings: self.settings.follow(),
            handoff: Arc::clone(&self.handoff),
            supervisor: None,
            ending: Ending::new(self.config.limits.drain_timeout),
            history: HistoryClock::new(self.history.clone()),
        };
        edge_loop.keep_counts(context.now());
        Ok(edge_loop)
    }

    /// Makes the servers of one loop, with their listeners.
    fn servers(
        &self,
        index: usize,
        context: &mut Context,
        bound: &mut Bound,
        front: &mut Front,
    ) -> Result<Servers, RunError> {
        let clients = std::mem::take(&mut bound.clients[index]);
        let (http, listening) = self.clients(context, clients, front)?;
        let mut store = None;
        let listeners = std::mem::take(&mut bound.store[index]);
        if let (Some(service), false) = (&self.service, listeners.is_empty()) {
            let mut server = self.store_server(service, &self.metrics.of_loop(index));
            for listener in listeners {
                if let (Some(pages), Some(address)) = (&self.demo, listener.address()) {
                    front.serve_pages(pages.make(address), Arc::clone(service.store()));
                }
                server.listen(context, listener).map_err(RunError::Loop)?;
            }
            store = Some(server);
        }
        Ok(Servers {
            http,
            websockets: WebSockets::new(kind::WEBSOCKET, self.websocket_options()),
            tunnels: self.tunnels(),
            admin: self.admin(context, std::mem::take(&mut bound.admin))?,
            store,
            listening,
            elsewhere: 0,
        })
    }

    /// Makes the server for memcached clients, without listeners.
    fn store_server(&self, service: &Arc<StoreService>, metrics: &LoopMetrics) -> StoreServer {
        let mut server =
            StoreServer::new(STORE_KINDS, Arc::clone(service), Arc::clone(&metrics.store));
        let bound = self.descriptors.bounds(&self.config).store;
        server.keep_descriptors(Arc::clone(&self.descriptors), bound);
        server
    }

    /// Makes the admin listener's server, on the loop that has the listener.
    fn admin(
        &self,
        context: &mut Context,
        listeners: Vec<Listener>,
    ) -> Result<Option<Admin>, RunError> {
        if listeners.is_empty() {
            return Ok(None);
        }
        let (metrics, service) = (Arc::clone(&self.metrics), self.service.clone());
        let (config, tokens) = (&self.config, &self.gate.tokens);
        let (started, descriptors) = (context.now(), Arc::clone(&self.descriptors));
        let parts = (metrics, service, descriptors);
        let mut admin = Admin::new(ADMIN_KINDS, parts, started, config, tokens);
        for listener in listeners {
            admin.listen(context, listener).map_err(RunError::Loop)?;
        }
        Ok(Some(admin))
    }

    /// Makes the reports of watched keys, if presence is on; the first loop sends them.
    fn presence(&self, index: usize, seed: u64) -> Result<Option<PresenceReports>, RunError> {
        let Some(presence) = &self.presence else {
            return Ok(None);
        };
        let (presence, metrics) = (Arc::clone(presence), self.metrics.of_loop(index));
        let webhooks = self.webhooks(index, seed)?;
        Ok(Some(PresenceReports::new(presence, webhooks, metrics)))
    }

    /// Makes the webhook client, on the first loop.
    fn webhooks(&self, index: usize, seed: u64) -> Result<Option<Webhooks>, RunError> {
        let config = &self.config.presence;
        let (0, Some(url)) = (index, &config.webhook_url) else {
            return Ok(None);
        };
        let plan = WebhookPlan {
            address: resolve(&url.address, "presence.webhook_url")?,
            tls: outward::webhook(&self.config)?,
            host: url.address.to_string(),
            path: config.webhook_path.clone(),
            token: config.webhook_token.clone(),
            timeout: config.webhook_timeout,
            attempts_max: config.webhook_attempts_max,
            batch_max: config.webhook_batch_max,
        };
        Ok(Some(Webhooks::new(kind::WEBHOOK, PRESENCE, plan, seed)))
    }

    /// Makes the bound on queued output.
    fn output(&self) -> OutputBound {
        let ledger = Arc::clone(&self.metrics.of_process().output);
        OutputBound::new(ledger, self.config.limits.output_bytes_max)
    }

    fn tunnels(&self) -> Tunnels {
        Tunnels::new(kind::TUNNEL, self.config.upstream.tunnel_timeout)
    }

    fn member(&self, index: usize) -> LoopMember {
        LoopMember {
            memory: Arc::clone(&self.memory),
            limit_log: Arc::clone(&self.limit_log),
            of_loop: index,
            loops: self.loops,
            waited: self.waited.as_ref().map(|waited| waited.of_loop(index)),
        }
    }

    /// Makes the clients' server; returns it with its listeners by configured address.
    fn clients(
        &self,
        context: &mut Context,
        listeners: Listening,
        front: &Front,
    ) -> Result<(Http, Vec<(SocketAddr, Token)>), RunError> {
        // A connection that was reset has no address that the system knows, and its requests are
        // still served.
        let limits = http_limits(&self.config, self.loops, 0);
        let mut http = Http::new(CLIENT_KINDS, limits).keep_all_peers();
        // Whether it is agreed on is for the listeners to say, also after a reload.
        http = http.speak_http2(kind::CLIENT_STREAM);
        if self.config.server.h2c {
            http = http.speak_h2c(kind::CLIENT_STREAM);
        }
        http = http.take_connect();
        http.share_gathered(self.metrics.of_process().gathered.clone());
        context.set_sends((self.config.server.io_uring == IoUring::Auto).then(Sends::default));
        let mut listening = Vec::with_capacity(listeners.len());
        for (address, listener) in listeners {
            let (shown, is_secure) = shown_address(&self.config, address, &listener);
            let token = http.listen_as(context, listener).map_err(RunError::Loop)?;
            front.name_listener(&mut http, token, shown, is_secure);
            listening.push((address, token));
        }
        Ok((http, listening))
    }

    /// Makes the supervisor of the process, for the first loop.
    fn supervisor(&self, source: Option<ConfigSource>) -> Supervisor {
        let reloader = Arc::new(self.reloader(source));
        let notifier = Notifier::from_environment().map(Arc::new);
        let upgrader = Upgrader {
            fleet: Arc::clone(&self.fleet),
            settings: Arc::clone(&self.settings),
            handoff: Arc::clone(&self.handoff),
            service: self.service.clone(),
            certificates: Arc::clone(&self.certificates),
            metrics: Arc::clone(&self.metrics),
            notifier: notifier.clone(),
            reporter: self.reporter.clone(),
            is_under_way: AtomicBool::new(false),
        };
        let (fleet, metrics) = (Arc::clone(&self.fleet), Arc::clone(&self.metrics));
        let files = Files {
            access: self.access.as_ref().map(AccessLog::switch),
            service: self.service.clone(),
            certificates: Arc::clone(&self.certificates),
        };
        Supervisor::new(
            reloader,
            Arc::new(upgrader),
            notifier,
            fleet,
            Arc::clone(&self.settings),
            metrics,
            files,
        )
    }

    /// Makes the reloader of the configuration.
    pub(super) fn reloader(&self, source: Option<ConfigSource>) -> Reloader {
        if let Some(source) = &source {
            self.metrics.reloads().name_file(&source.file.display());
        }
        Reloader {
            source,
            servers: Mutex::new(self.peers.found.clone()),
            fleet: Arc::clone(&self.fleet),
            settings: Arc::clone(&self.settings),
            handoff: Arc::clone(&self.handoff),
            metrics: Arc::clone(&self.metrics),
            access: self.access.as_ref().map(AccessLog::switch),
            service: self.service.clone(),
            descriptors: Arc::clone(&self.descriptors),
            certificates: Arc::clone(&self.certificates),
            reporter: self.reporter.clone(),
            asked: AtomicU64::new(0),
        }
    }

    /// Makes the front, which serves the clients' requests on one loop.
    fn front(&self, index: usize, source: &Source, seed: u64) -> Front {
        let config = || Arc::clone(&self.config);
        let log = self.response_log(index);
        let polls = Polls::new(
            config(),
            log.clone(),
            source.clone(),
            Arc::clone(&self.gate),
            self.member(index),
            seed,
        );
        let proxy = Proxy::new(config(), log.clone(), self.loops, seed.rotate_left(32));
        let admission = Admission::new(
            config(),
            self.loops,
            Arc::clone(&self.gate.connections),
            Arc::clone(&self.descriptors),
            Arc::clone(&log.metrics),
        );
        Front::new(config(), log, polls, proxy, admission)
    }

    fn response_log(&self, index: usize) -> ResponseLog {
        let access = self.access.as_ref().map(|access| access.of_loop(index));
        ResponseLog::new(self.metrics.of_loop(index), access, &self.config)
    }

    fn websocket_options(&self) -> WebSocketOptions {
        let limits = &self.config.limits;
        WebSocketOptions {
            // `Admission` has bounded them already, and follows reloads.
            connections_max: usize::MAX,
            messages: MessageLimits {
                frame_bytes_max: limits.websocket_message_bytes_max as u64,
                message_bytes_max: limits.websocket_message_bytes_max,
                ..MessageLimits::default()
            },
            output_bytes_max: WEBSOCKET_OUTPUT_BYTES_MAX,
            // A connection is checked for the end of its lifetime when a pong arrives.
            ping_interval: Some(limits.stream_heartbeat.min(limits.stream_lifetime / 4)),
            write_timeout: limits.write_timeout,
            write_rate_min: limits.write_rate_min,
            ..WebSocketOptions::default()
        }
    }

    fn memcached(&self, context: &mut Context) -> Result<Option<Client>, RunError> {
        let memcached = &self.config.memcached;
        if memcached.servers.is_empty() {
            return Ok(None);
        }
        let options = ClientOptions {
            timeout: memcached.timeout,
            connect_timeout: memcached.connect_timeout,
            failures_max: memcached.failures_max,
            value_bytes_max: memcached.value_bytes_max,
            request_bytes_max: self.request_bytes_max(),
            ..ClientOptions::default()
        };
        let mut client = Client::new(kind::MEMCACHED, &self.peers.memcached, options)
            .map_err(RunError::Memcached)?;
        // Connects at once, so that the first poll does not wait for it.
        client.flush(context, &mut |_: &mut Context, _: Completion<'_>| {});
        Ok(Some(client))
    }

    /// Makes the client of Redis, if values come from there.
    fn redis(&self, context: &mut Context, metrics: &Arc<LoopMetrics>) -> Option<RedisCache> {
        let server = self.peers.redis.as_ref()?;
        let (endpoint, mut options) = (server.endpoint.clone(), server.options.clone());
        options.kept_bytes_max = share(options.kept_bytes_max, self.loops);
        let cells = Arc::clone(&metrics.redis);
        let mut client = dwell_redis::Client::new(REDIS_KINDS, endpoint, options, cells);
        // Connects at once, so that the first poll does not wait for it.
        client.connect(context);
        let endpoint = server.endpoint.clone();
        Some(RedisCache::new(client, endpoint, Arc::clone(metrics)))
    }

    /// Makes the watch of the memcached servers, on the first loop.
    fn change_feed(&self, index: usize) -> Option<ChangeFeed> {
        let waited = self.waited.as_ref().filter(|_| index == 0)?;
        let memcached = &self.config.memcached;
        Some(ChangeFeed::new(
            kind::CHANGE_FEED,
            &self.peers.memcached,
            Arc::clone(waited),
            self.loops,
            Arc::clone(&self.metrics.of_loop(index).feed),
            memcached.connect_timeout,
        ))
    }

    /// Bound of queued requests to memcached, with room for a few values of publishers.
    fn request_bytes_max(&self) -> usize {
        let default = ClientOptions::default().request_bytes_max;
        let values = self.config.publish.value_bytes_max.saturating_mul(4);
        default.max(usize::try_from(values).unwrap_or(usize::MAX))
    }
}
