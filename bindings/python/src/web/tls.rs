//! Certificates, as Python names their files, and what is known of clients under TLS.

use crate::manager::tls_refused as refused;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell_engine::tls::{self as engine, ClientCertificates};
use dwell_engine::{PeerCertificates, Reply};
use dwell_evloop::Listener;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString, PyTuple};
use std::collections::VecDeque;
use std::path::PathBuf;

/// The certificates of a server under TLS. Processes that are forked later share its tickets.
#[pyclass(frozen, module = "dwell._native")]
#[derive(Debug)]
pub(crate) struct Tls(engine::Tls);

#[pymethods]
impl Tls {
    /// Reads PEM files; without `keyfile` the key is in `certfile`. `cert_reqs` are the numbers of
    /// `ssl.CERT_NONE`, `CERT_OPTIONAL` and `CERT_REQUIRED`, any other object is refused.
    #[new]
    #[pyo3(signature = (certfile, keyfile=None, ca_certs=None, cert_reqs=None))]
    fn new(
        certfile: PathBuf,
        keyfile: Option<PathBuf>,
        ca_certs: Option<PathBuf>,
        cert_reqs: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let keyfile = keyfile.unwrap_or_else(|| certfile.clone());
        let builder = engine::Tls::builder().certificate_files(certfile, keyfile);
        let wrong = |text: &str| Err(PyValueError::new_err(text.to_owned()));
        let builder = match (wanted(cert_reqs)?, ca_certs) {
            (None, None) => builder,
            (None, Some(_)) => return wrong("ssl_ca_certs has no effect without ssl_cert_reqs"),
            (Some(_), None) => return wrong("ssl_cert_reqs needs ssl_ca_certs"),
            (Some(wanted), Some(file)) => builder.client_ca_file(wanted, file),
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

/// The certificates that clients are asked for; none for 0.
fn wanted(cert_reqs: Option<&Bound<'_, PyAny>>) -> PyResult<Option<ClientCertificates>> {
    let Some(number) = cert_reqs else {
        return Ok(None);
    };
    // A bool is an int; true would ask and not require.
    let value = if number.is_instance_of::<PyBool>() {
        None
    } else {
        number.extract::<u8>().ok()
    };
    match value {
        Some(0) => Ok(None),
        Some(1) => Ok(Some(ClientCertificates::Optional)),
        Some(2) => Ok(Some(ClientCertificates::Required)),
        _ => Err(PyValueError::new_err(format!(
            "ssl_cert_reqs is 0, 1 or 2 (ssl.CERT_NONE, CERT_OPTIONAL, CERT_REQUIRED): {}",
            number.repr()?
        ))),
    }
}

impl Tls {
    /// Puts the clients of a listener under TLS; they may choose HTTP/2 if `http2` says so.
    pub(crate) fn secure(&self, listener: &mut Listener, http2: bool) {
        if http2 {
            self.0.with_http2().secure(listener);
        } else {
            self.0.secure(listener);
        }
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
}

/// The texts that an application gets of the certificates of a client.
#[derive(Debug)]
pub(crate) struct Shown {
    /// In PEM, the client's first.
    pub(crate) chain: Py<PyTuple>,
    /// The subject of the client's.
    pub(crate) subject: Option<Py<PyString>>,
}

/// The texts of the clients that came last: a client asks more than once, and a connection that
/// waits keeps no text.
#[derive(Debug, Default)]
pub(crate) struct ShownTexts {
    known: VecDeque<(PeerCertificates, Shown)>,
}

/// Clients that are remembered; the certificates of each have at most 16 KiB, and their text 22.
const SHOWN_MAX: usize = 16;

impl ShownTexts {
    /// The texts of `certificates`, made now if they are not here.
    pub(crate) fn of(
        &mut self,
        py: Python<'_>,
        certificates: &PeerCertificates,
    ) -> PyResult<&Shown> {
        let is_same = |(known, _): &(PeerCertificates, Shown)| known == certificates;
        let place = self.known.iter().position(is_same);
        if place.is_none() {
            let chain = PyTuple::new(py, certificates.chain().map(pem).collect::<Vec<_>>())?;
            let subject = certificates.subject();
            let shown = Shown {
                chain: chain.unbind(),
                subject: subject.map(|text| PyString::new(py, &text).unbind()),
            };
            self.known.truncate(SHOWN_MAX - 1);
            self.known.push_front((certificates.clone(), shown));
        }
        Ok(&self.known[place.unwrap_or(0)].1)
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
