//! TLS of a client, as Python's options name it.

use dwell_memcache::{Certificate, CertificateError, ClientTls, Roots, Tls};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::io;
use std::path::{Path, PathBuf};

/// The options as they were given.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) tls: bool,
    pub(super) ca: Option<PathBuf>,
    pub(super) server_name: Option<String>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

impl Given {
    /// Reads the files that they name; `None` for plaintext.
    pub(super) fn read(self) -> PyResult<Option<Tls>> {
        if !self.tls {
            return self.refuse_others().map(|()| None);
        }
        let roots = match &self.ca {
            None => Roots::system().map_err(|error| wrong("tls_ca", None, &error))?,
            Some(path) => Roots::from_pem(&file(path)?)
                .map_err(|error| wrong("tls_ca", Some(path), &error))?,
        };
        let identity = match (&self.certificate, &self.key) {
            (None, None) => None,
            (Some(chain), Some(key)) => {
                let read = Certificate::from_pem(&file(chain)?, &file(key)?);
                let path = match read {
                    Err(CertificateError::Certificate(_)) => chain,
                    _ => key,
                };
                let option = "tls_certificate, tls_key";
                Some(read.map_err(|error| wrong(option, Some(path), &error))?)
            }
            _ => {
                let text = "tls_certificate and tls_key need one another";
                return Err(PyValueError::new_err(text));
            }
        };
        let settings = ClientTls::new(&roots, identity.as_ref(), &[]);
        let tls = Tls::new(settings.map_err(|error| wrong("tls_ca", None, &error))?);
        Ok(Some(match self.server_name {
            None => tls,
            Some(name) => tls.with_server_name(name),
        }))
    }

    /// Refuses options that have no effect without TLS.
    fn refuse_others(&self) -> PyResult<()> {
        let others = [
            ("tls_ca", self.ca.is_some()),
            ("tls_server_name", self.server_name.is_some()),
            ("tls_certificate", self.certificate.is_some()),
            ("tls_key", self.key.is_some()),
        ];
        match others.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => {
                let text = format!("{name} has no effect without tls=True");
                Err(PyValueError::new_err(text))
            }
            None => Ok(()),
        }
    }
}

fn file(path: &Path) -> PyResult<Vec<u8>> {
    let named = |error: io::Error| {
        let text = format!("{}: {error}", path.display());
        io::Error::new(error.kind(), text).into()
    };
    std::fs::read(path).map_err(named)
}

fn wrong(option: &str, path: Option<&Path>, error: &CertificateError) -> PyErr {
    PyValueError::new_err(match path {
        Some(path) => format!("{option}: {}: {error}", path.display()),
        None => format!("{option}: {error}"),
    })
}
