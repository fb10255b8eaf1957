//! What all connections of a client share.

use crate::RedisMetrics;
use crate::waited::WaitedKeys;
use std::sync::Arc;

/// The keys that are waited for, whichever server has them, and what the servers tell the caller.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) waited: WaitedKeys,
    pub(crate) metrics: Arc<RedisMetrics>,
    /// The last error that a server has replied to a command, if it was not taken yet.
    pub(crate) error_reply: Option<Box<str>>,
}
