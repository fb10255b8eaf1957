//! Certificates, as Python names their files, and what is known of clients under TLS.

use crate::manager::tls_refused as refused;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell_engine::tls::{self as engine, ClientCertificates};
use dwell_engine::{PeerCertificates, Reply};
use dwell_evloop::Listener;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// The certificates of a server under TLS. Processes that are forked later share its tickets.
#[pyclass(frozen, module = "dwell._native")]
#[derive(Debug)]
pub(crate) struct Tls(engine::Tls);

#[pymethods]
impl Tls {
    /// Reads PEM files; without `keyfile` the key is in `certfile`. `cert_reqs` are the numbers of
    /// `ssl.CERT_NONE`, `CERT_OPTIONAL` and `CERT_REQUIRED`.
    #[new]
    #[pyo3(signature = (certfile, keyfile=None, ca_certs=None, cert_reqs=0))]
    fn new(
        certfile: PathBuf,
        keyfile: Option<PathBuf>,
        ca_certs: Option<PathBuf>,
        cert_reqs: u8,
    ) -> PyResult<Self> {
        let keyfile = keyfile.unwrap_or_else(|| certfile.clone());
        let builder = engine::Tls::builder().certificate_files(certfile, keyfile);
        let wrong = |text: &str| Err(PyValueError::new_err(text.to_owned()));
        let builder = match (cert_reqs, ca_certs) {
            (0, None) => builder,
            (0, Some(_)) => return wrong("ssl_ca_certs has no effect without ssl_cert_reqs"),
            (1 | 2, None) => return wrong("ssl_cert_reqs needs ssl_ca_certs"),
            (1, Some(file)) => builder.client_ca_file(ClientCertificates::Optional, file),
            (2, Some(file)) => builder.client_ca_file(ClientCertificates::Required, file),
            (other, _) => return wrong(&format!("ssl_cert_reqs is 0, 1 or 2: {other}")),
        };
        let tls = builder.build().map_err(|error| refused(&error))?;
        tls.make_ticket_keys();
        Ok(Self(tls))
    }

    /// Reads the files again, for clients that connect from now on.
    fn reload(&self) -> PyResult<()> {
        self.0.reload().map_err(|error| refused(&error))
    }
}

impl Tls {
    pub(crate) fn secure(&self, listener: &mut Listener) {
        self.0.secure(listener);
    }
}

/// TLS of the connection that a request came on.
#[derive(Debug)]
pub(crate) struct Secure {
    /// The number of the cipher suite.
    pub(crate) suite: u16,
    /// The certificates that the client has shown.
    pub(crate) certificates: Option<PeerCertificates>,
}

impl Secure {
    /// `None` without TLS of our own.
    pub(crate) fn of(reply: &Reply<'_>) -> Option<Self> {
        Some(Self {
            suite: reply.suite_number()?,
            certificates: reply.peer_certificates().cloned(),
        })
    }

    /// Returns true for TLS 1.3, false for 1.2.
    pub(crate) const fn is_tls13(&self) -> bool {
        matches!(self.suite, 0x1301..=0x1303)
    }

    /// The certificates in PEM, the client's first.
    pub(crate) fn chain(&self) -> impl Iterator<Item = String> {
        self.certificates
            .iter()
            .flat_map(|certificates| certificates.chain().map(pem))
    }

    /// The subject of the client's certificate.
    pub(crate) fn subject(&self) -> Option<String> {
        self.certificates.as_ref()?.subject()
    }
}

/// Writes a certificate as `ssl.DER_cert_to_PEM_cert` does.
fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
