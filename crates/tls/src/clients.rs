//! The check of a client's certificates.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use std::fmt;
use std::sync::Arc;

/// Bytes of all certificates that a client may show. They are kept for as long as a connection of
/// TLS 1.2, and others where they are asked for, and only the first one has to be of use.
const CHAIN_BYTES_MAX: usize = 16 * 1024;

/// Verifies certificates by another verifier, unless they are too many.
#[derive(Debug)]
pub(crate) struct BoundedChains(pub(crate) Arc<dyn ClientCertVerifier>);

/// Has clients prove that they have the key of their certificate, whatever its issuer.
#[derive(Debug)]
pub(crate) struct Unverified {
    pub(crate) is_required: bool,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Unverified {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // The program verifies it, behind the handshake.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The fault of a client that shows more than [`CHAIN_BYTES_MAX`].
#[derive(Debug)]
struct ChainTooLong;

impl ClientCertVerifier for BoundedChains {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let others: usize = intermediates.iter().map(|each| each.len()).sum();
        if end_entity.len() + others > CHAIN_BYTES_MAX {
            let fault = OtherError(Arc::new(ChainTooLong));
            return Err(CertificateError::Other(fault).into());
        }
        self.0.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

impl fmt::Display for ChainTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the certificates exceed {CHAIN_BYTES_MAX} bytes")
    }
}

impl std::error::Error for ChainTooLong {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Roots;
    use rustls::crypto::aws_lc_rs as provider;
    use rustls::pki_types::pem::PemObject;
    use rustls::server::WebPkiClientVerifier;

    #[test]
    fn certificates_of_more_bytes_are_refused() {
        let authority = include_bytes!("../tests/data/client_ca.pem");
        let roots = Roots::from_pem(authority).unwrap().store();
        let provider = Arc::new(provider::default_provider());
        let inner = WebPkiClientVerifier::builder_with_provider(roots, provider);
        let verifier = BoundedChains(inner.build().unwrap());
        let client = include_bytes!("../tests/data/client.pem");
        let client = CertificateDer::from_pem_slice(client).unwrap();
        let other = CertificateDer::from_pem_slice(authority).unwrap();
        let verify = |others: usize| {
            let others = vec![other.clone(); others];
            verifier.verify_client_cert(&client, &others, UnixTime::now())
        };
        let fit = (CHAIN_BYTES_MAX - client.len()) / other.len();
        assert!(verify(0).is_ok() && verify(fit).is_ok());
        let error = verify(fit + 1).unwrap_err().to_string();
        assert!(error.contains("ChainTooLong"), "{error}");
    }
}
