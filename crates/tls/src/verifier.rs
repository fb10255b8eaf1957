//! The check of a server's certificate, and its faults in words.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use std::fmt;
use std::sync::Arc;

/// Verifies that an authority vouches for the certificate of a server, or that this certificate is
/// trusted itself; also where it is that of an authority, as the tools that make self-signed ones
/// have it.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// The authorities that are trusted.
    pub(crate) authorities: Arc<RootCertStore>,
    /// The certificates that are trusted themselves.
    pub(crate) trusted: Arc<[CertificateDer<'static>]>,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

/// The fault of a certificate that its server has issued itself, and that is not trusted.
#[derive(Debug)]
struct SelfSigned;

impl Verifier {
    fn is_trusted_itself(&self, certificate: &CertificateDer<'_>) -> bool {
        self.trusted.iter().any(|trusted| trusted == certificate)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let issued = verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.authorities,
            intermediates,
            now,
            self.algorithms.all,
        );
        match issued {
            Ok(()) => {}
            // The dates were checked before its issuer was looked for.
            Err(Error::InvalidCertificate(error)) if is_of_issuer(&error) => {
                if !self.is_trusted_itself(end_entity) {
                    return Err(untrusted(end_entity).into());
                }
            }
            Err(error) => return Err(error),
        }
        verify_server_name(&certificate, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The fault of a certificate for which no trusted one is found.
fn untrusted(certificate: &CertificateDer<'_>) -> CertificateError {
    let parsed = webpki::EndEntityCert::try_from(certificate);
    if parsed.is_ok_and(|parsed| parsed.issuer() == parsed.subject()) {
        return CertificateError::Other(OtherError(Arc::new(SelfSigned)));
    }
    CertificateError::UnknownIssuer
}

/// Returns true if no trusted certificate is found for one; a self-signed one may be taken for that
/// of an authority.
fn is_of_issuer(error: &CertificateError) -> bool {
    match error {
        CertificateError::UnknownIssuer => true,
        CertificateError::Other(OtherError(error)) => {
            error.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
        }
        _ => false,
    }
}

/// The fault of a server's certificate in words, to follow the name of its host.
pub(crate) fn reason(error: &CertificateError) -> String {
    let ago = |earlier: UnixTime, later: UnixTime| {
        Since(later.as_secs().saturating_sub(earlier.as_secs())).to_string()
    };
    match error {
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "it has no names".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            format!("it is for other names: {}", names(presented))
        }
        CertificateError::NotValidForName => "it is for other names".to_owned(),
        CertificateError::ExpiredContext { time, not_after } => {
            format!("it has expired {} ago", ago(*not_after, *time))
        }
        CertificateError::Expired => "it has expired".to_owned(),
        CertificateError::NotValidYetContext { time, not_before } => {
            format!("it is not valid for another {}", ago(*time, *not_before))
        }
        CertificateError::NotValidYet => "it is not valid yet".to_owned(),
        CertificateError::UnknownIssuer => "its issuer is not trusted".to_owned(),
        CertificateError::BadSignature => "its signature is wrong".to_owned(),
        CertificateError::BadEncoding => "it cannot be read".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not for servers".to_owned()
        }
        CertificateError::Other(OtherError(error)) => error.to_string(),
        other => other.to_string(),
    }
}

/// The first of the names that a certificate has; a server may send very many.
fn names(presented: &[String]) -> String {
    const NAMES_MAX: usize = 4;
    let shown = presented.iter().take(NAMES_MAX).map(|name| bare(name));
    let mut names = shown.collect::<Vec<_>>().join(", ");
    if presented.len() > NAMES_MAX {
        names.push_str(", ...");
    }
    names
}

/// A name without its kind, by which webpki prints it: `DnsName("name")`.
fn bare(name: &str) -> &str {
    let inner = name
        .split_once('(')
        .and_then(|(_, it)| it.strip_suffix(')'));
    inner.map_or(name, |inner| inner.trim_matches('"'))
}

/// A number of seconds in the largest unit that it has one of.
struct Since(u64);

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = match self.0 {
            0..60 => (self.0, "second"),
            60..3600 => (self.0 / 60, "minute"),
            3600..86_400 => (self.0 / 3600, "hour"),
            _ => (self.0 / 86_400, "day"),
        };
        let s = if count == 1 { "" } else { "s" };
        write!(f, "{count} {unit}{s}")
    }
}

impl fmt::Display for SelfSigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is self-signed and not trusted")
    }
}

impl std::error::Error for SelfSigned {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_names_are_short() {
        let shown = [1, 59, 3599, 7200, 86_400, 400 * 86_400].map(|since| Since(since).to_string());
        let expected = [
            "1 second",
            "59 seconds",
            "59 minutes",
            "2 hours",
            "1 day",
            "400 days",
        ];
        assert_eq!(shown, expected);
        let many: Vec<String> = (0..9).map(|at| format!("n{at}")).collect();
        assert_eq!(names(&many), "n0, n1, n2, n3, ...");
        assert_eq!(names(&many[..2]), "n0, n1");
    }
}
