//! Options of presence.

use super::UpstreamUrl;
use std::fmt;
use std::time::Duration;

/// `[presence]`: the webhook for first and last watchers of keys.
#[derive(Clone, PartialEq)]
pub struct PresenceConfig {
    /// Server of the webhook; `None` is `"off"`.
    pub webhook_url: Option<UpstreamUrl>,
    /// Path of the webhook.
    pub webhook_path: String,
    /// Token for `Authorization: Bearer TOKEN`; `None` is `"off"`.
    pub webhook_token: Option<String>,
    /// Time for which a key counts as watched after its last watcher.
    pub linger: Duration,
    /// Time of one request.
    pub webhook_timeout: Duration,
    /// Requests for the same events before they are dropped.
    pub webhook_attempts_max: u32,
    /// Events in one request.
    pub webhook_batch_max: usize,
    /// Events that have not been sent. Above it they are dropped.
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
