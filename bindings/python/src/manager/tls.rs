//! Options of TLS, in the form of the reference.

use dwell_engine::tls::{
    CertificateError, ClientCertificates, Tls, TlsBuilder, TlsClient, TlsError,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The certificates of a listener and whose clients it accepts, or what a connection trusts.
#[pyclass(frozen, module = "dwell")]
#[derive(Debug)]
pub(super) struct TlsOpts {
    ca: Option<Source>,
    /// The certificate with its key.
    pair: Option<(Source, Source)>,
    name: Option<String>,
    server: Mutex<Option<Tls>>,
    client: Mutex<Option<TlsClient>>,
}

/// PEM, or the file that it is in.
#[derive(Clone)]
enum Source {
    File(PathBuf),
    Pem(Vec<u8>),
}

/// PEM may be a private key, and is not shown.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Pem(_) => f.write_str("Pem"),
        }
    }
}

#[pymethods]
impl TlsOpts {
    /// Takes PEM as text or bytes, or the names of files.
    #[new]
    #[pyo3(signature = (ca=None, cert=None, key=None, name=None, skip_verification=false))]
    fn new(
        ca: Option<&Bound<'_, PyAny>>,
        cert: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        name: Option<String>,
        skip_verification: bool,
    ) -> PyResult<Self> {
        if skip_verification {
            return Err(PyValueError::new_err(
                "skip_verification is not supported: give the certificate of the server as ca",
            ));
        }
        let ca = ca.map(Source::of).transpose()?;
        let cert = cert.map(Source::of).transpose()?;
        let key = key.map(Source::of).transpose()?;
        let pair = match (cert, key) {
            (Some(cert), key) => Some((cert.clone(), key.unwrap_or(cert))),
            (None, Some(_)) => return Err(PyValueError::new_err("key needs cert")),
            (None, None) => None,
        };
        Ok(Self {
            ca,
            pair,
            name,
            server: Mutex::default(),
            client: Mutex::default(),
        })
    }

    /// Reads the files again, for clients that come from now on.
    fn reload(&self) -> PyResult<()> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        match &*server {
            Some(tls) => tls
                .replace(self.offered()?)
                .map_err(|error| refused(&error)),
            None => Ok(()),
        }
    }
}

impl TlsOpts {
    /// The settings that listeners share.
    pub(super) fn server(&self) -> PyResult<Tls> {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tls) = &*server {
            return Ok(tls.clone());
        }
        let mut builder = self.offered()?;
        let required = ClientCertificates::Required;
        match &self.ca {
            Some(Source::File(path)) => builder = builder.client_ca_file(required, path),
            Some(Source::Pem(pem)) => builder = builder.client_ca_pem(required, pem.clone()),
            None => {}
        }
        let tls = builder.build().map_err(|error| refused(&error))?;
        Ok(server.insert(tls).clone())
    }

    /// The settings that connections share.
    pub(super) fn client(&self) -> PyResult<TlsClient> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tls) = &*client {
            return Ok(tls.clone());
        }
        let mut builder = TlsClient::builder();
        match &self.ca {
            Some(Source::File(path)) => builder = builder.ca_file(path),
            Some(Source::Pem(pem)) => builder = builder.ca_pem(pem.clone()),
            None => {}
        }
        match &self.pair {
            Some((Source::File(cert), Source::File(key))) => {
                builder = builder.certificate_files(cert, key);
            }
            Some((cert, key)) => builder = builder.certificate_pem(cert.read()?, key.read()?),
            None => {}
        }
        if let Some(name) = &self.name {
            builder = builder.server_name(name.clone());
        }
        let tls = builder.build().map_err(|error| refused(&error))?;
        Ok(client.insert(tls).clone())
    }

    fn offered(&self) -> PyResult<TlsBuilder> {
        Ok(match &self.pair {
            Some((Source::File(cert), Source::File(key))) => {
                Tls::builder().certificate_files(cert, key)
            }
            Some((cert, key)) => Tls::builder().certificate_pem(cert.read()?, key.read()?),
            None => {
                return Err(PyValueError::new_err(
                    "a listener under TLS needs cert and key",
                ));
            }
        })
    }
}

impl Source {
    fn of(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.extract::<String>() {
            return Ok(if text.contains("-----BEGIN ") {
                Self::Pem(text.into_bytes())
            } else {
                Self::File(text.into())
            });
        }
        if let Ok(bytes) = value.extract::<Vec<u8>>() {
            return Ok(Self::Pem(bytes));
        }
        let path = value.extract::<PathBuf>();
        path.map(Self::File)
            .map_err(|_| PyTypeError::new_err(format!("neither PEM nor a path: {value}")))
    }

    fn read(&self) -> PyResult<Vec<u8>> {
        match self {
            Self::Pem(pem) => Ok(pem.clone()),
            Self::File(path) => fs::read(path).map_err(|error| {
                PyValueError::new_err(format!("cannot read {}: {error}", path.display()))
            }),
        }
    }
}

/// Makes the exception of certificates that cannot be used, with a remedy.
pub(crate) fn refused(error: &TlsError) -> PyErr {
    let remedy = match error {
        TlsError::Certificate {
            source: CertificateError::EncryptedKey,
            ..
        } => "; decrypt it: openssl pkey -in encrypted.pem -out key.pem",
        _ => "",
    };
    PyValueError::new_err(format!("{error}{remedy}"))
}
