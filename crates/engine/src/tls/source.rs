//! Certificates and keys, where they come from.

use super::TlsError;
use dwell_evloop::{Certificate, CertificateError, Roots};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A certificate chain and its key: in files, or in memory.
#[derive(Clone)]
pub(super) enum Source {
    Files { chain: PathBuf, key: PathBuf },
    Pem { chain: Vec<u8>, key: Vec<u8> },
}

/// The certificates that are trusted: in a file, or in memory.
#[derive(Clone, Debug)]
pub(super) enum Trusted {
    File(PathBuf),
    Pem(Vec<u8>),
}

impl Trusted {
    pub(super) fn read(&self) -> Result<Roots, TlsError> {
        let roots = match self {
            Self::Pem(pem) => Roots::from_pem(pem),
            Self::File(path) => Roots::from_pem(&read_file(path)?),
        };
        roots.map_err(|source| self.wrong(source))
    }

    pub(super) fn wrong(&self, source: CertificateError) -> TlsError {
        let path = match self {
            Self::Pem(_) => None,
            Self::File(path) => Some(path.clone()),
        };
        TlsError::Certificate { path, source }
    }
}

pub(super) fn read(sources: &[Source]) -> Result<Vec<Certificate>, TlsError> {
    if sources.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    sources.iter().map(Source::read).collect()
}

impl Source {
    pub(super) fn read(&self) -> Result<Certificate, TlsError> {
        match self {
            Self::Pem { chain, key } => {
                let certificate = Certificate::from_pem(chain, key);
                certificate.map_err(|source| TlsError::Certificate { path: None, source })
            }
            Self::Files { chain, key } => {
                let certificate = Certificate::from_pem(&read_file(chain)?, &read_file(key)?);
                certificate.map_err(|source| TlsError::Certificate {
                    path: Some(match source {
                        CertificateError::Certificate(_) => chain.clone(),
                        _ => key.clone(),
                    }),
                    source,
                })
            }
        }
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Keys are in no log.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files { chain, key } => f
                .debug_struct("Files")
                .field("chain", chain)
                .field("key", key)
                .finish(),
            Self::Pem { .. } => f.write_str("Pem"),
        }
    }
}
