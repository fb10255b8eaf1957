//! Options of the application's servers.

use super::{ClientTlsFiles, KIB, MIB, UpstreamUrl};
use std::path::PathBuf;
use std::time::Duration;

/// `[upstream]`: the application, which answers misses and everything that is not a poll.
///
/// Shape: bounds are for the whole process; see [`share`](super::share).
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamConfig {
    /// URLs of its servers. Without any, the response is 404 instead of a proxied one.
    pub url: Vec<UpstreamUrl>,
    /// `Host` for an HTTP/1.0 client that sends none.
    pub default_host: String,
    /// File with the certificates that are trusted; `None` is the system's.
    pub tls_ca: Option<PathBuf>,
    /// Name that the certificates of the servers are for; `None` is the host of each.
    pub tls_server_name: Option<String>,
    /// Certificate chain that is sent to servers which ask for one.
    pub tls_certificate: Option<PathBuf>,
    /// Private key of that certificate.
    pub tls_key: Option<PathBuf>,
    /// Time of one connection attempt. Above it: 502.
    pub connect_timeout: Duration,
    /// Time from the request to the end of the response's header section. Above it: 504.
    pub header_timeout: Duration,
    /// Time of one exchange. Above it: 504.
    pub total_timeout: Duration,
    /// Open connections to one server, without transfers. Above it requests queue.
    pub connections_max: usize,
    /// Transfers with one server: connections whose request or response body is streamed.
    pub transfers_max: usize,
    /// Requests that wait for a connection to one server. Above it: 503.
    pub queue_max: usize,
    /// Time for which a request may wait for a connection. Above it: 503.
    pub queue_timeout: Duration,
    /// Idle connections that are kept.
    pub idle_max: usize,
    /// Time for which an idle connection is kept.
    pub idle_timeout: Duration,
    /// Failures after which a server is ejected for a while.
    pub failures_max: u32,
    /// Time for which a request without a response counts as a failure of its server.
    pub failures_window: Duration,
    /// Path of health checks; `None` is `"off"`.
    pub health_path: Option<String>,
    /// Interval of health checks.
    pub health_interval: Duration,
    /// Time without progress in a response body or a request body.
    pub stall_timeout: Duration,
    /// Time without bytes on an upgraded connection.
    pub tunnel_timeout: Duration,
    /// Body bytes of one message in flight. Units: bytes.
    pub window_bytes: u64,
    /// Request body that is buffered before the request takes a connection. Units: bytes.
    pub request_buffer_bytes: usize,
    /// Response body that polls share. Units: bytes. A larger one goes to a single client.
    pub answer_bytes_max: u64,
    /// Header section of one response. Units: bytes. Above it: 502.
    pub answer_head_bytes_max: usize,
    /// Header fields of one response. Above it: 502.
    pub answer_header_count_max: usize,
}

impl UpstreamConfig {
    /// Returns true if a server is spoken to under TLS.
    pub fn is_secure(&self) -> bool {
        self.url.iter().any(|url| url.is_secure)
    }

    /// The files of TLS towards the servers.
    pub fn client_tls(&self) -> ClientTlsFiles<'_> {
        ClientTlsFiles {
            ca: ("upstream.tls_ca", self.tls_ca.as_deref()),
            server_name: ("upstream.tls_server_name", self.tls_server_name.as_deref()),
            certificate: ("upstream.tls_certificate", self.tls_certificate.as_deref()),
            key: ("upstream.tls_key", self.tls_key.as_deref()),
        }
    }
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            url: Vec::new(),
            default_host: "localhost".to_owned(),
            tls_ca: None,
            tls_server_name: None,
            tls_certificate: None,
            tls_key: None,
            connect_timeout: Duration::from_secs(2),
            header_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_secs(60),
            connections_max: 256,
            transfers_max: 4096,
            queue_max: 1024,
            queue_timeout: Duration::from_secs(10),
            idle_max: 64,
            idle_timeout: Duration::from_secs(30),
            failures_max: 5,
            failures_window: Duration::from_secs(30),
            health_path: None,
            health_interval: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(300),
            tunnel_timeout: Duration::from_secs(3600),
            window_bytes: 64 * KIB as u64,
            request_buffer_bytes: 64 * KIB,
            answer_bytes_max: 8 * MIB as u64,
            answer_head_bytes_max: 64 * KIB,
            answer_header_count_max: 128,
        }
    }
}
