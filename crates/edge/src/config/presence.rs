//! Who is told when keys begin to be watched, and when they end to be.

use super::UpstreamUrl;
use std::fmt;
use std::time::Duration;

/// `[presence]`: who is told when keys begin to be watched, and when they end to be.
#[derive(Clone, PartialEq)]
pub struct PresenceConfig {
    /// The server that is told; `None` is `"off"`.
    pub webhook_url: Option<UpstreamUrl>,
    /// The path of the requests.
    pub webhook_path: String,
    /// What they show as `Authorization: Bearer TOKEN`; `None` is `"off"`.
    pub webhook_token: Option<String>,
    /// How long a key that nobody watches counts as watched.
    pub linger: Duration,
    /// One request.
    pub webhook_timeout: Duration,
    /// Requests for the same events before they are given up.
    pub webhook_attempts_max: u32,
    /// Events of one request.
    pub webhook_batch_max: usize,
    /// Events that wait to be told. Beyond it they are dropped.
    pub webhook_queue_max: usize,
}

impl fmt::Debug for PresenceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            webhook_url,
            webhook_path,
            webhook_token,
            linger,
            webhook_timeout,
            webhook_attempts_max,
            webhook_batch_max,
            webhook_queue_max,
        } = self;
        f.debug_struct("PresenceConfig")
            .field("webhook_url", webhook_url)
            .field("webhook_path", webhook_path)
            .field("webhook_token", &webhook_token.as_ref().map(|_| "..."))
            .field("linger", linger)
            .field("webhook_timeout", webhook_timeout)
            .field("webhook_attempts_max", webhook_attempts_max)
            .field("webhook_batch_max", webhook_batch_max)
            .field("webhook_queue_max", webhook_queue_max)
            .finish()
    }
}

impl Default for PresenceConfig {
    fn default() -> Self {
        Self {
            webhook_url: None,
            webhook_path: "/".to_owned(),
            webhook_token: None,
            linger: Duration::from_secs(5),
            webhook_timeout: Duration::from_secs(5),
            webhook_attempts_max: 5,
            webhook_batch_max: 100,
            webhook_queue_max: 10_000,
        }
    }
}
