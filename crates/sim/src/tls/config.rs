//! The configuration of rustls, whose clock stands still and whose secrets a client can take.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, KeyLog, ProtocolVersion,
    SignatureScheme, SupportedCipherSuite,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Names of what has happened under TLS, to be counted.
pub(crate) type Reached = Rc<RefCell<BTreeSet<&'static str>>>;

/// The certificate that the edge shows: an Ed25519 one, whose signatures have one length.
const CERTIFICATE: &[u8] = include_bytes!("../../data/certificate.pem");

/// The configuration of clients that offer this suite alone, and HTTP/2 or not.
pub(super) fn config(suite: SupportedCipherSuite, is_http2: bool) -> Arc<ClientConfig> {
    let version = match suite {
        SupportedCipherSuite::Tls12(_) => &TLS12,
        SupportedCipherSuite::Tls13(_) => &TLS13,
    };
    let provider = Arc::new(CryptoProvider {
        cipher_suites: vec![suite],
        kx_groups: vec![provider::kx_group::X25519],
        ..provider::default_provider()
    });
    let expected = CertificateDer::from_pem_slice(CERTIFICATE).expect("it is a certificate");
    let verifier = Expected(expected, Arc::clone(&provider));
    let config = ClientConfig::builder_with_details(provider, Arc::new(Standstill))
        .with_protocol_versions(&[version])
        .expect("the suite is one of the version")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = config.with_no_client_auth();
    let protocols: &[&[u8]] = if is_http2 {
        &[b"h2", b"http/1.1"]
    } else {
        &[b"http/1.1"]
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    config.key_log = Arc::new(Capture);
    if version.version == ProtocolVersion::TLSv1_2 {
        // Records by hand are those of TLS 1.3.
        config.max_fragment_size = Some(512);
    }
    Arc::new(config)
}

/// The name of the server.
pub(super) fn name() -> ServerName<'static> {
    ServerName::try_from("edge").expect("it is a name")
}

/// A clock at which tickets grow no older.
#[derive(Debug)]
struct Standstill;

impl TimeProvider for Standstill {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(
            1_800_000_000,
        )))
    }
}

/// Takes one certificate and no other.
#[derive(Debug)]
struct Expected(CertificateDer<'static>, Arc<CryptoProvider>);

impl ServerCertVerifier for Expected {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *end_entity == self.0 {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::UnknownIssuer.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.1.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.1.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

thread_local! {
    /// The secret that the handshake of this thread has logged last.
    static SECRET: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Keeps the secret under which a client sends.
#[derive(Debug)]
struct Capture;

const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";

impl KeyLog for Capture {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        if label == CLIENT {
            SECRET.set(Some(secret.to_vec()));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == CLIENT
    }
}

/// Takes the secret that was logged last.
pub(super) fn take_secret() -> Option<Vec<u8>> {
    SECRET.take()
}
