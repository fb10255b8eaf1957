//! Certificates of the listeners under TLS.

use super::error::RunError;
use crate::config::Config;
use dwell_evloop::{Acceptor, Certificate, CertificateError};
use std::fs;
use std::path::Path;

/// Makes what all listeners under TLS share; `None` where there is none.
///
/// # Errors
/// [`RunError::Certificate`].
pub(super) fn acceptor(config: &Config) -> Result<Option<Acceptor>, RunError> {
    if config.tls.listen.is_empty() {
        return Ok(None);
    }
    let certificates = certificates(config)?;
    Ok(Some(Acceptor::new(certificates, config.tls.handshakes_max)))
}

/// Reads the certificates and their keys.
///
/// # Errors
/// [`RunError::Certificate`] for the first file that cannot be used.
pub(super) fn certificates(config: &Config) -> Result<Vec<Certificate>, RunError> {
    let pairs = config.tls.certificate.iter().zip(&config.tls.key);
    pairs.map(|(chain, key)| certificate(chain, key)).collect()
}

fn certificate(chain: &Path, key: &Path) -> Result<Certificate, RunError> {
    let (of_chain, of_key) = ((chain, "tls.certificate"), (key, "tls.key"));
    let read = |(path, option)| {
        fs::read(path).map_err(|error| unusable((path, option), error.to_string()))
    };
    let (chain, key) = (read(of_chain)?, read(of_key)?);
    Certificate::from_pem(&chain, &key).map_err(|error| {
        let file = match error {
            CertificateError::Certificate(_) => of_chain,
            _ => of_key,
        };
        unusable(file, error.to_string())
    })
}

fn unusable((path, option): (&Path, &'static str), reason: String) -> RunError {
    RunError::Certificate {
        path: path.to_owned(),
        option,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use std::path::PathBuf;

    fn data(name: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/tests/data");
        folder.join(name)
    }

    fn config(certificate: &str, key: &str) -> Config {
        let text = format!(
            "[tls]\nlisten = \"127.0.0.1:8443\"\ncertificate = {:?}\nkey = {:?}\n",
            data(certificate),
            data(key)
        );
        config::parse("a", &text, &[]).unwrap()
    }

    #[test]
    fn the_file_that_is_wrong_is_named_with_its_option() {
        assert!(acceptor(&Config::default()).unwrap().is_none());
        let right = acceptor(&config("certificate.pem", "key.pem"));
        assert!(right.unwrap().is_some());
        for (certificate, key, expected) in [
            (
                "none.pem",
                "key.pem",
                "none.pem (tls.certificate): No such file",
            ),
            (
                "key.pem",
                "key.pem",
                "key.pem (tls.certificate): certificate cannot be read",
            ),
            (
                "certificate.pem",
                "other.pem",
                "other.pem (tls.key): private key cannot be read",
            ),
            (
                "certificate.pem",
                "other_key.pem",
                "other_key.pem (tls.key): private key does not belong to the certificate",
            ),
        ] {
            let error = acceptor(&config(certificate, key)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
