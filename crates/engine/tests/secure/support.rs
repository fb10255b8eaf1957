//! Certificates, and clients that verify them.

use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls::{SupportedProtocolVersion, version};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const CERTIFICATE: &[u8] = include_bytes!("../../../tls/tests/data/certificate.pem");
pub(crate) const KEY: &[u8] = include_bytes!("../../../tls/tests/data/key.pem");
/// Another certificate, and its key.
pub(crate) const OTHER: &[u8] = include_bytes!("../../../tls/tests/data/other.pem");
pub(crate) const OTHER_KEY: &[u8] = include_bytes!("../../../tls/tests/data/other_key.pem");

/// Longer than any test waits for something that comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A file with test data.
pub(crate) fn data(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    folder.join("../tls/tests/data").join(name)
}

/// The certificate that a client shows, the protocols that it offers (ALPN), and the version that
/// it speaks.
pub(crate) struct Shown {
    identity: Option<(&'static [u8], &'static [u8])>,
    protocols: &'static [&'static [u8]],
    version: &'static SupportedProtocolVersion,
}

impl Shown {
    pub(crate) fn nothing() -> Self {
        Self {
            identity: None,
            protocols: &[],
            version: &version::TLS13,
        }
    }

    pub(crate) fn new(certificate: &'static [u8], key: &'static [u8]) -> Self {
        Self {
            identity: Some((certificate, key)),
            ..Self::nothing()
        }
    }

    pub(crate) fn offering(protocols: &'static [&'static [u8]]) -> Self {
        Self {
            protocols,
            ..Self::nothing()
        }
    }

    pub(crate) fn by(self, version: &'static SupportedProtocolVersion) -> Self {
        Self { version, ..self }
    }
}

/// A client that trusts `CERTIFICATE` and connects to `dwell.test`.
pub(crate) fn connect(address: SocketAddr) -> TlsStream {
    connect_with(address, &Shown::nothing())
}

pub(crate) fn connect_with(address: SocketAddr, shown: &Shown) -> TlsStream {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_protocol_versions(&[shown.version])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match shown.identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            // Not by `with_client_auth_cert`, which takes no key of another certificate.
            let chain = vec![CertificateDer::from_pem_slice(certificate).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key).unwrap();
            let key = provider::sign::any_supported_type(&key).unwrap();
            let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
            config.with_client_cert_resolver(Arc::new(shown))
        }
    };
    config.alpn_protocols = shown.protocols.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from("dwell.test").unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(
        ClientConnection::new(Arc::new(config), name).unwrap(),
        socket,
    )
}

/// Sends one request on a connection of its own; returns all that comes until the server closes it
/// in order.
pub(crate) fn ask(address: SocketAddr, request: impl AsRef<[u8]>) -> String {
    try_ask(address, request, &Shown::nothing()).unwrap()
}

/// The same of a client that may be refused.
pub(crate) fn try_ask(
    address: SocketAddr,
    request: impl AsRef<[u8]>,
    shown: &Shown,
) -> io::Result<String> {
    let mut client = connect_with(address, shown);
    client.write_all(request.as_ref())?;
    let mut answer = Vec::new();
    client.read_to_end(&mut answer)?;
    Ok(String::from_utf8(answer).unwrap())
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: dwell.test\r\nConnection: close\r\n\r\n")
}
