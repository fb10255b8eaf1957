//! What all clients under TLS of a run share.

use super::{Habits, Tls};
use crate::chance::random;
use crate::connection::Connection;
use crate::options::Options;
use dwell_evloop::Random;
use dwell_evloop::sim::{SimNet, SimStream};
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
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Names of what has happened under TLS, to be counted.
pub(crate) type Reached = Rc<RefCell<BTreeSet<&'static str>>>;

/// The clients' side of TLS: configurations, and the tickets in them.
pub(crate) struct Side {
    at: SocketAddr,
    configs: Vec<Arc<ClientConfig>>,
    random: RefCell<Random>,
    habits: Habits,
    clients: u64,
    pub(crate) reached: Reached,
}

/// A client that may be under TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Client(usize),
    Stream(usize),
    Socket(usize),
}

/// The certificate that the edge shows: an Ed25519 one, whose signatures have one length.
const CERTIFICATE: &[u8] = include_bytes!("../../data/certificate.pem");

impl Side {
    pub(crate) fn new(options: &Options, at: SocketAddr) -> Option<Self> {
        let tls = options.tls.as_ref()?;
        let suites = [
            provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
            provider::cipher_suite::TLS13_AES_256_GCM_SHA384,
            provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            provider::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ];
        Some(Self {
            at,
            configs: suites.map(config).to_vec(),
            random: RefCell::new(random(options.seed, 41)),
            habits: tls.habits,
            clients: tls.clients,
            reached: Reached::default(),
        })
    }

    /// The address under TLS.
    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }

    /// Returns true if this client is under TLS.
    pub(crate) fn has(&self, who: Who) -> bool {
        let place = match who {
            Who::Client(number) => number,
            Who::Stream(number) => 20 + number,
            Who::Socket(number) => 40 + number,
        };
        (self.clients >> (place % 64)) & 1 == 1
    }

    /// Begins a connection under TLS.
    pub(crate) fn connect(&self, network: &SimNet) -> Connection {
        let stream = network.connect(self.at);
        let mut random = self.random.borrow_mut();
        // TLS 1.2 is the last one, and rare.
        let place = random.below(2 * self.configs.len() as u64 - 1) as usize / 2;
        let tls = self.begin(place, self.habits, random.draw(), &stream);
        Connection::secure(stream, tls)
    }

    /// Begins a connection under TLS 1.3 whose records are made by hand.
    pub(crate) fn intrude(&self, stream: &SimStream, flips_finished: bool) -> Tls {
        let mut random = self.random.borrow_mut();
        let habits = Habits {
            is_own: true,
            flips_finished,
            ..Habits::default()
        };
        let place = random.below(self.configs.len() as u64 - 1) as usize;
        self.begin(place, habits, random.draw(), stream)
    }

    fn begin(&self, place: usize, habits: Habits, seed: u64, stream: &SimStream) -> Tls {
        stream.seal();
        let config = Arc::clone(&self.configs[place]);
        let reached = Rc::clone(&self.reached);
        Tls::new(
            config,
            habits,
            random(seed, 42),
            (reached, stream.elapsed()),
        )
    }
}

fn config(suite: SupportedCipherSuite) -> Arc<ClientConfig> {
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
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
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
