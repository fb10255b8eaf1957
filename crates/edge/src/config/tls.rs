//! Options of TLS.

use std::net::SocketAddr;
use std::path::PathBuf;

/// `[tls]`: listeners under TLS and their certificates.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsConfig {
    /// Addresses for clients.
    pub listen: Vec<SocketAddr>,
    /// Certificate chains, the first one for clients that name no host.
    pub certificate: Vec<PathBuf>,
    /// Their private keys, in the same order.
    pub key: Vec<PathBuf>,
    /// Handshakes under way at once.
    pub handshakes_max: usize,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            certificate: Vec::new(),
            key: Vec::new(),
            handshakes_max: 1000,
        }
    }
}
