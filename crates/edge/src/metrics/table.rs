//! The table of metrics, in the order of a scrape: each row has a name, its kind, and its help.
//!
//! A row that begins with an identifier declares a cell of [`LoopMetrics`]: the family is called
//! `dwell_` and the identifier, and its total is the sum over the loops. A row that begins with a
//! literal is computed when it is asked for; without a total it is left out. The kind tells the
//! labels, and the unit in brackets becomes a part of the name.

use super::expose::{
    By, ByProtocol, Family, Info, Kind, Listener, Name, Route, Scrape, Server, SetBy, Time,
};
use super::labels::{
    AdminRefusal, AuthOutcome, ClientTimeout, ConnectionRefusal, HandshakeKind, HandshakeOutcome,
    Http2Code, LookupOutcome, PollOutcome, ProxyHeaderFault, PublishOutcome, RefusedStatus,
    ReloadOutcome, StatusClass, StreamEnd, StreamRefusal, UpstreamOutcome, WakeOutcome,
    WebhookOutcome,
};
use super::{
    ListenerCells, NamedServers, Places, RouteCells, ServerCell, ServerState, UpstreamCells, figure,
};
use dwell_memcache::watch::{HintOutcome, ResyncReason, WatchMetrics};
use dwell_metrics::{Counter, CounterSet, Gauge, Histogram, HistogramSet};
use dwell_redis::{
    PushKind, RedirectKind, RedisMetrics, ResyncReason as RedisResync, TopologyRead, UnusableValue,
};
use dwell_store_server::{StoreCommand, StoreMetrics};
use prometheus_client::registry::Unit;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

macro_rules! metrics {
    (
        $(#[$attribute:meta])*
        pub(crate) struct $cells:ident { $($others:tt)* }
        $(
            $($cell:ident)? $($name:literal)?: $kind:ty $([$unit:ident])? = $help:literal
            $(=> $total:expr)?;
        )+
    ) => {
        $(#[$attribute])*
        pub(crate) struct $cells {
            $($(#[doc = concat!($help, ".")] pub $cell: $kind,)?)+
            $($others)*
        }

        /// The families of a scrape in their order.
        pub(super) static FAMILIES: &[Family] = &[$(
            Family {
                name: concat!($("dwell_", stringify!($cell))? $($name)?),
                help: $help,
                unit: metrics!(@unit $($unit)?),
                kind: <$kind as Kind>::TYPE,
                label: <$kind as Kind>::label,
                outer_label: <$kind as Kind>::OUTER_LABEL,
                encode: |family, scrape, encoder| family.encode::<$kind>(
                    encoder,
                    $(scrape.metrics.total(|cells| &cells.$cell))?
                    $(shown(scrape, $total))?
                ),
            },
        )+];
    };
    (@unit) => { None };
    (@unit $unit:ident) => { Some(Unit::$unit) };
}

/// Calls `total`: as an argument, its closure gets the type that it must have.
fn shown<T>(scrape: &Scrape, total: fn(&Scrape) -> T) -> T {
    total(scrape)
}

/// State of each server whose state is known: 1 is up, 0 is down.
fn ups(servers: Vec<(String, ServerState)>) -> Vec<(String, i64)> {
    let is_up = |(name, state)| match state {
        ServerState::Unknown => None,
        ServerState::Down => Some((name, 0)),
        ServerState::Up => Some((name, 1)),
    };
    servers.into_iter().filter_map(is_up).collect()
}

metrics! {
    /// Cells of one loop; only that loop's thread writes them.
    // Aligned so that two loops never write the same cache line, nor a pair of prefetched ones.
    #[derive(Debug, Default)]
    #[repr(align(128))]
    pub(crate) struct LoopMetrics {
        /// Number of the configuration that the loop has; 0 before its first turn, which counts as
        /// 1, the one of the start.
        pub config_generation: Gauge,
        /// Connections that speak HTTP/1.1, or have not begun to speak.
        pub http1_connections: Gauge,
        /// Connections that speak HTTP/2.
        pub http2_connections: Gauge,
        /// Resets, refusals and frames of GOAWAY of HTTP/2 that the counts by reason have.
        pub http2_faults: Counter,
        /// Connections that speak WebSocket.
        pub websocket_connections: Gauge,
        /// Figures of the feed of changes, and of the hints that the loop has got.
        pub feed: Arc<WatchMetrics>,
        /// Figures of the client of Redis.
        pub redis: Arc<RedisMetrics>,
        /// Figures of the embedded store's server, and the most read keys of the store.
        pub store: Arc<StoreMetrics>,
        /// The primaries of the Redis cluster that this loop knows.
        pub redis_primaries: NamedServers,
        /// State of each memcached server, in the order of the configuration.
        pub servers: Box<[ServerCell]>,
        /// State of the watch of each of them; only the loop that listens writes it.
        pub watches: Box<[ServerCell]>,
        /// State of each of the application's servers.
        pub upstreams: Box<[ServerCell]>,
        /// Figures of them that the dashboard alone shows.
        pub upstream_details: Box<[UpstreamCells]>,
        /// From a request sent to each of them to the head of its answer.
        pub upstream_heads: Box<[Histogram]>,
        /// Prefixes of routes; all loops have the same.
        pub route_names: Arc<Places>,
        /// Figures of each of them.
        pub routes: Box<[RouteCells]>,
        /// Addresses of the clients' listeners; all loops have the same.
        pub listener_names: Arc<Places>,
        /// Figures of each of them.
        pub listeners: Box<[ListenerCells]>,
    }

    "dwell_build": Info = "Version of the program, and the commit if a release has one"
        => |_| Info::of_build();
    "process_start_time": Gauge [Seconds] = "Unix time of the start"
        => |of| figure(of.metrics.started_unix_seconds);
    "process_cpu": Time [Seconds] = "User and system CPU time spent"
        => |of| Some(of.process?.cpu_seconds);
    "process_resident_memory": Gauge [Bytes] = "Resident memory"
        => |of| Some(figure(of.process?.resident_bytes));
    "process_open_fds": Gauge = "Open files" => |of| of.process?.open_fds.map(figure);
    "process_max_fds": Gauge = "Files that may be open"
        => |of| of.process?.max_fds.map(figure);
    "dwell_loops": Gauge = "Event loops" => |of| figure(of.metrics.loops().len());
    loop_turns: Counter = "Turns of the event loops";

    "dwell_config_generation": Gauge =
        "Configuration that all event loops use: 1 is that of the start"
        => |of| of.metrics.oldest_config();
    "dwell_config_reloads": CounterSet<ReloadOutcome> =
        "Reloads of the configuration by outcome"
        => |of| of.metrics.reloads().totals();
    "dwell_config_last_reload_successful": Gauge =
        "1 if the last reload was applied, 0 if it was refused"
        => |of| i64::from(!of.metrics.reloads().is_last_refused());
    "dwell_config_last_reload_success_timestamp": Gauge [Seconds] =
        "Unix time of the last reload that was applied, 0 before the first"
        => |of| figure(of.metrics.reloads().last_taken.load(Relaxed));

    connections_open: Gauge = "Client connections open now";
    "dwell_connections_by_protocol": ByProtocol<Gauge> =
        "Client connections open now by protocol"
        => |of| of.metrics.protocols();
    connections: Counter = "Client connections accepted";
    connections_refused: CounterSet<ConnectionRefusal> =
        "Client connections closed at once by the limit that was reached";
    "dwell_listener_connections_open": By<Listener, Gauge> =
        "Client connections open now that speak HTTP, by the address of the listener that has \
        accepted them; those of the process before an upgrade are not among them"
        => |of| of.metrics.by_listener(|cells| &cells.open);
    "dwell_listener_connections": By<Listener, Counter> =
        "Client connections accepted by the address of the listener; those of the process before \
        an upgrade are not among them"
        => |of| of.metrics.by_listener(|cells| &cells.connections);
    "dwell_listener_requests": By<Listener, Counter> =
        "Requests by the address of the listener that has accepted their connection; those on \
        connections of the process before an upgrade are not among them"
        => |of| of.metrics.by_listener(|cells| &cells.requests);
    "dwell_listener_responses": SetBy<Listener, StatusClass> =
        "Responses by the address of the listener and status class, those to rejected requests \
        among them, those on connections of the process before an upgrade not"
        => |of| of.metrics.by_listener(|cells| &cells.responses);
    "dwell_listener_bad_requests": By<Listener, Counter> =
        "Requests refused for their syntax, size or a limit, by the address of the listener; those \
        on connections of the process before an upgrade are not among them"
        => |of| of.metrics.by_listener(|cells| &cells.rejected);
    "dwell_output_bytes": Gauge = "Bytes of responses and events that clients have not read yet"
        => |of| figure(of.metrics.process.output.bytes());
    "dwell_gathered_bytes": Gauge =
        "Bytes of incomplete requests, and of HTTP/2 bodies and tunnels that are not read"
        => |of| figure(of.metrics.process.gathered.bytes());
    output_cuts: Counter = "Clients disconnected for limits.output_bytes_max, the slowest first";
    client_timeouts: CounterSet<ClientTimeout> = "Deadlines that clients missed";
    tls_handshakes: CounterSet<HandshakeOutcome> = "TLS handshakes of clients by outcome";
    tls_established: CounterSet<HandshakeKind> =
        "Completed TLS handshakes of clients by version, full or resumed";

    proxy_headers_failed: CounterSet<ProxyHeaderFault> =
        "Connections of balancers closed without a PROXY protocol header, by reason";
    client_certs_too_long: Counter =
        "Requests of clients whose certificate is too long for Client-Cert";
    tls_on_plain: Counter = "Connections closed that began TLS on a plain listener";
    "dwell_tls_certificate_expiry": By<Name, Gauge> [Seconds] =
        "Unix time at which the certificate expires"
        => |of| of.metrics.certificates();

    http2_streams_open: Gauge = "HTTP/2 requests in progress";
    http2_streams: Counter = "HTTP/2 requests";
    http2_streams_refused: CounterSet<StreamRefusal> =
        "HTTP/2 requests refused by reason";
    http2_resets_sent: CounterSet<Http2Code> =
        "HTTP/2 streams that Dwell reset, by error code";
    http2_resets_received: CounterSet<Http2Code> =
        "HTTP/2 streams that clients reset, by error code";
    http2_goaways_sent: CounterSet<Http2Code> = "GOAWAY frames sent, by error code";
    http2_goaways_received: CounterSet<Http2Code> = "GOAWAY frames of clients, by error code";

    http_requests: CounterSet<StatusClass> = "Responses by status class";
    "dwell_route_responses": SetBy<Route, StatusClass> =
        "Responses to requests of a route by its prefix and status class"
        => |of| of.metrics.by_route(|cells| &cells.responses);
    bad_requests: CounterSet<RefusedStatus> =
        "Requests refused for their syntax, size or a limit, by status";
    admin_refused: CounterSet<AdminRefusal> =
        "Requests to the admin listener refused by reason";
    http_request_duration: Histogram [Seconds] =
        "Time from the header section to the response of requests that were not held for a change";
    "dwell_route_request_duration": By<Route, Histogram> [Seconds] =
        "The same time for requests of a route, by its prefix"
        => |of| of.metrics.by_route(|cells| &cells.duration);

    polls: CounterSet<PollOutcome> = "Polls by outcome";
    waits_held: Gauge = "Polls held now, and keys of event streams and WebSockets";
    polls_held: Gauge = "Polls held now";
    "dwell_route_polls": SetBy<Route, PollOutcome> =
        "Polls by the prefix of their route and outcome"
        => |of| of.metrics.by_route(|cells| &cells.polls);
    "dwell_route_waits_held": By<Route, Gauge> =
        "Polls held now, and keys of event streams and WebSockets, by the prefix of their route"
        => |of| of.metrics.by_route(|cells| &cells.waiting);
    waits: Counter = "Polls that were held, and keys of event streams and WebSockets";
    streams_open: Gauge = "Event streams open now";
    streams: Counter = "Event streams that were opened";
    websockets_open: Gauge = "WebSockets open now";
    websockets: Counter = "WebSockets that were opened";
    tunnels_open: Gauge =
        "Connections open now that were upgraded to another protocol of the application";
    websocket_errors: Counter = "Frames of WebSocket clients that were refused";
    streams_ended: CounterSet<StreamEnd> = "Event streams and WebSockets that ended by reason";
    stream_events: Counter = "Events sent to event streams, and values sent to WebSockets";
    // The client is sent the newest value when it has taken what was before.
    stream_postponed: Counter =
        "Events delayed until a slow client has read those before";
    auth: CounterSet<AuthOutcome> = "Requests to the application for permission (auth) by outcome";
    publishes: CounterSet<PublishOutcome> = "Requests of publishers by outcome";
    watched_keys: Gauge = "Distinct keys that clients wait for now";
    webhook_events: CounterSet<WebhookOutcome> =
        "Presence events by outcome";
    webhook_retries: Counter = "Requests to the webhook that were repeated";
    webhook_queue: Gauge = "Presence events that wait for delivery";
    wakeups: CounterSet<WakeOutcome> = "Changes of watched keys by outcome";
    wake_latency: Histogram [Seconds] =
        "Time from the change of a key to the responses of the polls that it woke";

    memcached_lookups: CounterSet<LookupOutcome> =
        "Reads from memcached servers by outcome";
    memcached_handshakes: CounterSet<HandshakeOutcome> =
        "TLS handshakes with memcached servers by outcome";
    memcached_sweeps: Counter = "Sweeps over the keys that polls wait for";
    "dwell_memcached_server_up": By<Server, Gauge> =
        "1 if the server responded last, 0 if not; absent before the first request"
        => |of| ups(of.metrics.memcached_servers());
    "dwell_feed_watch_up": By<Server, Gauge> =
        "1 if the server reports changes, 0 if it refuses; absent while no poll waits"
        => |of| ups(of.metrics.watches());
    "dwell_feed_lines": Counter = "Lines in which memcached reported changes"
        => |of| of.metrics.total(|cells| &cells.feed.lines);
    "dwell_feed_lines_lost": Counter = "Lines that memcached lost or omitted"
        => |of| of.metrics.total(|cells| &cells.feed.lines_lost);
    "dwell_feed_hints": CounterSet<HintOutcome> =
        "Reported changes of keys by what followed"
        => |of| of.metrics.total(|cells| &cells.feed.hints);
    "dwell_feed_lag": Histogram [Seconds] =
        "Time from a change to its report, by the clocks of both machines"
        => |of| of.metrics.total(|cells| &cells.feed.lag);
    "dwell_feed_resyncs": CounterSet<ResyncReason> =
        "Reads of all waited keys of one server between sweeps by reason"
        => |of| of.metrics.total(|cells| &cells.feed.resyncs);

    redis_lookups: CounterSet<LookupOutcome> = "Reads from Redis for requests by outcome";
    redis_handshakes: CounterSet<HandshakeOutcome> =
        "TLS handshakes with Redis by outcome";
    "dwell_redis_server_up": By<Server, Gauge> =
        "1 if the server responded last, 0 if not; absent before the first request"
        => |of| ups(of.metrics.redis_servers());
    "dwell_redis_primary_up": By<Server, Gauge> =
        "1 if the primary of the cluster responded last, 0 if not; absent before the first request"
        => |of| ups(of.metrics.redis_primaries());
    "dwell_redis_tracking_loops": Gauge = "Event loops that the server announces changes to"
        => |of| of.metrics.total(|cells| &cells.redis.tracking_loops);
    "dwell_redis_refused_loops": Gauge =
        "Event loops that the server refuses to announce changes to"
        => |of| of.metrics.total(|cells| &cells.redis.refused_loops);
    "dwell_redis_armed_keys": Gauge =
        "Keys whose next change the server announces, of all event loops"
        => |of| of.metrics.total(|cells| &cells.redis.armed_keys);
    "dwell_redis_kept_hits": Counter = "Reads for requests that were served from memory"
        => |of| of.metrics.total(|cells| &cells.redis.kept_hits);
    "dwell_redis_kept_bytes": Gauge = "Bytes of the values in memory, of all event loops"
        => |of| of.metrics.total(|cells| &cells.redis.kept_bytes);
    "dwell_redis_pushes": CounterSet<PushKind> = "Changes that the server announced by kind"
        => |of| of.metrics.total(|cells| &cells.redis.pushes);
    "dwell_redis_rereads": Counter = "Reads of keys that polls wait for"
        => |of| of.metrics.total(|cells| &cells.redis.rereads);
    "dwell_redis_unchanged_rereads": Counter =
        "Reads after an announcement that found the same value"
        => |of| of.metrics.total(|cells| &cells.redis.unchanged_rereads);
    "dwell_redis_sweeps": Counter = "Sweeps over the keys that polls wait for"
        => |of| of.metrics.total(|cells| &cells.redis.sweeps);
    "dwell_redis_resyncs": CounterSet<RedisResync> =
        "Reads of all waited keys by reason"
        => |of| of.metrics.total(|cells| &cells.redis.resyncs);
    "dwell_redis_primaries": Gauge = "Primaries of the cluster"
        => |of| of.metrics.highest(|cells| &cells.redis.primaries);
    "dwell_redis_missing_slots": Gauge = "Slots of the cluster that no primary has"
        => |of| of.metrics.highest(|cells| &cells.redis.missing_slots);
    "dwell_redis_redirects": CounterSet<RedirectKind> =
        "Commands that a server of the cluster sent to another one by kind"
        => |of| of.metrics.total(|cells| &cells.redis.redirects);
    "dwell_redis_topologies": CounterSet<TopologyRead> =
        "Questions for the topology of the cluster by outcome"
        => |of| of.metrics.total(|cells| &cells.redis.topologies);
    "dwell_redis_protocol_errors": Counter =
        "Connections closed because the server broke the protocol"
        => |of| of.metrics.total(|cells| &cells.redis.protocol_errors);
    "dwell_redis_unusable_values": CounterSet<UnusableValue> =
        "Values that could not be used by reason"
        => |of| of.metrics.total(|cells| &cells.redis.unusable_values);

    upstream_requests: CounterSet<UpstreamOutcome> =
        "Requests to the upstream by outcome";
    upstream_handshakes: CounterSet<HandshakeOutcome> =
        "TLS handshakes with the upstream by outcome";
    fills: Counter = "Responses of the upstream that were stored";
    upstream_connections_open: Gauge = "Connections to the upstream open now";
    upstream_outstanding: Gauge = "Requests to the upstream in progress or waiting";
    "dwell_upstream_server_up": By<Server, Gauge> =
        "1 if the server is in use, 0 if it is left out for its failures"
        => |of| ups(of.metrics.upstreams());
    "dwell_upstream_server_queued": By<Server, Gauge> =
        "Requests that wait for a connection to the server"
        => |of| of.metrics.by_upstream(|cells| &cells.queued);
    "dwell_upstream_server_failures": By<Server, Counter> =
        "Failed attempts by server, also of requests that another server has answered"
        => |of| of.metrics.by_upstream(|cells| &cells.failures);
    "dwell_upstream_head_duration": By<Server, Histogram> [Seconds] =
        "Time from a request sent to the header section of its response"
        => |of| of.metrics.upstream_heads();

    "dwell_store_items": Gauge = "Items in the embedded store"
        => |of| Some(figure(of.store?.items));
    "dwell_store_bytes": Gauge = "Bytes of the items with their overhead"
        => |of| Some(figure(of.store?.bytes));
    "dwell_store_bytes_max": Gauge = "Bytes that the items may take"
        => |of| Some(figure(of.store?.bytes_max));
    "dwell_store_connections_open": Gauge = "Connections of memcached clients open now"
        => |of| Some(figure(of.store?.connections_open));
    "dwell_store_hits": Counter = "Lookups that found a value"
        => |of| Some(of.store?.hits);
    "dwell_store_misses": Counter = "Lookups that found no value"
        => |of| Some(of.store?.misses);
    "dwell_store_sets": Counter = "Values stored" => |of| Some(of.store?.sets);
    "dwell_store_evictions": Counter = "Items evicted to make room"
        => |of| Some(of.store?.evictions);
    "dwell_store_expired": Counter = "Items that expired"
        => |of| Some(of.store?.expired);
    "dwell_store_commands": CounterSet<StoreCommand> = "Commands of memcached clients by command"
        => |of| of.store.map(|_| of.metrics.total(|cells| &cells.store.commands));
    "dwell_store_command_duration": HistogramSet<StoreCommand> [Seconds] =
        "Time of a command inside the server; one in 64 is measured"
        => |of| of.store.map(|_| of.metrics.total(|cells| &cells.store.durations));

    "dwell_upgrades_failed": Counter = "Upgrades that failed"
        => |of| of.metrics.process.upgrades_failed.value();
    "dwell_access_log_dropped": Counter = "Lines of the access log that were dropped"
        => |of| of.metrics.process.access_log_dropped.value();
    "dwell_log_dropped": Counter = "Events of the log that were dropped"
        => |of| of.metrics.process.log_dropped.value();
}
