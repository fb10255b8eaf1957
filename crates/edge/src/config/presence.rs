//! Options of presence.

use super::{ClientTlsFiles, UpstreamUrl};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// `[presence]`: the webhook for first and last watchers of keys.
#[derive(Clone, PartialEq)]
pub struct PresenceConfig {
    /// Server of the webhook; `None` is `"off"`.
    pub webhook_url: Option<UpstreamUrl>,
    /// File with the certificates that are trusted; `None` is the system's.
    pub webhook_tls_ca: Option<PathBuf>,
    /// Name that the certificate of the server is for; `None` is its host.
    pub webhook_tls_server_name: Option<String>,
    /// Certificate chain that is sent to a server which asks for one.
    pub webhook_tls_certificate: Option<PathBuf>,
    /// Private key of that certificate.
    pub webhook_tls_key: Option<PathBuf>,
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

impl PresenceConfig {
    /// The files of TLS towards the webhook.
    pub fn client_tls(&self) -> ClientTlsFiles<'_> {
        ClientTlsFiles {
            ca: ("presence.webhook_tls_ca", self.webhook_tls_ca.as_deref()),
            server_name: (
                "presence.webhook_tls_server_name",
                self.webhook_tls_server_name.as_deref(),
            ),
            certificate: (
                "presence.webhook_tls_certificate",
                self.webhook_tls_certificate.as_deref(),
            ),
            key: ("presence.webhook_tls_key", self.webhook_tls_key.as_deref()),
        }
    }
}

impl fmt::Debug for PresenceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            webhook_url,
            webhook_tls_ca,
            webhook_tls_server_name,
            webhook_tls_certificate,
            webhook_tls_key,
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
            .field("webhook_tls_ca", webhook_tls_ca)
            .field("webhook_tls_server_name", webhook_tls_server_name)
            .field("webhook_tls_certificate", webhook_tls_certificate)
            .field("webhook_tls_key", webhook_tls_key)
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
            webhook_tls_ca: None,
            webhook_tls_server_name: None,
            webhook_tls_certificate: None,
            webhook_tls_key: None,
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
