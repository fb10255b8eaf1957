//! Metrics of the process.
//!
//! Each loop writes its own [`LoopMetrics`]; a scrape adds them up. Nothing is looked up by name
//! while serving.

mod expose;
mod health;
mod labels;
mod places;
mod process;
mod reference;
mod reloads;
mod server_states;
mod table;
mod upstream_outcome;

pub(crate) use dwell_metrics::{Counter, Gauge, Histogram, HistogramSum, SharedCounter};
pub(crate) use health::Health;
pub(crate) use labels::{
    AdminRefusal, AuthOutcome, ClientTimeout, ConnectionRefusal, HandshakeKind, HandshakeOutcome,
    Http2Code, LookupOutcome, PollOutcome, ProxyHeaderFault, PublishOutcome, RefusedStatus,
    StatusClass, StreamEnd, StreamRefusal, UpstreamOutcome, WakeOutcome, WebhookOutcome,
    add_handshakes,
};
pub(crate) use places::{ListenerCells, PLACES_MAX, Places, RouteCells, UpstreamCells};
pub(crate) use process::{ProcessFigures, host_name, memory_limit};
pub use reference::metrics_page;
pub(crate) use reloads::{ConfigState, Reloads};
pub(crate) use server_states::{NamedServers, ServerCell, ServerState};
pub(crate) use table::LoopMetrics;

use crate::config::UpstreamUrl;
use dwell_engine::Budget;
use dwell_evloop::OutputLedger;
use dwell_metrics::Cell;
use dwell_store_server::{HostFigures, StoreMetrics, StoreService};
use dwell_upstream::UPSTREAMS_MAX;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `Content-Type` of [`Metrics::render`].
///
/// The text is `OpenMetrics` 1.0, not the older Prometheus text 0.0.4: it ends in `# EOF`, and the
/// `# TYPE` line of a counter has its name without `_total`. Prometheus reads it since 2.5. With
/// the older content type it would take the counters for untyped numbers.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The protocols of client connections, as a label has them.
const PROTOCOLS: [&str; 4] = ["http/1.1", "h2", "websocket", "tunnel"];

/// All metrics of the process.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    loops: Vec<Arc<LoopMetrics>>,
    process: Arc<ProcessMetrics>,
    servers: Arc<[String]>,
    /// They change with the configuration.
    upstreams: Arc<Mutex<Arc<[String]>>>,
    started_unix_seconds: u64,
    /// The external servers are Redis, and not memcached.
    is_redis: bool,
}

impl Metrics {
    /// Makes zeroed metrics for `loops` loops, each with a cell per memcached server.
    ///
    /// Shape: `servers` are the names of the servers, in configured order.
    #[cfg(test)]
    pub(crate) fn new(loops: usize, servers: Vec<String>, started_unix_seconds: u64) -> Self {
        Self::with_upstreams(loops, servers, &[], started_unix_seconds)
    }

    /// Makes metrics that have a cell per server of the application, too.
    pub(crate) fn with_upstreams(
        loops: usize,
        servers: Vec<String>,
        upstreams: &[String],
        started_unix_seconds: u64,
    ) -> Self {
        let cells = |count| (0..count).map(|_| ServerCell::default()).collect();
        let (route_names, listener_names) = <(Arc<Places>, Arc<Places>)>::default();
        let one = || {
            Arc::new(LoopMetrics {
                servers: cells(servers.len()),
                watches: cells(servers.len()),
                upstreams: cells(UPSTREAMS_MAX),
                upstream_details: (0..UPSTREAMS_MAX)
                    .map(|_| UpstreamCells::default())
                    .collect(),
                upstream_heads: (0..UPSTREAMS_MAX).map(|_| Histogram::default()).collect(),
                route_names: Arc::clone(&route_names),
                routes: (0..PLACES_MAX).map(|_| RouteCells::default()).collect(),
                listener_names: Arc::clone(&listener_names),
                listeners: (0..PLACES_MAX).map(|_| ListenerCells::default()).collect(),
                ..LoopMetrics::default()
            })
        };
        Self {
            loops: (0..loops).map(|_| one()).collect(),
            process: Arc::default(),
            servers: servers.into(),
            upstreams: Arc::new(Mutex::new(upstreams.into())),
            started_unix_seconds,
            is_redis: false,
        }
    }

    /// The external server is a Redis.
    pub(crate) fn of_redis(mut self, is_redis: bool) -> Self {
        self.is_redis = is_redis;
        self
    }

    /// The cells of one loop.
    ///
    /// # Panics
    /// If there is no such loop.
    pub(crate) fn of_loop(&self, index: usize) -> Arc<LoopMetrics> {
        Arc::clone(&self.loops[index])
    }

    /// The cells of all loops.
    pub(crate) fn loops(&self) -> &[Arc<LoopMetrics>] {
        &self.loops
    }

    /// The cells that any thread may write.
    pub(crate) fn of_process(&self) -> Arc<ProcessMetrics> {
        Arc::clone(&self.process)
    }

    /// Start of the process. Unix time, seconds.
    pub(crate) fn started_unix_seconds(&self) -> u64 {
        self.started_unix_seconds
    }

    /// States of the memcached servers, if values come from there.
    pub(crate) fn memcached_servers(&self) -> Vec<(String, ServerState)> {
        if self.is_redis {
            Vec::new()
        } else {
            self.servers()
        }
    }

    /// State of the Redis server, if values come from there.
    pub(crate) fn redis_servers(&self) -> Vec<(String, ServerState)> {
        if self.is_redis {
            self.servers()
        } else {
            Vec::new()
        }
    }

    /// States of the primaries of a Redis cluster, if values come from there and they are known.
    pub(crate) fn redis_primaries(&self) -> Vec<(String, ServerState)> {
        NamedServers::of_loops(self.loops.iter().map(|cells| &cells.redis_primaries))
    }

    /// States of the servers one by one: the primaries of a cluster stand for it, unless it is down
    /// and no primary is.
    pub(crate) fn shown_servers(&self) -> Vec<(String, ServerState)> {
        let (mut servers, primaries) = (self.servers(), self.redis_primaries());
        if !primaries.is_empty() {
            let is_down = |(_, state): &(String, ServerState)| *state == ServerState::Down;
            let is_told = primaries.iter().any(is_down);
            servers.retain(|server| is_down(server) && !is_told);
        }
        servers.extend(primaries);
        servers
    }

    /// States of the external servers that have the values.
    ///
    /// A server is `Up` if any loop reaches it, and `Unknown` if none has tried.
    pub(crate) fn servers(&self) -> Vec<(String, ServerState)> {
        self.best_of(&self.servers, |of_loop| &of_loop.servers)
    }

    /// States of the watches of memcached servers: `Unknown` without a watch, `Down` if the server
    /// refuses it.
    pub(crate) fn watches(&self) -> Vec<(String, ServerState)> {
        self.best_of(&self.servers, |of_loop| &of_loop.watches)
    }

    /// States of the application's servers, in the same way.
    pub(crate) fn upstreams(&self) -> Vec<(String, ServerState)> {
        let names = Arc::clone(&self.lock_upstreams());
        self.best_of(&names, |of_loop| &of_loop.upstreams)
    }

    /// The application's servers, each with its states on all loops, and what the loops have of it.
    pub(crate) fn upstream_details(&self) -> Vec<(String, Vec<(ServerState, &UpstreamCells)>)> {
        let names = Arc::clone(&self.lock_upstreams());
        let of = |index: usize| {
            let of_loops = self.loops.iter();
            let cells = of_loops.map(move |of| {
                let state = of.upstreams[index].state();
                (state, &of.upstream_details[index])
            });
            cells.collect()
        };
        let names = names.iter().take(UPSTREAMS_MAX).enumerate();
        names
            .map(|(index, name)| (name.clone(), of(index)))
            .collect()
    }

    /// One total for each of the application's servers, of all loops.
    pub(crate) fn by_upstream<C: Cell>(
        &self,
        of: fn(&UpstreamCells) -> &C,
    ) -> Vec<(String, C::Total)> {
        let details = self.upstream_details().into_iter();
        let total = |(name, of_loops): (String, Vec<(ServerState, &UpstreamCells)>)| {
            let cells: Vec<&C> = of_loops.iter().map(|(_, cells)| of(cells)).collect();
            (name, C::total(&cells))
        };
        details.map(total).collect()
    }

    /// Times to first byte of the application's servers, in the same order.
    pub(crate) fn upstream_heads(&self) -> Vec<(String, HistogramSum)> {
        let names = Arc::clone(&self.lock_upstreams());
        let heads = |index: usize| {
            let of_loops = self.loops.iter();
            let heads: Vec<_> = of_loops.map(|cells| &cells.upstream_heads[index]).collect();
            Histogram::total(&heads)
        };
        let names = names.iter().take(UPSTREAMS_MAX).enumerate();
        names
            .map(|(index, name)| (name.clone(), heads(index)))
            .collect()
    }

    /// Replaces the names of the application's servers.
    pub(crate) fn name_upstreams(&self, urls: &[UpstreamUrl]) {
        *self.lock_upstreams() = urls.iter().map(ToString::to_string).collect();
    }

    /// Replaces the certificates, each a name with the Unix time of its expiry.
    ///
    /// Shape: of several with one name, the one that expires first is shown.
    pub(crate) fn tell_certificates(&self, expiries: impl Iterator<Item = (String, i64)>) {
        let mut told = BTreeMap::new();
        for (name, at) in expiries {
            let least = told.entry(name).or_insert(at);
            *least = at.min(*least);
        }
        *self.lock_certificates() = told;
    }

    /// Names of the certificates, each with the Unix time of its expiry.
    pub(crate) fn certificates(&self) -> Vec<(String, i64)> {
        self.lock_certificates().clone().into_iter().collect()
    }

    fn lock_certificates(&self) -> MutexGuard<'_, BTreeMap<String, i64>> {
        let certificates = self.process.certificates.lock();
        certificates.unwrap_or_else(PoisonError::into_inner)
    }

    /// Outcomes of reloads.
    pub(crate) fn reloads(&self) -> &Reloads {
        &self.process.reloads
    }

    /// Upgrades that failed.
    pub(crate) fn upgrades_failed(&self) -> &SharedCounter {
        &self.process.upgrades_failed
    }

    fn lock_upstreams(&self) -> MutexGuard<'_, Arc<[String]>> {
        // Replaced in one step, so a panicking thread leaves it whole.
        let names = self.upstreams.lock();
        names.unwrap_or_else(PoisonError::into_inner)
    }

    /// The cells of all loops together.
    pub(crate) fn total<C: Cell>(&self, of: fn(&LoopMetrics) -> &C) -> C::Total {
        let cells: Vec<&C> = self.loops.iter().map(|cells| of(cells)).collect();
        C::total(&cells)
    }

    /// The routes, or the listeners, of all loops: each with its cells on every loop.
    pub(crate) fn places<C>(
        &self,
        names: fn(&LoopMetrics) -> &Places,
        cells: fn(&LoopMetrics) -> &[C],
    ) -> Vec<(String, Vec<&C>)> {
        let names = self.loops.first().map(|of| names(of).names());
        let of = |place| self.loops.iter().filter_map(move |of| cells(of).get(place));
        let names = names.into_iter().flatten().enumerate();
        names
            .map(|(place, name)| (name, of(place).collect()))
            .collect()
    }

    /// One total for each route, of all loops.
    pub(crate) fn by_route<C: Cell>(&self, of: fn(&RouteCells) -> &C) -> Vec<(String, C::Total)> {
        totals(self.places(|of| &of.route_names, |of| &of.routes), of)
    }

    /// One total for each listener of clients, of all loops.
    pub(crate) fn by_listener<C: Cell>(
        &self,
        of: fn(&ListenerCells) -> &C,
    ) -> Vec<(String, C::Total)> {
        totals(self.places(|of| &of.listener_names, |of| &of.listeners), of)
    }

    /// The highest value of a cell that each loop sets to what it has seen.
    pub(crate) fn highest(&self, of: fn(&LoopMetrics) -> &Gauge) -> i64 {
        let values = self.loops.iter().map(|cells| of(cells).value());
        values.max().unwrap_or_default()
    }

    /// The connections of clients by what they speak.
    fn protocols(&self) -> Vec<(&'static str, i64)> {
        let totals = [
            self.total(|cells| &cells.http1_connections),
            self.total(|cells| &cells.http2_connections),
            self.total(|cells| &cells.websocket_connections),
            self.total(|cells| &cells.tunnels_open),
        ];
        PROTOCOLS.into_iter().zip(totals).collect()
    }

    /// The oldest configuration that a loop has.
    pub(crate) fn oldest_config(&self) -> i64 {
        let of_loops = self.loops.iter();
        let generations = of_loops.map(|cells| cells.config_generation.value().max(1));
        generations.min().unwrap_or(1)
    }

    /// The store's cells of each loop.
    pub(crate) fn of_stores(&self) -> Vec<Arc<StoreMetrics>> {
        let stores = self.loops.iter().map(|cells| Arc::clone(&cells.store));
        stores.collect()
    }

    fn best_of(
        &self,
        names: &[String],
        cells: fn(&LoopMetrics) -> &[ServerCell],
    ) -> Vec<(String, ServerState)> {
        let best = |index: usize| {
            let states = self.loops.iter().map(|of| cells(of)[index].state());
            let best = states.max_by_key(|state| *state as i64);
            best.unwrap_or(ServerState::Unknown)
        };
        let names = names.iter().enumerate();
        names
            .map(|(index, name)| (name.clone(), best(index)))
            .collect()
    }
}

impl HostFigures for Metrics {
    fn waiters(&self) -> u64 {
        u64::try_from(self.total(|of_loop| &of_loop.waits_held)).unwrap_or(0)
    }

    fn connections_open(&self) -> u64 {
        u64::try_from(self.total(|of_loop| &of_loop.connections_open)).unwrap_or(0)
    }

    fn cpu_times(&self) -> Option<(f64, f64)> {
        process::cpu_times()
    }
}

/// Cells that any thread writes.
#[derive(Debug, Default)]
pub(crate) struct ProcessMetrics {
    /// Lines that the access log had no room for.
    pub access_log_dropped: Arc<SharedCounter>,
    /// Events that the log had no room for.
    pub log_dropped: Arc<SharedCounter>,
    /// Outcomes of reloads.
    pub reloads: Reloads,
    /// Upgrades that failed.
    pub upgrades_failed: SharedCounter,
    /// Output that clients have not read.
    pub output: Arc<OutputLedger>,
    /// Bytes of request bodies that are incomplete.
    pub gathered: Budget,
    /// Expiry of each certificate by its name.
    certificates: Mutex<BTreeMap<String, i64>>,
}

/// The totals of places, each with its cells on every loop.
fn totals<P, C: Cell>(places: Vec<(String, Vec<&P>)>, of: fn(&P) -> &C) -> Vec<(String, C::Total)> {
    let total = |(name, cells): (String, Vec<&P>)| {
        let cells: Vec<&C> = cells.into_iter().map(of).collect();
        (name, C::total(&cells))
    };
    places.into_iter().map(total).collect()
}

/// Converts a count to the value of a gauge.
pub(crate) fn figure(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// Figures of the embedded store at one scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct StoreFigures {
    /// Items.
    pub items: u64,
    /// Bytes of the items with their overhead.
    pub bytes: u64,
    /// Bound of these bytes.
    pub bytes_max: u64,
    /// Lookups that found a value.
    pub hits: u64,
    /// Lookups that found no value.
    pub misses: u64,
    /// Values stored.
    pub sets: u64,
    /// Items dropped to make room.
    pub evictions: u64,
    /// Items dropped because they had expired.
    pub expired: u64,
    /// Open connections of memcached clients.
    pub connections_open: u64,
}

impl StoreFigures {
    /// Reads the figures of a store.
    pub(crate) fn of(service: &StoreService) -> Self {
        let statistics = service.store().statistics();
        Self {
            items: statistics.curr_items,
            bytes: statistics.bytes,
            bytes_max: statistics.limit_maxbytes,
            hits: statistics.get_hits,
            misses: statistics.get_misses,
            sets: statistics.cmd_set,
            evictions: statistics.evictions,
            expired: statistics.reclaimed,
            connections_open: service.connections(),
        }
    }
}
