//! Certificates of servers, with their private keys.

use crate::x509::{self, Fields};
use rustls::InconsistentKeys;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::sync::Arc;

/// A certificate chain with its private key.
#[derive(Clone, Debug)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    fields: Fields,
}

/// An error of a certificate or its key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CertificateError {
    /// No certificate is in the PEM file, or one that cannot be read.
    Certificate(String),
    /// No private key is in the PEM file, or one that cannot be read or is of an unknown kind.
    Key(String),
    /// The private key is encrypted with a passphrase.
    EncryptedKey,
    /// The private key is that of another certificate.
    Mismatch,
}

impl Certificate {
    /// Reads a chain, the certificate of the server first, and its private key.
    ///
    /// # Errors
    /// When either cannot be read or the key does not belong to the certificate.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let wrong = |error: &dyn fmt::Display| CertificateError::Certificate(error.to_string());
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|error| wrong(&error))?;
        let Some(first) = chain.first() else {
            return Err(wrong(&"no certificate in the file"));
        };
        webpki::EndEntityCert::try_from(first).map_err(|error| wrong(&error))?;
        let fields = x509::fields(first).ok_or_else(|| wrong(&"unknown form"))?;
        let key = CertifiedKey::new(chain, private_key(key)?);
        match key.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(_) => return Err(CertificateError::Mismatch),
        }
        let key = Arc::new(key);
        Ok(Self { key, fields })
    }

    /// Sends this OCSP response, in DER, with the certificate.
    #[must_use]
    pub fn with_ocsp(mut self, response: Vec<u8>) -> Self {
        let mut key = CertifiedKey::clone(&self.key);
        key.ocsp = Some(response);
        self.key = Arc::new(key);
        self
    }

    /// The host names that it is for, in lower case; one may begin with `*.`.
    pub fn names(&self) -> &[String] {
        &self.fields.hosts
    }

    /// Returns true if it is for a host name or an IP address.
    pub fn has_name(&self) -> bool {
        !self.fields.hosts.is_empty() || self.fields.addresses > 0
    }

    /// The first moment for which it is valid. Unix time, seconds.
    pub fn not_before(&self) -> i64 {
        self.fields.not_before
    }

    /// The last moment for which it is valid. Unix time, seconds.
    pub fn not_after(&self) -> i64 {
        self.fields.not_after
    }

    pub(crate) fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }
}

fn private_key(pem: &[u8]) -> Result<Arc<dyn rustls::sign::SigningKey>, CertificateError> {
    let wrong = |error: &dyn fmt::Display| CertificateError::Key(error.to_string());
    let read = PrivateKeyDer::from_pem_slice(pem);
    if read.is_err() && is_encrypted(pem) {
        return Err(CertificateError::EncryptedKey);
    }
    let key = read.map_err(|error| wrong(&error))?;
    provider::sign::any_supported_type(&key).map_err(|error| wrong(&error))
}

/// Returns true if a key has one of the two forms with a passphrase.
fn is_encrypted(pem: &[u8]) -> bool {
    let marks = [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----",
        "Proc-Type: 4,ENCRYPTED",
    ];
    let has = |mark: &str| pem.windows(mark.len()).any(|part| part == mark.as_bytes());
    marks.into_iter().any(has)
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(error) => write!(f, "certificate cannot be read: {error}"),
            Self::Key(error) => write!(f, "private key cannot be read: {error}"),
            Self::EncryptedKey => f.write_str("private key is encrypted"),
            Self::Mismatch => f.write_str("private key does not belong to the certificate"),
        }
    }
}

impl std::error::Error for CertificateError {}
