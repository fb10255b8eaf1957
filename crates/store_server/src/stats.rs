//! `stats`: figures under the names memcached gave them.
//!
//! Every name that memcached 1.6.18 shows is here, because exporters ask for them by name. A figure
//! of something that does not exist here (slab pages, LRU moves, TLS) is 0, `no` or `NULL`: it is
//! what a memcached that has it switched off shows. [`StatsWriter::dwell`] adds figures of its own.

use std::sync::atomic::Ordering::Relaxed;

use dwell_metrics::HistogramSum;
use dwell_proto::memcache::binary::{self, Echo};
use dwell_proto::memcache::encode::reply;
use dwell_store::{READS_PER_SAMPLE, Seconds, Statistics, hottest};

use super::metrics::StoreCommand;
use super::service::{StoreService, VERSION};

/// The outcome of a topic of `stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatsOutcome {
    /// The figures are written; an end has to follow.
    Shown,
    /// The counters are 0 again.
    Reset,
    /// The request is taken, and shows nothing.
    Taken,
    /// `stats detail` without what to do.
    DetailUsage,
    /// No such topic.
    Unknown,
}

/// Writes figures in one of the two forms.
pub(super) struct StatsWriter<'w> {
    out: &'w mut Vec<u8>,
    /// The parts that every reply repeats in the binary protocol; `None` is the text protocol.
    echo: Option<Echo>,
}

impl<'w> StatsWriter<'w> {
    pub(super) fn text(out: &'w mut Vec<u8>) -> Self {
        Self { out, echo: None }
    }

    pub(super) fn binary(out: &'w mut Vec<u8>, echo: Echo) -> Self {
        let echo = Some(echo);
        Self { out, echo }
    }

    fn put(&mut self, name: &str, value: &str) {
        match self.echo {
            None => reply::stat(self.out, name, value),
            Some(echo) => binary::Reply {
                key: name.as_bytes(),
                value: value.as_bytes(),
                ..binary::Reply::new(echo, binary::Status::Success)
            }
            .write(self.out),
        }
    }

    fn number(&mut self, name: &str, value: u64) {
        self.put(name, itoa::Buffer::new().format(value));
    }

    fn numbers(&mut self, figures: &[(&str, u64)]) {
        for (name, value) in figures {
            self.number(name, *value);
        }
    }

    fn texts(&mut self, figures: &[(&str, &str)]) {
        for (name, value) in figures {
            self.put(name, value);
        }
    }

    fn zeros(&mut self, names: &str) {
        for name in names.split_ascii_whitespace() {
            self.number(name, 0);
        }
    }

    /// Shows one topic; none is the general one.
    pub(super) fn topic(
        &mut self,
        service: &StoreService,
        topic: &[u8],
        now: Seconds,
    ) -> StatsOutcome {
        let mut words = topic
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty());
        match (words.next(), words.next()) {
            (None, _) => self.general(service, now),
            (Some(b"settings"), _) => self.settings(service),
            (Some(b"items"), _) => self.items(&service.store.statistics()),
            (Some(b"slabs"), _) => self.slabs(&service.store.statistics()),
            (Some(b"conns"), _) => self.connections(service, now),
            // memcached's own answer where it does not collect them.
            (Some(b"sizes"), _) => self.put("sizes_status", "disabled"),
            // Figures by prefix are not collected, so there are none to show.
            (Some(b"detail"), Some(b"on" | b"off")) => return StatsOutcome::Taken,
            (Some(b"detail"), Some(b"dump")) => {}
            (Some(b"detail"), _) => return StatsOutcome::DetailUsage,
            (Some(b"dwell"), _) => self.dwell(service),
            (Some(b"reset"), _) => {
                service.store.reset_statistics();
                return StatsOutcome::Reset;
            }
            _ => return StatsOutcome::Unknown,
        }
        StatsOutcome::Shown
    }

    fn general(&mut self, service: &StoreService, now: Seconds) {
        let counters = &service.counters;
        let statistics = service.store.statistics();
        self.number("pid", u64::from(std::process::id()));
        self.number("uptime", u64::from(now.saturating_sub(service.started)));
        self.number("time", u64::from(now));
        // No libevent here; exporters show it as a label.
        self.texts(&[("version", VERSION), ("libevent", "none")]);
        self.number("pointer_size", u64::from(usize::BITS));
        let (user, system) = service.host.cpu_times().unwrap_or_default();
        self.put("rusage_user", &format!("{user:.6}"));
        self.put("rusage_system", &format!("{system:.6}"));
        let open = counters.curr_connections.load(Relaxed);
        self.numbers(&[
            ("max_connections", service.limits.connections_max as u64),
            ("curr_connections", open),
            (
                "total_connections",
                counters.total_connections.load(Relaxed),
            ),
            (
                "rejected_connections",
                counters.rejected_connections.load(Relaxed),
            ),
            // One entry of a table per connection.
            ("connection_structures", open),
        ]);
        self.zeros(
            "response_obj_oom response_obj_count response_obj_bytes read_buf_count \
             read_buf_bytes read_buf_bytes_free read_buf_oom reserved_fds",
        );
        self.commands(&statistics);
        self.numbers(&[
            ("auth_cmds", counters.auth_commands.load(Relaxed)),
            ("auth_errors", counters.auth_errors.load(Relaxed)),
        ]);
        if service.limits.idle_timeout.is_some() {
            self.number("idle_kicks", counters.idle_kicks.load(Relaxed));
        }
        self.numbers(&[
            ("bytes_read", counters.bytes_read.load(Relaxed)),
            ("bytes_written", counters.bytes_written.load(Relaxed)),
            ("limit_maxbytes", statistics.limit_maxbytes),
            ("accepting_conns", 1),
            ("listen_disabled_num", 0),
            ("time_in_listen_disabled_us", 0),
            ("threads", service.loops.len() as u64),
            ("conn_yields", counters.conn_yields.load(Relaxed)),
            ("hash_power_level", statistics.hash_power_level),
            ("hash_bytes", statistics.hash_bytes),
        ]);
        self.zeros(
            "hash_is_expanding slab_reassign_rescues slab_reassign_chunk_rescues \
             slab_reassign_evictions_nomem slab_reassign_inline_reclaim slab_reassign_busy_items \
             slab_reassign_busy_deletes slab_reassign_running slabs_moved lru_crawler_running \
             lru_crawler_starts lru_maintainer_juggles malloc_fails log_worker_dropped \
             log_worker_written log_watcher_skipped log_watcher_sent log_watchers \
             unexpected_napi_ids round_robin_fallback",
        );
        self.memory(&statistics);
    }

    fn commands(&mut self, of: &Statistics) {
        self.numbers(&[
            ("cmd_get", of.cmd_get),
            ("cmd_set", of.cmd_set),
            ("cmd_flush", of.cmd_flush),
            ("cmd_touch", of.cmd_touch),
            ("cmd_meta", of.cmd_meta),
            ("get_hits", of.get_hits),
            ("get_misses", of.get_misses),
            ("get_expired", of.get_expired),
            // A flush removes what it flushes, so nothing flushed is ever found.
            ("get_flushed", 0),
            ("delete_misses", of.delete_misses),
            ("delete_hits", of.delete_hits),
            ("incr_misses", of.incr_misses),
            ("incr_hits", of.incr_hits),
            ("decr_misses", of.decr_misses),
            ("decr_hits", of.decr_hits),
            ("cas_misses", of.cas_misses),
            ("cas_hits", of.cas_hits),
            ("cas_badval", of.cas_badval),
            ("touch_hits", of.touch_hits),
            ("touch_misses", of.touch_misses),
            ("store_too_large", of.store_too_large),
            ("store_no_memory", of.store_no_memory),
        ]);
    }

    fn memory(&mut self, of: &Statistics) {
        self.numbers(&[
            ("bytes", of.bytes),
            ("curr_items", of.curr_items),
            ("total_items", of.total_items),
            ("slab_global_page_pool", 0),
            ("expired_unfetched", of.expired_unfetched),
            ("evicted_unfetched", of.evicted_unfetched),
            ("evicted_active", 0),
            ("evictions", of.evictions),
            ("reclaimed", of.reclaimed),
            ("crawler_reclaimed", 0),
            ("crawler_items_checked", of.crawler_items_checked),
        ]);
        self.zeros(
            "lrutail_reflocked moves_to_cold moves_to_warm moves_within_lru direct_reclaims \
             lru_bumps_dropped",
        );
    }

    fn settings(&mut self, service: &StoreService) {
        let limits = &service.limits;
        let listening = service.listening.get();
        let tcp = listening.and_then(|at| at.tcp);
        self.number("maxbytes", service.store.statistics().limit_maxbytes);
        self.number("maxconns", limits.connections_max as u64);
        self.number(
            "tcpport",
            tcp.map_or(0, |address| u64::from(address.port())),
        );
        self.number("udpport", 0);
        let inter = tcp.map_or("NULL".to_owned(), |address| address.ip().to_string());
        self.put("inter", &inter);
        self.number(
            "verbosity",
            u64::from(service.counters.verbosity.load(Relaxed)),
        );
        self.number("oldest", 0);
        let evicts = service.store.evicts();
        self.put("evictions", if evicts { "on" } else { "off" });
        let unix = listening.and_then(|at| at.unix.as_ref());
        let unix = unix.map_or("NULL".to_owned(), |path| path.display().to_string());
        self.put("domain_socket", &unix);
        let threads = service.loops.len() as u64;
        let yes = |truth: bool| if truth { "yes" } else { "no" };
        self.number("umask", 700);
        self.texts(&[
            ("shutdown_command", yes(limits.allowed.shutdown)),
            ("growth_factor", "1.25"),
        ]);
        self.numbers(&[
            ("chunk_size", 48),
            ("num_threads", threads),
            ("num_threads_per_udp", threads),
        ]);
        self.texts(&[("stat_key_prefix", ":"), ("detail_enabled", "no")]);
        self.number("reqs_per_event", limits.commands_per_turn as u64);
        self.put("cas_enabled", yes(limits.cas_enabled));
        self.number(
            "tcp_backlog",
            listening.map_or(0, |at| u64::from(at.backlog)),
        );
        self.texts(&[
            ("binding_protocol", limits.protocols.name()),
            ("auth_enabled_sasl", "no"),
            ("auth_enabled_ascii", yes(limits.credentials.is_some())),
        ]);
        self.number("item_size_max", service.store().item_bytes_max() as u64);
        self.texts(&[("maxconns_fast", "yes"), ("hashpower_init", "0")]);
        self.absent_settings(yes(limits.allowed.flush_all), yes(limits.allowed.dump));
        let idle = limits.idle_timeout.map_or(0, |timeout| timeout.as_secs());
        self.number("idle_timeout", idle);
        self.zeros("watcher_logbuf_size worker_logbuf_size read_buf_mem_limit");
        self.texts(&[("track_sizes", "no"), ("inline_ascii_response", "no")]);
        self.external_settings();
    }

    /// Settings of memcached's slabs and LRUs, which are not the ones of this store.
    fn absent_settings(&mut self, flush_enabled: &str, dump_enabled: &str) {
        self.texts(&[
            ("slab_reassign", "no"),
            ("slab_automove", "0"),
            ("slab_automove_ratio", "0.80"),
            ("slab_automove_window", "30"),
            ("slab_chunk_max", "0"),
            ("lru_crawler", "yes"),
            ("lru_crawler_sleep", "0"),
            ("lru_crawler_tocrawl", "0"),
            ("tail_repair_time", "0"),
            ("flush_enabled", flush_enabled),
            ("dump_enabled", dump_enabled),
            ("hash_algorithm", "foldhash"),
            ("lru_maintainer_thread", "no"),
            ("lru_segmented", "no"),
            ("hot_lru_pct", "0"),
            ("warm_lru_pct", "0"),
            ("hot_max_factor", "0.00"),
            ("warm_max_factor", "0.00"),
            ("temp_lru", "no"),
            ("temporary_ttl", "0"),
        ]);
    }

    /// Settings of memcached's disk storage and TLS, switched off.
    fn external_settings(&mut self) {
        self.zeros(
            "ext_item_size ext_item_age ext_low_ttl ext_recache_rate ext_wbuf_size \
             ext_compact_under ext_drop_under ext_max_sleep",
        );
        self.texts(&[
            ("ext_max_frag", "0.00"),
            ("slab_automove_freeratio", "0.000"),
            ("ext_drop_unread", "no"),
            ("ssl_enabled", "no"),
            ("ssl_chain_cert", "(null)"),
            ("ssl_key", "(null)"),
            ("ssl_verify_mode", "0"),
            ("ssl_keyformat", "0"),
            ("ssl_ciphers", "NULL"),
            ("ssl_ca_cert", "NULL"),
            ("ssl_wbuf_size", "0"),
            ("ssl_session_cache", "no"),
            ("ssl_kernel_tls", "no"),
            ("ssl_min_version", "tlsv1.2"),
            ("num_napi_ids", "(null)"),
            ("memory_file", "(null)"),
        ]);
    }

    /// All items are in one class here, so it is shown as class 1.
    fn items(&mut self, of: &Statistics) {
        if of.curr_items == 0 {
            return;
        }
        let figures = [
            ("number", of.curr_items),
            ("number_hot", of.small_items),
            ("number_warm", of.curr_items - of.small_items),
            ("number_cold", 0),
            ("age_hot", 0),
            ("age_warm", 0),
            ("age", 0),
            ("mem_requested", of.bytes),
            ("evicted", of.evictions),
            ("evicted_nonzero", 0),
            ("evicted_time", 0),
            ("outofmemory", of.store_no_memory),
            ("tailrepairs", 0),
            ("reclaimed", of.reclaimed),
            ("expired_unfetched", of.expired_unfetched),
            ("evicted_unfetched", of.evicted_unfetched),
            ("evicted_active", 0),
            ("crawler_reclaimed", 0),
            ("crawler_items_checked", of.crawler_items_checked),
            ("lrutail_reflocked", 0),
            ("moves_to_cold", 0),
            ("moves_to_warm", 0),
            ("moves_within_lru", 0),
            ("direct_reclaims", 0),
            ("hits_to_hot", of.get_hits),
            ("hits_to_warm", 0),
            ("hits_to_cold", 0),
            ("hits_to_temp", 0),
        ];
        for (name, value) in figures {
            self.number(&format!("items:1:{name}"), value);
        }
    }

    fn slabs(&mut self, of: &Statistics) {
        if let Some(chunk_size) = of.bytes.checked_div(of.curr_items) {
            let figures = [
                // Slots grow and shrink with the items; there are no chunks of one size.
                ("chunk_size", chunk_size),
                ("chunks_per_page", 0),
                ("total_pages", 1),
                ("total_chunks", of.curr_items),
                ("used_chunks", of.curr_items),
                ("free_chunks", 0),
                ("free_chunks_end", 0),
                ("get_hits", of.get_hits),
                ("cmd_set", of.cmd_set),
                ("delete_hits", of.delete_hits),
                ("incr_hits", of.incr_hits),
                ("decr_hits", of.decr_hits),
                ("cas_hits", of.cas_hits),
                ("cas_badval", of.cas_badval),
                ("touch_hits", of.touch_hits),
            ];
            for (name, value) in figures {
                self.number(&format!("1:{name}"), value);
            }
        }
        self.number("active_slabs", u64::from(of.curr_items > 0));
        self.number("total_malloced", of.bytes);
    }

    fn connections(&mut self, service: &StoreService, now: Seconds) {
        let listening = service.listening.get();
        let unix = listening.and_then(|at| at.unix.as_ref());
        let unix = || unix.map_or_else(String::new, |path| format!("unix:{}", path.display()));
        let tcp = listening.and_then(|at| at.tcp);
        for (id, record) in &*service.records() {
            let (peer, listener) = match record.peer {
                Some(peer) => {
                    let tcp = tcp.map_or_else(String::new, |tcp| format!("tcp:{tcp}"));
                    (format!("tcp:{peer}"), tcp)
                }
                None => (unix(), unix()),
            };
            self.put(&format!("{id}:addr"), &peer);
            self.put(&format!("{id}:listen_addr"), &listener);
            let silent = now.saturating_sub(record.last_command.load(Relaxed));
            self.put(&format!("{id}:state"), record.state());
            self.number(&format!("{id}:secs_since_last_cmd"), u64::from(silent));
        }
    }

    /// Appends figures that memcached does not have: waits, commands with their times, the hottest
    /// keys.
    fn dwell(&mut self, service: &StoreService) {
        let loops = &service.loops;
        let statistics = service.store.statistics();
        self.numbers(&[
            ("waiters", service.host.waiters()),
            ("watched_keys", statistics.watched_keys),
            ("watch_notifications", statistics.watch_notifications),
            ("connections_open", service.host.connections_open()),
        ]);
        for command in StoreCommand::ALL {
            let count: u64 = loops
                .iter()
                .map(|of| of.commands.of(*command).value())
                .sum();
            if count == 0 {
                continue;
            }
            let mut times = HistogramSum::of_nanoseconds();
            for of_loop in loops {
                of_loop.durations.of(*command).add_to(&mut times);
            }
            let name = command.as_str();
            self.number(&format!("command:{name}:count"), count);
            for (part, per_mille) in [("p50_us", 500), ("p99_us", 990)] {
                let micros = times.quantile_seconds(per_mille) * 1e6;
                self.put(&format!("command:{name}:{part}"), &format!("{micros:.2}"));
            }
        }
        let hot = hottest(loops.iter().map(|of_loop| of_loop.hot.keys()), HOT_SHOWN);
        for (place, hot) in hot.iter().enumerate() {
            self.put(
                &format!("hot:{place}:key"),
                &hot.key.escape_ascii().to_string(),
            );
            let reads = u64::from(hot.samples) * READS_PER_SAMPLE;
            self.number(&format!("hot:{place}:reads"), reads);
        }
    }
}

/// Keys that `stats dwell` shows.
const HOT_SHOWN: usize = 20;
