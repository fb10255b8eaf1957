//! Options of TLS.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `[tls]`: listeners under TLS and their certificates.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsConfig {
    /// Addresses for clients.
    pub listen: Vec<SocketAddr>,
    /// Certificate chains, the first one for clients that name no host.
    pub certificate: Vec<PathBuf>,
    /// Their private keys, in the same order.
    pub key: Vec<PathBuf>,
    /// OCSP responses in DER for the certificates, in the same order; or none.
    pub ocsp: Vec<PathBuf>,
    /// Time between two looks at the files of the certificates.
    pub check_interval: Duration,
    /// A certificate for localhost is made, for development.
    pub self_signed: bool,
    /// The folder with answers to the challenges of ACME servers.
    pub acme_challenge: Option<PathBuf>,
    /// Handshakes under way at once.
    pub handshakes_max: usize,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            certificate: Vec::new(),
            key: Vec::new(),
            ocsp: Vec::new(),
            check_interval: Duration::from_secs(60),
            self_signed: false,
            acme_challenge: None,
            handshakes_max: 1000,
        }
    }
}
