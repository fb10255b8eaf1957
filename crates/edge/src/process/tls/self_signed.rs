//! A certificate for this machine, for development.

use super::Pair;
use crate::process::RunError;
use dwell_evloop::Certificate;
use pem::Pem;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
const DAY: Duration = Duration::from_secs(86_400);
const LIFETIME: Duration = Duration::from_secs(7 * 86_400);

/// Makes a certificate that is valid for a week, and its private key, which no file has.
///
/// # Errors
/// [`RunError::SelfSigned`], where the system gives no random numbers.
pub(super) fn make() -> Result<Pair, RunError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let (certificate, key) = make_pem(now.unwrap_or_default()).map_err(failed)?;
    let certificate = Certificate::from_pem(certificate.as_bytes(), key.as_bytes());
    Ok(Pair {
        files: None,
        stamps: Vec::new(),
        certificate: certificate.map_err(failed)?,
    })
}

fn make_pem(now: Duration) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(NAMES.map(str::to_owned))?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "localhost");
    // Clocks of clients may be behind.
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(DAY);
    params.not_after = epoch + now + LIFETIME;
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let encoded = |tag: &str, der: Vec<u8>| pem::encode(&Pem::new(tag, der));
    let certificate = encoded("CERTIFICATE", certificate.der().to_vec());
    Ok((certificate, encoded("PRIVATE KEY", key.serialize_der())))
}

fn failed(error: impl std::fmt::Display) -> RunError {
    RunError::SelfSigned(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_for_this_machine_and_a_week() {
        let made = make().unwrap();
        assert_eq!(made.certificate.names(), ["localhost"]);
        assert!(made.certificate.has_name());
        let lifetime = made.certificate.not_after() - made.certificate.not_before();
        assert_eq!(lifetime, 8 * 86_400);
    }
}
