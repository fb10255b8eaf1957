//! State that all connections of a client share.

use crate::RedisMetrics;
use crate::cluster::{Cluster, Redirections, Topology};
use crate::waited::WaitedKeys;
use std::sync::Arc;

/// The keys that are waited for, whichever server has them, and what the servers tell the caller.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) waited: WaitedKeys,
    pub(crate) metrics: Arc<RedisMetrics>,
    /// The last error that a server has replied to a command, if it was not taken yet.
    pub(crate) error_reply: Option<Box<str>>,
    /// The cluster that the servers are of.
    pub(crate) cluster: Option<Cluster>,
    /// Commands that other servers have to be sent.
    pub(crate) redirections: Redirections,
    /// A topology that differs from the one that is known.
    pub(crate) told: Option<Topology>,
    /// The topology that is known was told once more.
    pub(crate) is_confirmed: bool,
}

impl Shared {
    /// The topology may be another one now.
    pub(crate) fn want_topology(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            cluster.want();
        }
    }
}
