//! The first and the last line of the log of a process that has started.

use super::error::RunError;
use crate::config::Config;
use crate::event_loop::Message;
use crate::metrics::Metrics;
use dwell_evloop::{Fleet, Lifecycle, now};
use std::net::SocketAddr;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::time::Instant;

/// The figures of a run that its last line has.
pub(super) struct RunLines {
    began: Instant,
    metrics: Arc<Metrics>,
    fleet: Arc<Fleet<Message>>,
}

impl RunLines {
    /// Logs that the process has started: its version, id, configuration and limits.
    ///
    /// Shape: the addresses are those that are listened on; `store` is that of the embedded store.
    pub(super) fn start(
        config: &Config,
        file: Option<&Path>,
        store: Option<SocketAddr>,
        metrics: &Arc<Metrics>,
        fleet: &Arc<Fleet<Message>>,
    ) -> Self {
        let listen = metrics.of_loop(0).listener_names.names();
        let file = file.map(|file| file.display().to_string());
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            process = process::id(),
            configuration = file.as_deref().unwrap_or("none"),
            loops = metrics.loops().len(),
            connections_max = config.limits.connections_max,
            waiters_max = config.limits.waiters_max,
            "started: {}",
            config.summary_at(&listen, store)
        );
        Self {
            began: now(),
            metrics: Arc::clone(metrics),
            fleet: Arc::clone(fleet),
        }
    }

    /// Logs that the process ends, and the reason.
    pub(super) fn end(self, error: Option<&RunError>) {
        let reason = match (error, self.fleet.lifecycle()) {
            (Some(_), _) => "failed",
            (None, Lifecycle::HandOver) => "another process serves",
            (None, Lifecycle::Drain) => "drained",
            (None, Lifecycle::Stop | Lifecycle::Serve) => "stopped",
        };
        let responses = self.metrics.total(|of| &of.http_requests).into_iter();
        let requests: u64 = responses.map(|(_, count)| count).sum();
        let seconds = now().duration_since(self.began).as_secs_f64();
        tracing::info!(reason, seconds, requests, "ended");
    }
}
