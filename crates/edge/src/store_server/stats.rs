//! `stats`: figures under the names memcached gave them.

use std::sync::atomic::Ordering::Relaxed;

use dwell_proto::memcache::encode::reply::{self, Status, stat, stat_number};
use dwell_proto::memcache::{ErrorLine, Tokens};
use dwell_store::Seconds;

use super::commands::Executor;
use super::service::{StoreService, VERSION};

impl Executor<'_> {
    /// Answers `stats` with any argument.
    ///
    /// Shape: what is unknown, or has no meaning here, gets `ERROR`; nothing is made up.
    pub(super) fn stats(&mut self, arguments: Tokens<'_>) {
        let out = &mut *self.out;
        match arguments.iter().next() {
            None => general(self.service, self.now, out),
            Some(b"settings") => settings(self.service, out),
            Some(b"items") => items(self.service, out),
            Some(b"slabs") => slabs(self.service, out),
            // memcached's own answer where it does not collect them.
            Some(b"sizes") => stat(out, "sizes_status", "disabled"),
            Some(b"reset") => {
                self.service.store.reset_statistics();
                return reply::status(out, Status::Reset);
            }
            Some(_) => return reply::error(out, ErrorLine::Unknown),
        }
        reply::status(out, Status::End);
    }
}

fn general(service: &StoreService, now: Seconds, out: &mut Vec<u8>) {
    let counters = &service.counters;
    stat_number(out, "pid", u64::from(std::process::id()));
    stat_number(
        out,
        "uptime",
        u64::from(now.saturating_sub(service.started)),
    );
    stat_number(out, "time", u64::from(now));
    stat(out, "version", VERSION);
    stat_number(out, "pointer_size", u64::from(usize::BITS));
    stat_number(
        out,
        "max_connections",
        service.limits.connections_max as u64,
    );
    let connections = [
        ("curr_connections", &counters.curr_connections),
        ("total_connections", &counters.total_connections),
        ("rejected_connections", &counters.rejected_connections),
        // One entry of a table per connection.
        ("connection_structures", &counters.curr_connections),
        ("conn_yields", &counters.conn_yields),
        ("bytes_read", &counters.bytes_read),
        ("bytes_written", &counters.bytes_written),
    ];
    for (name, counter) in connections {
        stat_number(out, name, counter.load(Relaxed));
    }
    stat_number(out, "accepting_conns", 1);
    stat_number(out, "listen_disabled_num", 0);
    stat_number(out, "threads", service.threads as u64);
    stat_number(out, "auth_cmds", 0);
    stat_number(out, "auth_errors", 0);
    for (name, value) in service.store.statistics().iter() {
        stat_number(out, name, value);
    }
}

fn settings(service: &StoreService, out: &mut Vec<u8>) {
    let limits = &service.limits;
    stat_number(out, "maxbytes", service.store.statistics().limit_maxbytes);
    stat_number(out, "maxconns", limits.connections_max as u64);
    stat_number(out, "udpport", 0);
    stat_number(out, "verbosity", 0);
    stat_number(out, "oldest", 0);
    stat(out, "evictions", "on");
    stat_number(out, "num_threads", service.threads as u64);
    stat(out, "cas_enabled", "yes");
    stat(out, "auth_enabled_sasl", "no");
    stat(out, "auth_enabled_ascii", "no");
    stat_number(out, "item_size_max", limits.request.item_bytes_max as u64);
    stat(out, "maxconns_fast", "yes");
    stat_number(
        out,
        "idle_timeout",
        limits.idle_timeout.map_or(0, |timeout| timeout.as_secs()),
    );
    stat(out, "binding_protocol", "ascii");
    stat(out, "flush_enabled", "yes");
    stat(out, "dump_enabled", "no");
    stat(out, "shutdown_command", "no");
}

/// All items are in one class here, so it is shown as class 1.
fn items(service: &StoreService, out: &mut Vec<u8>) {
    let statistics = service.store.statistics();
    if statistics.curr_items == 0 {
        return;
    }
    stat_number(out, "items:1:number", statistics.curr_items);
    stat_number(out, "items:1:mem_requested", statistics.bytes);
    stat_number(out, "items:1:evicted", statistics.evictions);
    stat_number(
        out,
        "items:1:evicted_unfetched",
        statistics.evicted_unfetched,
    );
    stat_number(
        out,
        "items:1:expired_unfetched",
        statistics.expired_unfetched,
    );
    stat_number(out, "items:1:reclaimed", statistics.reclaimed);
    stat_number(
        out,
        "items:1:crawler_items_checked",
        statistics.crawler_items_checked,
    );
}

fn slabs(service: &StoreService, out: &mut Vec<u8>) {
    let statistics = service.store.statistics();
    if statistics.curr_items > 0 {
        stat_number(out, "1:mem_requested", statistics.bytes);
        stat_number(out, "1:used_chunks", statistics.curr_items);
        stat_number(out, "1:get_hits", statistics.get_hits);
        stat_number(out, "1:cmd_set", statistics.cmd_set);
        stat_number(out, "1:delete_hits", statistics.delete_hits);
        stat_number(out, "1:incr_hits", statistics.incr_hits);
        stat_number(out, "1:decr_hits", statistics.decr_hits);
        stat_number(out, "1:cas_hits", statistics.cas_hits);
        stat_number(out, "1:cas_badval", statistics.cas_badval);
        stat_number(out, "1:touch_hits", statistics.touch_hits);
    }
    stat_number(out, "active_slabs", u64::from(statistics.curr_items > 0));
    stat_number(out, "total_malloced", statistics.bytes);
}
