//! One reading of the figures, in the form that the page gets.
//!
//! Counters are sent as they are, and the page computes differences. So a viewer's curves do not
//! depend on when other viewers began, or on readings that it missed.

use super::history::Reading;
use crate::config::Config;
use crate::descriptors::Descriptors;
use crate::log::events_number;
use crate::metrics::{
    ConfigState, Histogram, HistogramSum, Metrics, ProcessFigures, ServerState, StoreFigures,
    host_name, memory_limit,
};
use dwell_metrics::{Cell, CounterSet};
use dwell_store::{HotKey, hottest};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Keys in the list of the most read.
const HOT_KEYS: usize = 10;
/// Characters of a key that are shown.
const KEY_CHARACTERS_MAX: usize = 120;

/// Options that the page shows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setting {
    /// `limits.waiters_max`.
    pub(crate) waiters_max: usize,
    /// `limits.connections_max`.
    pub(crate) connections_max: usize,
    /// Clients that the limit on open files leaves room for.
    pub(crate) clients_max: u32,
    /// The limit on memory of the control group. Units: bytes.
    pub(crate) memory_max: Option<u64>,
    /// The name of the machine, or of the container.
    pub(crate) host: Option<String>,
}

impl Setting {
    pub(crate) fn of(config: &Config, descriptors: &Descriptors) -> Self {
        Self {
            waiters_max: config.limits.waiters_max,
            connections_max: config.limits.connections_max,
            clients_max: descriptors.clients_max(config),
            memory_max: memory_limit(),
            host: host_name(),
        }
    }
}

/// Inputs of a reading besides the metrics.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleInputs {
    /// Absent when values come from memcached servers.
    pub(super) store: Option<StoreFigures>,
    /// The process drains.
    pub(super) draining: bool,
    pub(super) uptime: Duration,
}

/// Everything that the page shows at one time.
#[derive(Debug, Serialize)]
pub(super) struct Sample<'a> {
    numbers: Numbers,
    version: &'static str,
    /// Tells apart processes at the same address.
    started: u64,
    loops: usize,
    draining: bool,
    setting: &'a Setting,
    /// The oldest configuration that an event loop has.
    generation: i64,
    config: ConfigState,
    /// The place of the values: `store`, `memcached` or `redis`.
    values: &'static str,
    servers: Vec<ServerSample>,
    upstreams: Vec<UpstreamSample>,
    /// The number of events so far: it tells the page that there is a new one.
    events: u64,
    hot: Vec<HotKeySample>,
}

/// Figures of the curves.
#[derive(Debug, Serialize)]
pub(super) struct Numbers {
    /// Units: milliseconds since the start.
    at: u64,
    connections_open: i64,
    connections: u64,
    connections_refused: u64,
    http2_connections: i64,
    http2_streams_open: i64,
    polls_held: i64,
    waits_held: i64,
    streams_open: i64,
    websockets_open: i64,
    watched_keys: i64,
    polls: Counts,
    requests: Counts,
    bad_requests: Counts,
    timeouts: Counts,
    wakeups: Counts,
    stream_events: u64,
    stream_postponed: u64,
    wake_latency: Durations,
    request_duration: Durations,
    /// Lookups in memcached or Redis, by outcome.
    lookups: Counts,
    sweeps: u64,
    /// Loops to which Redis announces changes.
    tracking_loops: i64,
    /// Loops to which it refuses to do so.
    refused_loops: i64,
    /// Lookups that values kept of Redis have answered.
    kept_hits: u64,
    upstream: Counts,
    upstream_connections_open: i64,
    upstream_outstanding: i64,
    tunnels_open: i64,
    /// Per server of the application: time to first byte, with the bounds of `request_duration`.
    upstream_heads: Vec<Vec<u64>>,
    routes: Vec<RouteSample>,
    listeners: Vec<ListenerSample>,
    store: Option<StoreFigures>,
    process: Option<ProcessFigures>,
}

/// Lookups by outcome, of the one source that has any.
fn lookups(metrics: &Metrics) -> Counts {
    let mut counts: Counts = (metrics.total(|of| &of.memcached_lookups))
        .into_iter()
        .collect();
    for (outcome, count) in metrics.total(|of| &of.redis_lookups) {
        *counts.entry(outcome).or_default() += count;
    }
    counts
}

type Counts = BTreeMap<&'static str, u64>;

/// A histogram: the upper bounds of its buckets in seconds, but for the last, and all counts.
#[derive(Debug, Serialize)]
struct Durations {
    bounds: Vec<f64>,
    counts: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct ServerSample {
    name: String,
    state: &'static str,
}

/// One server of the application.
#[derive(Debug, Serialize)]
struct UpstreamSample {
    name: String,
    state: &'static str,
    /// Event loops that send nothing to it.
    left_out: usize,
    /// The reason that one of these has.
    reason: Option<String>,
    outstanding: i64,
    /// Requests that wait for a connection.
    queued: i64,
    /// Attempts that failed at it, and the error of the last one.
    failures: u64,
    last_error: Option<String>,
}

/// Figures of one route; outcomes and classes without any are left out.
#[derive(Debug, Serialize)]
struct RouteSample {
    name: String,
    waiting: i64,
    responses: Counts,
    polls: Counts,
    denied: u64,
    limited: u64,
    /// Times to the response, with the bounds of `request_duration`.
    duration: Vec<u64>,
}

/// Figures of one listener of clients.
#[derive(Debug, Serialize)]
struct ListenerSample {
    name: String,
    /// Connections that speak HTTP now.
    open: i64,
    connections: u64,
    requests: u64,
    responses: Counts,
    /// Requests rejected before they were read to the end.
    rejected: u64,
}

/// The figures of a reading that are kept for an hour: those of the curves.
#[derive(Debug, Serialize)]
struct PastFigures<'n> {
    waits_held: i64,
    connections_open: i64,
    polls: Counts,
    requests: Counts,
    upstream: Counts,
    wake_latency: &'n [u64],
    request_duration: &'n [u64],
}

#[derive(Debug, Serialize)]
struct HotKeySample {
    key: String,
    samples: u32,
}

impl<'a> Sample<'a> {
    /// Reads all figures.
    pub(super) fn read(metrics: &'a Metrics, setting: &'a Setting, now: SampleInputs) -> Self {
        let values = match (now.store, metrics.redis_servers().is_empty()) {
            (Some(_), _) => "store",
            (None, false) => "redis",
            (None, true) => "memcached",
        };
        let hot = metrics.loops().iter().map(|cells| cells.store.hot.keys());
        Self {
            numbers: Numbers::read(metrics, now),
            version: env!("CARGO_PKG_VERSION"),
            started: metrics.started_unix_seconds(),
            loops: metrics.loops().len(),
            draining: now.draining,
            setting,
            generation: metrics.oldest_config(),
            config: metrics.reloads().state(),
            values,
            servers: (metrics.shown_servers().into_iter())
                .map(ServerSample::from)
                .collect(),
            upstreams: upstreams(metrics),
            events: events_number(),
            hot: hottest(hot, HOT_KEYS)
                .into_iter()
                .map(HotKeySample::from)
                .collect(),
        }
    }

    /// Encodes the numbers alone, and everything, as JSON without a line end.
    pub(super) fn encode(&self) -> (String, String) {
        // Fails only for maps with keys that are not strings, or when writing fails.
        let numbers = serde_json::to_string(&self.numbers).unwrap_or_default();
        let everything = serde_json::to_string(self).unwrap_or_default();
        (numbers, everything)
    }
}

impl Numbers {
    /// Reads the figures of the curves.
    pub(super) fn read(metrics: &Metrics, now: SampleInputs) -> Self {
        Self {
            at: u64::try_from(now.uptime.as_millis()).unwrap_or(u64::MAX),
            connections_open: metrics.total(|of| &of.connections_open),
            connections: metrics.total(|of| &of.connections),
            connections_refused: metrics
                .total(|of| &of.connections_refused)
                .iter()
                .map(|(_, count)| count)
                .sum(),
            http2_connections: metrics.total(|of| &of.http2_connections),
            http2_streams_open: metrics.total(|of| &of.http2_streams_open),
            polls_held: metrics.total(|of| &of.polls_held),
            waits_held: metrics.total(|of| &of.waits_held),
            streams_open: metrics.total(|of| &of.streams_open),
            websockets_open: metrics.total(|of| &of.websockets_open),
            watched_keys: metrics.total(|of| &of.watched_keys),
            polls: metrics.total(|of| &of.polls).into_iter().collect(),
            requests: metrics.total(|of| &of.http_requests).into_iter().collect(),
            bad_requests: metrics.total(|of| &of.bad_requests).into_iter().collect(),
            timeouts: metrics
                .total(|of| &of.client_timeouts)
                .into_iter()
                .collect(),
            wakeups: metrics.total(|of| &of.wakeups).into_iter().collect(),
            stream_events: metrics.total(|of| &of.stream_events),
            stream_postponed: metrics.total(|of| &of.stream_postponed),
            wake_latency: metrics.total(|of| &of.wake_latency).into(),
            request_duration: metrics.total(|of| &of.http_request_duration).into(),
            lookups: lookups(metrics),
            sweeps: metrics.total(|of| &of.memcached_sweeps) + metrics.total(|of| &of.redis.sweeps),
            tracking_loops: metrics.total(|of| &of.redis.tracking_loops),
            refused_loops: metrics.total(|of| &of.redis.refused_loops),
            kept_hits: metrics.total(|of| &of.redis.kept_hits),
            upstream: metrics
                .total(|of| &of.upstream_requests)
                .into_iter()
                .collect(),
            upstream_connections_open: metrics.total(|of| &of.upstream_connections_open),
            upstream_outstanding: metrics.total(|of| &of.upstream_outstanding),
            tunnels_open: metrics.total(|of| &of.tunnels_open),
            upstream_heads: metrics
                .upstream_heads()
                .iter()
                .map(|(_, total)| counts(total))
                .collect(),
            routes: routes(metrics),
            listeners: listeners(metrics),
            store: now.store,
            process: ProcessFigures::read(),
        }
    }

    /// Encodes what is kept for an hour.
    pub(super) fn past(&self) -> Reading {
        let figures = PastFigures {
            waits_held: self.waits_held,
            connections_open: self.connections_open,
            polls: without_zeros(&self.polls),
            requests: without_zeros(&self.requests),
            upstream: without_zeros(&self.upstream),
            wake_latency: &self.wake_latency.counts,
            request_duration: &self.request_duration.counts,
        };
        Reading {
            at: self.at,
            resident_bytes: self.process.map(|process| process.resident_bytes),
            // Fails only for maps with keys that are not strings, or when writing fails.
            figures: serde_json::to_string(&figures).unwrap_or_default().into(),
        }
    }

    /// The upper bounds of the buckets of both histograms, as JSON.
    pub(super) fn bounds(&self) -> String {
        serde_json::to_string(&self.request_duration.bounds).unwrap_or_default()
    }
}

fn without_zeros(counts: &Counts) -> Counts {
    let counts = counts.iter().map(|(name, count)| (*name, *count));
    counts.filter(|(_, count)| *count > 0).collect()
}

fn upstreams(metrics: &Metrics) -> Vec<UpstreamSample> {
    let details = metrics.upstream_details().into_iter();
    let samples = details.map(|(name, of_loops)| {
        let down = of_loops
            .iter()
            .filter(|(state, _)| *state == ServerState::Down);
        let states = of_loops.iter().map(|(state, _)| *state);
        let best = states.max_by_key(|state| *state as i64);
        UpstreamSample {
            name,
            state: best.unwrap_or(ServerState::Unknown).as_str(),
            left_out: down.clone().count(),
            reason: down
                .clone()
                .find_map(|(_, cells)| cells.reason())
                .map(|reason| reason.to_string()),
            outstanding: of_loops
                .iter()
                .map(|(_, cells)| cells.outstanding.value())
                .sum(),
            queued: of_loops.iter().map(|(_, cells)| cells.queued.value()).sum(),
            failures: of_loops
                .iter()
                .map(|(_, cells)| cells.failures.value())
                .sum(),
            last_error: of_loops
                .iter()
                .filter_map(|(_, cells)| cells.last_error())
                .max_by_key(|(at, _)| *at)
                .map(|(_, error)| error.to_string()),
        }
    });
    samples.collect()
}

fn routes(metrics: &Metrics) -> Vec<RouteSample> {
    let routes = metrics.places(|of| &of.route_names, |of| &of.routes);
    let samples = routes.into_iter().map(|(name, cells)| {
        let responses: Vec<_> = cells.iter().map(|of| &of.responses).collect();
        let polls: Vec<_> = cells.iter().map(|of| &of.polls).collect();
        let durations: Vec<_> = cells.iter().map(|of| &of.duration).collect();
        RouteSample {
            name: shown(&name),
            waiting: cells.iter().map(|of| of.waiting.value()).sum(),
            responses: without_zeros(&CounterSet::total(&responses).into_iter().collect()),
            polls: without_zeros(&CounterSet::total(&polls).into_iter().collect()),
            denied: cells.iter().map(|of| of.denied.value()).sum(),
            limited: cells.iter().map(|of| of.limited.value()).sum(),
            duration: counts(&Histogram::total(&durations)),
        }
    });
    samples.collect()
}

fn listeners(metrics: &Metrics) -> Vec<ListenerSample> {
    let listeners = metrics.places(|of| &of.listener_names, |of| &of.listeners);
    let samples = listeners.into_iter().map(|(name, cells)| {
        let responses: Vec<_> = cells.iter().map(|of| &of.responses).collect();
        ListenerSample {
            name,
            open: cells.iter().map(|of| of.open.value()).sum(),
            connections: cells.iter().map(|of| of.connections.value()).sum(),
            requests: cells.iter().map(|of| of.requests.value()).sum(),
            responses: without_zeros(&CounterSet::total(&responses).into_iter().collect()),
            rejected: cells.iter().map(|of| of.rejected.value()).sum(),
        }
    });
    samples.collect()
}

/// The durations in each bucket alone.
fn counts(total: &HistogramSum) -> Vec<u64> {
    let buckets = total.buckets();
    buckets.iter().map(|(_, count)| *count).collect()
}

fn shown(name: &str) -> String {
    name.chars().take(KEY_CHARACTERS_MAX).collect()
}

impl From<HistogramSum> for Durations {
    fn from(total: HistogramSum) -> Self {
        let buckets = total.buckets();
        let bounds = buckets.iter().map(|(bound, _)| *bound);
        Self {
            bounds: bounds.filter(|bound| bound.is_finite()).collect(),
            counts: buckets.iter().map(|(_, count)| *count).collect(),
        }
    }
}

impl From<(String, ServerState)> for ServerSample {
    fn from((name, state): (String, ServerState)) -> Self {
        let state = state.as_str();
        Self { name, state }
    }
}

impl From<HotKey> for HotKeySample {
    fn from(hot: HotKey) -> Self {
        // Keys have no control characters; bytes that are not UTF-8 are replaced.
        let key = String::from_utf8_lossy(&hot.key);
        Self {
            key: shown(&key),
            samples: hot.samples,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::PollOutcome;

    fn setting() -> Setting {
        Setting {
            waiters_max: 1,
            connections_max: 2,
            clients_max: 3,
            memory_max: None,
            host: None,
        }
    }

    #[test]
    fn the_last_error_of_a_server_is_the_newest_of_all_loops() {
        let metrics = Metrics::with_upstreams(2, Vec::new(), &["http://a".to_owned()], 0);
        let start = dwell_evloop::now();
        for (seconds, of_loop, error) in [(1, 0, "first"), (3, 1, "second"), (5, 0, "third")] {
            let cells = metrics.of_loop(of_loop);
            let at = start + Duration::from_secs(seconds);
            cells.upstream_details[0].failed(1, error.into(), at);
            let [server] = &upstreams(&metrics)[..] else {
                panic!("one server");
            };
            assert_eq!(server.last_error.as_deref(), Some(error));
        }
    }

    #[test]
    fn loops_are_added_up_and_nothing_that_is_missing_is_made_up() {
        let metrics = Metrics::new(2, vec!["a:1".to_owned()], 7);
        for index in 0..2 {
            metrics.of_loop(index).polls.increment(PollOutcome::Woken);
            metrics.of_loop(index).polls_held.set(3);
            let latency = &metrics.of_loop(index).wake_latency;
            latency.observe(Duration::from_secs(20));
        }
        let now = SampleInputs {
            store: None,
            draining: true,
            uptime: Duration::from_millis(1500),
        };
        let setting = setting();
        let (numbers, everything) = Sample::read(&metrics, &setting, now).encode();
        let json: serde_json::Value = serde_json::from_str(&everything).unwrap();
        assert_eq!(json["numbers"]["polls"]["woken"], 2);
        assert_eq!(json["numbers"]["polls_held"], 6);
        assert_eq!(json["numbers"]["at"], 1500);
        assert_eq!(json["numbers"]["store"], serde_json::Value::Null);
        let latency = &json["numbers"]["wake_latency"];
        let counts = latency["counts"].as_array().unwrap();
        assert_eq!(
            counts.len(),
            latency["bounds"].as_array().unwrap().len() + 1
        );
        assert_eq!(counts.last().unwrap(), 2);
        assert_eq!(
            (&json["started"], &json["draining"]),
            (&7.into(), &true.into())
        );
        assert_eq!(json["servers"][0]["state"], "unknown");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&numbers).unwrap(),
            json["numbers"]
        );
    }

    #[test]
    fn whatever_a_key_is_it_is_one_line_of_json() {
        let metrics = Metrics::new(1, Vec::new(), 0);
        let key = [b"/poll/\xff\"\n".as_slice(), &[b'x'; 300]].concat();
        metrics.of_loop(0).store.hot.read(&key);
        let now = SampleInputs {
            store: Some(StoreFigures::default()),
            draining: false,
            uptime: Duration::ZERO,
        };
        let setting = setting();
        let (_, text) = Sample::read(&metrics, &setting, now).encode();
        assert!(!text.contains('\n'));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let shown = json["hot"][0]["key"].as_str().unwrap();
        assert!(shown.starts_with("/poll/\u{fffd}\"\n"), "{shown}");
        assert_eq!(shown.chars().count(), KEY_CHARACTERS_MAX);
    }
}
