//! Options of a client.

use std::net::SocketAddr;
use std::time::Duration;

use super::Error;
use dwell_evloop::Connector;

/// One memcached server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The address on which it listens. The caller looks names up before, once.
    pub address: SocketAddr,
    /// The host as the other clients of these servers write it; the ring hashes it.
    pub host: String,
    /// Its share of the keys, relative to the other servers; at least 1.
    pub weight: u32,
    /// Begins the handshakes of TLS; without it connections are plaintext.
    pub tls: Option<Connector>,
}

impl ServerOptions {
    /// A server named by its address, with weight 1.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            host: address.ip().to_string(),
            weight: 1,
            tls: None,
        }
    }
}

/// Bounds of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// From the flush that takes an operation to its answer, waiting for the connection included.
    /// Default: 500 ms.
    pub timeout: Duration,
    /// From the start of a connection attempt to its end, with the handshake of TLS.
    /// Default: 500 ms.
    pub connect_timeout: Duration,
    /// Failures in a row after which a server is left alone until it has answered a probe.
    /// Default: 3.
    pub failures_max: u32,
    /// The longest wait before the first new connection attempt; every further failure in a row
    /// doubles it. Default: 50 ms.
    pub reconnect_delay_min: Duration,
    /// The longest wait before any new connection attempt. Default: 2 s.
    pub reconnect_delay_max: Duration,
    /// Operations without an answer, per server. Default: 16384.
    pub operations_max: usize,
    /// Bytes of requests without an answer, per server. Default: 1 MiB.
    pub request_bytes_max: usize,
    /// Keys in one request line. Default: 64.
    pub line_keys_max: usize,
    /// Fewer operations than this, and than a quarter of those in progress, wait for the answers
    /// that their server still owes, to be sent together; 1 sends everything at once. The time they
    /// wait counts. Default: 16.
    pub held_max: usize,
    /// The largest value a server may send. Units: bytes. Default: 1 MiB, as memcached's own.
    pub value_bytes_max: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_millis(500),
            failures_max: 3,
            reconnect_delay_min: Duration::from_millis(50),
            reconnect_delay_max: Duration::from_secs(2),
            operations_max: 16_384,
            request_bytes_max: 1 << 20,
            line_keys_max: 64,
            held_max: 16,
            value_bytes_max: 1 << 20,
        }
    }
}

impl ClientOptions {
    /// Refuses what could never work.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let zero = [
            ("timeout", self.timeout.is_zero()),
            ("connect_timeout", self.connect_timeout.is_zero()),
            ("failures_max", self.failures_max == 0),
            ("reconnect_delay_min", self.reconnect_delay_min.is_zero()),
            ("reconnect_delay_max", self.reconnect_delay_max.is_zero()),
            ("operations_max", self.operations_max == 0),
            ("request_bytes_max", self.request_bytes_max == 0),
            ("line_keys_max", self.line_keys_max == 0),
            ("held_max", self.held_max == 0),
        ];
        match zero.iter().find(|(_, is_zero)| *is_zero) {
            Some((name, _)) => Err(Error::ZeroOption { name }),
            None => Ok(()),
        }
    }
}
