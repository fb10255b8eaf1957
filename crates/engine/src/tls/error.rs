//! Errors of certificates and keys.

use dwell_evloop::{CertificateError, NameError};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// An error of certificates or keys. Nothing has changed then.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// No certificate was given.
    NoCertificate,
    /// A file cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The name of a server is neither a host name nor an address.
    Name(NameError),
    /// A certificate or its key cannot be used.
    Certificate {
        /// The file with the fault; `None` if it was given as bytes.
        path: Option<PathBuf>,
        /// The fault.
        source: CertificateError,
    },
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCertificate => f.write_str("tls has no certificate"),
            Self::Name(error) => error.fmt(f),
            Self::Read { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            Self::Certificate { path: None, source } => source.fmt(f),
            Self::Certificate {
                path: Some(path),
                source,
            } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoCertificate => None,
            Self::Name(error) => Some(error),
            Self::Read { source, .. } => Some(source),
            Self::Certificate { source, .. } => Some(source),
        }
    }
}
