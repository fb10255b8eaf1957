//! The servers of the application, and the options for them.

use super::health::HealthCheck;
use super::{FaultLog, UpstreamOptions};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The most servers of one group.
pub const UPSTREAMS_MAX: usize = 64;

/// Options of a group of servers.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Failures after which a server is left out for a while.
    pub failures_max: u32,
    /// Time for which a request without a response counts against its server.
    pub failures_window: Duration,
    /// The health checks of servers; without them requests try the ejected ones.
    pub health: Option<HealthCheck>,
    /// The seed of the random choices.
    pub seed: u64,
    /// The failures that are to be logged; all loops share it.
    pub faults: Arc<FaultLog>,
}

/// The servers of the application with what may be asked of them.
#[derive(Clone, Debug)]
pub struct UpstreamPlan {
    /// The address of each server, and its limits.
    pub servers: Vec<UpstreamOptions>,
    /// The options for all of them.
    pub options: GroupOptions,
}

impl UpstreamPlan {
    /// Follows another plan: a server that has failed by it is logged when it answers by this one.
    #[must_use]
    pub fn following(self, before: Option<&Self>) -> Self {
        let Some(before) = before else { return self };
        let failing = |address: SocketAddr| {
            let servers = before.servers.iter().take(UPSTREAMS_MAX);
            let mut found = servers.enumerate().filter(|(_, it)| it.address == address);
            found.any(|(place, _)| before.options.faults.is_failing(place))
        };
        for (place, server) in self.servers.iter().take(UPSTREAMS_MAX).enumerate() {
            if failing(server.address) {
                self.options.faults.set_failing(place);
            }
        }
        self
    }
}
