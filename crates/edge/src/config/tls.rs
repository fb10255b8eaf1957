//! Options of TLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
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
    /// The file with the keys of session tickets; `None` has keys made.
    pub ticket_keys: Option<PathBuf>,
    /// Time between two checks of the files of the certificates.
    pub check_interval: Duration,
    /// Authorities, one of which has to have issued the certificates of clients; `None` asks for
    /// none.
    pub client_ca: Option<PathBuf>,
    /// The certificates of clients, where there are authorities.
    pub client_auth: ClientAuth,
    /// The application gets the certificates of clients.
    pub client_cert_field: bool,
    /// Clients may agree on HTTP/2.
    pub http2: bool,
    /// A certificate for localhost is made, for development.
    pub self_signed: bool,
    /// The folder with answers to the challenges of ACME servers.
    pub acme_challenge: Option<PathBuf>,
    /// Handshakes in progress at once.
    pub handshakes_max: usize,
}

/// The certificates of clients, where `tls.client_ca` is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientAuth {
    /// A client without one is refused.
    Required,
    /// A client may show none. A certificate that cannot be verified is refused.
    Optional,
}

/// Options of TLS towards servers, each with its name.
#[derive(Clone, Copy, Debug)]
pub struct ClientTlsFiles<'a> {
    /// File with the certificates that are trusted; `None` is the system's.
    pub ca: (&'static str, Option<&'a Path>),
    /// Name that the certificates of the servers are for; `None` is the host of each.
    pub server_name: (&'static str, Option<&'a str>),
    /// Certificate chain that is sent to servers which ask for one.
    pub certificate: (&'static str, Option<&'a Path>),
    /// Private key of that certificate.
    pub key: (&'static str, Option<&'a Path>),
}

impl TlsConfig {
    /// Warnings about options that do nothing, as there is no address under TLS. They are no
    /// errors, as a reload may add such an address.
    pub(crate) fn warnings(&self) -> Vec<String> {
        if !self.listen.is_empty() {
            return Vec::new();
        }
        let options = [
            ("tls.client_ca", self.client_ca.is_some()),
            ("tls.client_auth", self.client_auth == ClientAuth::Optional),
            ("tls.client_cert_field", self.client_cert_field),
            ("tls.certificate", !self.certificate.is_empty()),
            ("tls.key", !self.key.is_empty()),
            ("tls.ocsp", !self.ocsp.is_empty()),
            ("tls.ticket_keys", self.ticket_keys.is_some()),
            ("tls.self_signed", self.self_signed),
        ];
        let set = options.into_iter().filter(|(_, is_set)| *is_set);
        let told = set.map(|(option, _)| match option {
            // Who sets it may take the plain addresses for guarded.
            "tls.client_ca" => format!(
                "{option} has no effect: no address is under TLS, and those of server.listen ask \
                 for no certificate; name an address in tls.listen"
            ),
            _ => format!("{option} has no effect: no address is under TLS; name one in tls.listen"),
        });
        told.collect()
    }
}

impl ClientTlsFiles<'_> {
    /// The name of the first option that is set.
    pub fn first(&self) -> Option<&'static str> {
        let files = [self.ca, self.certificate, self.key];
        let mut set = files.into_iter().filter(|(_, path)| path.is_some());
        let name = self.server_name;
        set.next()
            .map(|(option, _)| option)
            .or(name.1.map(|_| name.0))
    }
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            certificate: Vec::new(),
            key: Vec::new(),
            ocsp: Vec::new(),
            ticket_keys: None,
            check_interval: Duration::from_secs(60),
            client_ca: None,
            client_auth: ClientAuth::Required,
            client_cert_field: false,
            http2: true,
            self_signed: false,
            acme_challenge: None,
            handshakes_max: 1000,
        }
    }
}
