//! What the loops of one store server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dwell_proto::memcache::RequestLimits;
use dwell_store::{Seconds, Store};

/// Bounds of the store server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreServerLimits {
    /// Open connections over all loops; the next gets an error line and is closed. Default: 1024.
    pub connections_max: usize,
    /// How long a connection may be silent between commands; `None` is for ever, the default, as
    /// pooled clients expect it.
    pub idle_timeout: Option<Duration>,
    /// How long a peer may neither finish a command it began nor read a reply. Default: 60 s.
    pub stall_timeout: Duration,
    /// What `cache_memlimit` may raise the store to. Units: bytes. Default: 64 MiB.
    pub bytes_max: usize,
    /// Lines and items.
    pub request: RequestLimits,
}

impl Default for StoreServerLimits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            idle_timeout: None,
            stall_timeout: Duration::from_secs(60),
            bytes_max: 64 << 20,
            request: RequestLimits::default(),
        }
    }
}

/// The store with what its servers on all loops count.
#[derive(Debug)]
pub struct StoreService {
    pub(super) store: Arc<Store>,
    pub(super) limits: StoreServerLimits,
    /// How many loops serve it, for `stats`.
    pub(super) threads: usize,
    pub(super) started: Seconds,
    pub(super) counters: Counters,
}

/// Figures of the connections. All are statistics only: no other memory is published with them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) curr_connections: AtomicU64,
    pub(super) total_connections: AtomicU64,
    pub(super) rejected_connections: AtomicU64,
    pub(super) bytes_read: AtomicU64,
    pub(super) bytes_written: AtomicU64,
    pub(super) conn_yields: AtomicU64,
}

impl StoreService {
    /// A service on `store` for `threads` loops, started at `now` (Unix time).
    pub fn new(
        store: Arc<Store>,
        limits: StoreServerLimits,
        threads: usize,
        now: Seconds,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            limits,
            threads,
            started: now,
            counters: Counters::default(),
        })
    }

    /// The store itself.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Open connections over all loops.
    pub fn connections(&self) -> u64 {
        self.counters.curr_connections.load(Relaxed)
    }

    /// Counts a connection in, unless there are too many.
    pub(super) fn admit(&self) -> bool {
        let limit = self.limits.connections_max as u64;
        let counters = &self.counters;
        let admitted = counters.curr_connections.fetch_add(1, Relaxed) < limit;
        if admitted {
            counters.total_connections.fetch_add(1, Relaxed);
        } else {
            counters.curr_connections.fetch_sub(1, Relaxed);
            counters.rejected_connections.fetch_add(1, Relaxed);
        }
        admitted
    }

    /// Counts a connection out.
    pub(super) fn leave(&self) {
        self.counters.curr_connections.fetch_sub(1, Relaxed);
    }
}

/// What `version` answers: the memcached whose behaviour this is, and who stands in for it.
///
/// Clients read the first three numbers.
pub(super) const VERSION: &str = "1.6.18-dwell";
