//! Showing the metrics to a scrape.

use super::Label;
use super::process::ProcessFigures;
use super::{
    Counter, CounterSet, Gauge, Histogram, HistogramSet, HistogramSum, LoopMetrics, Metrics,
    ServerState, StoreFigures,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::atomic::Ordering;

impl Metrics {
    /// Adds up the loops and writes everything as [`CONTENT_TYPE`](super::CONTENT_TYPE).
    ///
    /// Shape: `store` is absent when values come from memcached servers.
    pub(crate) fn render(&self, store: Option<StoreFigures>) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Scrape {
            metrics: self.clone(),
            store,
        }));
        let mut text = String::with_capacity(16 * 1024);
        // Writing to a String cannot fail, and the encoders have no other failure.
        let _ = text::encode(&mut text, &registry);
        text
    }
}

/// One scrape; a collector must own what it shows.
#[derive(Debug)]
struct Scrape {
    metrics: Metrics,
    store: Option<StoreFigures>,
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page {
            encoder,
            loops: &self.metrics,
        };
        page.process(self.metrics.started_unix_seconds)?;
        page.config()?;
        page.connections()?;
        page.requests()?;
        page.polls()?;
        page.peers()?;
        self.store.map_or(Ok(()), |store| page.store(store))?;
        let failed = self.metrics.process.upgrades_failed.value();
        page.number("upgrades_failed", "Upgrades that were given up", failed)?;
        let dropped = self.metrics.process.access_log_dropped.value();
        page.number(
            "access_log_dropped",
            "Lines the access log had no room for",
            dropped,
        )?;
        let dropped = self.metrics.process.log_dropped.value();
        page.number("log_dropped", "Events the log had no room for", dropped)
    }
}

/// A page of metrics being written.
struct Page<'e, 'm> {
    encoder: DescriptorEncoder<'e>,
    loops: &'m Metrics,
}

impl Page<'_, '_> {
    fn process(&mut self, started: u64) -> fmt::Result {
        let build = [("version", env!("CARGO_PKG_VERSION"))];
        self.encoder
            .encode_descriptor("dwell_build", "What is running", None, MetricType::Info)?
            .encode_info(&build)?;
        self.process_gauge(
            "process_start_time",
            "Unix time of the start",
            &Unit::Seconds,
            started,
        )?;
        if let Some(figures) = ProcessFigures::read() {
            let seconds = Unit::Seconds;
            let help = "User and system CPU time spent";
            self.encoder
                .encode_descriptor("process_cpu", help, Some(&seconds), MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, f64>(&figures.cpu_seconds, NO_EXEMPLAR)?;
            let resident = figures.resident_bytes;
            self.process_gauge(
                "process_resident_memory",
                "Resident set",
                &Unit::Bytes,
                resident,
            )?;
            if let Some(open) = figures.open_fds {
                self.encoder
                    .encode_descriptor("process_open_fds", "Open files", None, MetricType::Gauge)?
                    .encode_gauge(&open)?;
            }
            if let Some(most) = figures.max_fds {
                let help = "Files that may be open";
                self.encoder
                    .encode_descriptor("process_max_fds", help, None, MetricType::Gauge)?
                    .encode_gauge(&most)?;
            }
        }
        let loops = self.loops.loops.len() as u64;
        self.level("loops", "Loops", loops)?;
        self.counter("loop_turns", "Turns of the loops", |of| &of.turns)
    }

    fn config(&mut self) -> fmt::Result {
        let of_loops = self.loops.loops.iter();
        let oldest = of_loops.map(|of| of.config_generation.value().max(1)).min();
        let help = "Configuration that all loops go by; 1 is that of the start";
        let oldest = oldest.and_then(|oldest| u64::try_from(oldest).ok());
        self.level("config_generation", help, oldest.unwrap_or(1))?;
        let reloads = &self.loops.process.reloads;
        let help = "Configurations read anew by what became of them";
        let mut family = self.encoder.encode_descriptor(
            "dwell_config_reloads",
            help,
            None,
            MetricType::Counter,
        )?;
        for (outcome, count) in [("taken", &reloads.taken), ("refused", &reloads.refused)] {
            family
                .encode_family(&[("outcome", outcome)])?
                .encode_counter::<NoLabelSet, _, f64>(&count.value(), NO_EXEMPLAR)?;
        }
        let is_good = u64::from(!reloads.last_refused.load(Ordering::Relaxed));
        let help = "Whether the last configuration read anew was taken";
        self.level("config_last_reload_successful", help, is_good)?;
        let help = "Unix time at which a configuration read anew was taken; 0 while none was";
        let at = reloads.last_taken.load(Ordering::Relaxed);
        let name = "dwell_config_last_reload_success_timestamp";
        self.process_gauge(name, help, &Unit::Seconds, at)
    }

    fn connections(&mut self) -> fmt::Result {
        let help = "Client connections open now";
        self.gauge("connections_open", help, |of| &of.connections_open)?;
        self.counter("connections", "Client connections accepted", |of| {
            &of.connections
        })?;
        let help = "Client connections closed at once by the limit that was reached";
        self.counters("connections_refused", help, |of| &of.connections_refused)?;
        let help = "Bytes of answers and events that clients have not taken yet";
        let bytes = self.loops.process.output.bytes() as u64;
        self.level("output_bytes", help, bytes)?;
        let help = "Bytes gathered of requests whose body has not come yet";
        let bytes = self.loops.process.gathered.bytes() as u64;
        self.level("gathered_bytes", help, bytes)?;
        let help = "Clients cut off for limits.output_bytes_max, the slowest first";
        self.counter("output_cuts", help, |of| &of.output_cuts)?;
        let help = "Deadlines clients missed";
        self.counters("client_timeouts", help, |of| &of.client_timeouts)
    }

    fn requests(&mut self) -> fmt::Result {
        let help = "Answers by the class of their status";
        self.counters("http_requests", help, |of| &of.http_requests)?;
        let help = "Requests refused for their form, size or a limit";
        self.counters("bad_requests", help, |of| &of.bad_requests)?;
        let help = "Requests to the admin listener by why they were not looked at";
        self.counters("admin_refused", help, |of| &of.admin_refused)?;
        let help = "From the end of the header section to the answer, held polls left out";
        self.histogram("http_request_duration", help, |of| &of.request_duration)
    }

    fn polls(&mut self) -> fmt::Result {
        self.counters("polls", "Polls by how they ended", |of| &of.polls)?;
        let help = "Polls held now, and keys of streams";
        self.gauge("waits_held", help, |of| &of.waits_held)?;
        self.gauge("polls_held", "Polls held now", |of| &of.polls_held)?;
        let help = "Polls that were held, and keys of streams";
        self.counter("waits", help, |of| &of.waits)?;
        self.streams()?;
        let help = "Questions to the application about who may ask";
        self.counters("auth", help, |of| &of.auth)?;
        let help = "Requests of publishers over HTTP by what came of them";
        self.counters("publishes", help, |of| &of.publishes)?;
        let help = "Distinct keys that polls wait for now";
        self.gauge("watched_keys", help, |of| &of.watched_keys)?;
        self.webhook()?;
        let help = "Changes of watched keys by what came of them";
        self.counters("wakeups", help, |of| &of.wakeups)?;
        let help = "From the change of a key to the answers of the polls it woke";
        self.histogram("wake_latency", help, |of| &of.wake_latency)
    }

    fn webhook(&mut self) -> fmt::Result {
        let help = "First and last watchers of keys by whether the webhook was told";
        self.counters("webhook_events", help, |of| &of.webhook_events)?;
        let help = "Requests to the webhook that had to be made once more";
        self.counter("webhook_retries", help, |of| &of.webhook_retries)?;
        let help = "First and last watchers that the webhook has still to be told of";
        self.gauge("webhook_queue", help, |of| &of.webhook_queue)
    }

    fn streams(&mut self) -> fmt::Result {
        let help = "Streams of events open now";
        self.gauge("streams_open", help, |of| &of.streams_open)?;
        let help = "Streams of events that were begun";
        self.counter("streams", help, |of| &of.streams)?;
        let help = "WebSockets open now";
        self.gauge("websockets_open", help, |of| &of.websockets_open)?;
        let help = "WebSockets that were opened";
        self.counter("websockets", help, |of| &of.websockets)?;
        let help = "Connections that have changed to a protocol of the application open now";
        self.gauge("tunnels_open", help, |of| &of.tunnels_open)?;
        let help = "Frames of WebSocket clients that were refused";
        self.counter("websocket_errors", help, |of| &of.websocket_errors)?;
        let help = "Streams of events and WebSockets by why they ended";
        self.counters("streams_ended", help, |of| &of.streams_ended)?;
        let help = "Events written into streams, and frames of values into WebSockets";
        self.counter("stream_events", help, |of| &of.stream_events)?;
        let help = "Events put off until a slow client has taken what was before them";
        self.counter("stream_postponed", help, |of| &of.stream_postponed)
    }

    fn peers(&mut self) -> fmt::Result {
        let help = "Lookups at memcached servers by what they came to";
        self.counters("memcached_lookups", help, |of| &of.memcached_lookups)?;
        let help = "Rounds of looking at the keys that polls wait for";
        self.counter("memcached_sweeps", help, |of| &of.memcached_sweeps)?;
        let help = "Whether the server answered last: 1 yes, 0 no; absent until it was asked";
        let servers = self.loops.servers();
        self.server_states("dwell_memcached_server_up", help, servers)?;
        self.feed()?;
        let help = "Requests to the upstream by what they came to";
        self.counters("upstream_requests", help, |of| &of.upstream_requests)?;
        let help = "Answers of the upstream that the cache was given";
        self.counter("fills", help, |of| &of.fills)?;
        let help = "Connections to the upstream open now";
        self.gauge("upstream_connections_open", help, |of| {
            &of.upstream_connections_open
        })?;
        let help = "Requests to the upstream under way or waiting";
        self.gauge("upstream_outstanding", help, |of| &of.upstream_outstanding)?;
        let help = "Whether the server is in use: 1 yes, 0 left out for its failures";
        let upstreams = self.loops.upstreams();
        let upstreams = upstreams
            .iter()
            .map(|(name, state)| (name.as_str(), *state));
        self.server_states("dwell_upstream_server_up", help, upstreams)?;
        self.upstream_heads()
    }

    fn upstream_heads(&mut self) -> fmt::Result {
        let (name, unit) = (dwell("upstream_head_duration"), Unit::Seconds);
        let help = "From a request sent to the head of its answer";
        let mut family =
            self.encoder
                .encode_descriptor(&name, help, Some(&unit), MetricType::Histogram)?;
        for (server, total) in self.loops.upstream_heads() {
            family
                .encode_family(&[("server", server.as_str())])?
                .encode_histogram::<NoLabelSet>(
                    total.sum_seconds(),
                    total.count(),
                    &total.buckets(),
                    None,
                )?;
        }
        Ok(())
    }

    fn feed(&mut self) -> fmt::Result {
        let help = "Whether the server tells of changes: 1 yes, 0 it refuses to; absent otherwise";
        let watches = self.loops.watches();
        self.server_states("dwell_feed_watch_up", help, watches)?;
        let help = "Lines in which memcached has told of changes";
        self.counter("feed_lines", help, |of| &of.feed.lines)?;
        let help = "Lines that memcached has lost or left out";
        self.counter("feed_lines_lost", help, |of| &of.feed.lines_lost)?;
        let help = "Words that a key may have changed by what a loop did";
        self.counters("feed_hints", help, |of| &of.feed.hints)?;
        let help = "From memcached's time of a change to the word of it, by both clocks";
        self.histogram("feed_lag", help, |of| &of.feed.lag)?;
        let help = "Looks at everything on one server between sweeps by their reasons";
        self.counters("feed_resyncs", help, |of| &of.feed.resyncs)
    }

    fn server_states<'m>(
        &mut self,
        name: &str,
        help: &str,
        servers: impl Iterator<Item = (&'m str, ServerState)>,
    ) -> fmt::Result {
        let mut family = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (server, state) in servers {
            let up = match state {
                ServerState::Unknown => continue,
                ServerState::Down => 0_u64,
                ServerState::Up => 1,
            };
            family
                .encode_family(&[("server", server)])?
                .encode_gauge(&up)?;
        }
        Ok(())
    }

    fn store(&mut self, store: StoreFigures) -> fmt::Result {
        self.level("store_items", "Items in the embedded store", store.items)?;
        self.level(
            "store_bytes",
            "Bytes the items take with their overhead",
            store.bytes,
        )?;
        self.level(
            "store_bytes_max",
            "Bytes the items may take",
            store.bytes_max,
        )?;
        let help = "Connections of memcached clients open now";
        self.level("store_connections_open", help, store.connections_open)?;
        self.number("store_hits", "Lookups that found a value", store.hits)?;
        self.number("store_misses", "Lookups that found none", store.misses)?;
        self.number("store_sets", "Values stored", store.sets)?;
        self.number(
            "store_evictions",
            "Items dropped to make room",
            store.evictions,
        )?;
        self.number(
            "store_expired",
            "Items dropped at the end of their time",
            store.expired,
        )?;
        let help = "Commands of memcached clients";
        self.counters("store_commands", help, |of| &of.store.commands)?;
        let help = "What a command took inside the server, one in 64 measured";
        self.histograms("store_command_duration", help, |of| &of.store.durations)
    }

    fn counter(&mut self, name: &str, help: &str, of: fn(&LoopMetrics) -> &Counter) -> fmt::Result {
        let total = self.loops.loops.iter().map(|cells| of(cells).value()).sum();
        self.number(name, help, total)
    }

    fn number(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.encoder
            .encode_descriptor(&dwell(name), help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, f64>(&value, NO_EXEMPLAR)
    }

    fn counters<L: Label>(
        &mut self,
        name: &str,
        help: &str,
        of: fn(&LoopMetrics) -> &CounterSet<L>,
    ) -> fmt::Result {
        let name = dwell(name);
        let mut family = self
            .encoder
            .encode_descriptor(&name, help, None, MetricType::Counter)?;
        for label in L::ALL {
            let total: u64 = self
                .loops
                .loops
                .iter()
                .map(|cells| of(cells).of(*label).value())
                .sum();
            family
                .encode_family(&[(L::NAME, label.as_str())])?
                .encode_counter::<NoLabelSet, _, f64>(&total, NO_EXEMPLAR)?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, of: fn(&LoopMetrics) -> &Gauge) -> fmt::Result {
        let total: i64 = self.loops.loops.iter().map(|cells| of(cells).value()).sum();
        self.encoder
            .encode_descriptor(&dwell(name), help, None, MetricType::Gauge)?
            .encode_gauge(&total)
    }

    fn level(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.encoder
            .encode_descriptor(&dwell(name), help, None, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    fn process_gauge(&mut self, name: &str, help: &str, unit: &Unit, value: u64) -> fmt::Result {
        self.encoder
            .encode_descriptor(name, help, Some(unit), MetricType::Gauge)?
            .encode_gauge(&value)
    }

    /// Histograms in nanoseconds, of the labels that were counted at all.
    fn histograms<L: Label>(
        &mut self,
        name: &str,
        help: &str,
        of: fn(&LoopMetrics) -> &HistogramSet<L>,
    ) -> fmt::Result {
        let (name, unit) = (dwell(name), Unit::Seconds);
        let mut family =
            self.encoder
                .encode_descriptor(&name, help, Some(&unit), MetricType::Histogram)?;
        for label in L::ALL {
            let mut total = HistogramSum::of_nanoseconds();
            for cells in &self.loops.loops {
                of(cells).of(*label).add_to(&mut total);
            }
            if total.count() > 0 {
                family
                    .encode_family(&[(L::NAME, label.as_str())])?
                    .encode_histogram::<NoLabelSet>(
                        total.sum_seconds(),
                        total.count(),
                        &total.buckets(),
                        None,
                    )?;
            }
        }
        Ok(())
    }

    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        of: fn(&LoopMetrics) -> &Histogram,
    ) -> fmt::Result {
        let mut total = HistogramSum::default();
        for cells in &self.loops.loops {
            of(cells).add_to(&mut total);
        }
        self.encoder
            .encode_descriptor(
                &dwell(name),
                help,
                Some(&Unit::Seconds),
                MetricType::Histogram,
            )?
            .encode_histogram::<NoLabelSet>(
                total.sum_seconds(),
                total.count(),
                &total.buckets(),
                None,
            )
    }
}

fn dwell(name: &str) -> String {
    format!("dwell_{name}")
}

const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;

#[cfg(test)]
mod tests;
