//! The state that all handshakes of a listener share: certificates and tickets.

use crate::alpn::{HTTP1, HTTP2};
use crate::clients::{BoundedChains, Unverified};
use crate::handshake::{Capture, Handshake, Kept, Role};
use crate::tickets::Tickets;
use crate::{Certificate, CertificateError, KeptOfClient, Roots, TicketKey, TlsError};
use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::TrustAnchor;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{Connection, ServerConfig, ServerConnection};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use zeroize::Zeroizing;

/// Begins the handshakes of a listener.
///
/// Shape: cloned for each loop; the clones share certificates. It has the limit on handshakes in
/// progress, which each loop counts.
///
/// ```
/// use dwell_tls::{Acceptor, Certificate};
///
/// let certificate = include_bytes!("../tests/data/certificate.pem");
/// let key = include_bytes!("../tests/data/key.pem");
/// let certificate = Certificate::from_pem(certificate, key)?;
/// assert_eq!(certificate.names(), ["dwell.test", "localhost"]);
/// let acceptor = Acceptor::new(vec![certificate], 1000);
/// assert_eq!(acceptor.handshakes_max(), 1000);
/// assert!(acceptor.begin().is_some());
/// # Ok::<(), dwell_tls::CertificateError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<Offer>);

/// The settings of handshakes, and what they have in common with those of other protocols.
#[derive(Debug)]
struct Offer {
    config: Arc<ServerConfig>,
    common: Arc<Common>,
}

/// The state that is changed in all clones at once.
#[derive(Debug)]
struct Common {
    certificates: Arc<Certificates>,
    tickets: Arc<Tickets>,
    handshakes_max: usize,
    clients_are_required: bool,
    /// See [`Acceptor::authorities`].
    authorities: Option<[u8; SHA256_OUTPUT_LEN]>,
    /// The certificates of clients are verified in the handshake.
    verifies: bool,
    /// A [`KeptOfClient`].
    keeps: AtomicU8,
    keeps_server_names: AtomicBool,
}

/// The way in which an acceptor verifies the certificates of clients.
#[derive(Clone, Copy, Debug)]
pub struct ClientVerification<'r> {
    /// The authorities, one of which has to have issued the certificate of a client.
    pub roots: &'r Roots,
    /// A client without a certificate is refused.
    pub is_required: bool,
    /// The part of their certificates that is kept for as long as the connection.
    pub keeps: KeptOfClient,
}

/// The parts of an acceptor that concern the certificates of clients.
struct Clients {
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    authorities: Option<[u8; SHA256_OUTPUT_LEN]>,
    are_required: bool,
    verifies: bool,
    keeps: KeptOfClient,
}

impl Acceptor {
    /// Offers these certificates: the first one for clients that ask for a name of none, or for no
    /// name. In each loop at most `handshakes_max` are to be in progress at once.
    ///
    /// Shape: TLS 1.3 and 1.2, `http/1.1` by ALPN, tickets that hold their session. A client that
    /// offers other protocols alone gets the alert `no_application_protocol`; one that offers none
    /// speaks HTTP/1.1.
    ///
    /// # Panics
    /// Never: the protocol versions are those that the cryptography supports.
    pub fn new(certificates: Vec<Certificate>, handshakes_max: usize) -> Self {
        let clients = Clients {
            verifier: None,
            authorities: None,
            are_required: false,
            verifies: false,
            keeps: KeptOfClient::Nothing,
        };
        Self::with(certificates, handshakes_max, clients)
    }

    /// Offers these certificates as [`new`](Self::new) does, to clients that show one themselves
    /// that can be verified, or none unless it is required.
    ///
    /// Shape: a client with another certificate gets an alert. No session is resumed: a ticket
    /// would stand for a certificate that is not verified again.
    ///
    /// # Errors
    /// When no authority is trusted.
    pub fn verifying(
        certificates: Vec<Certificate>,
        handshakes_max: usize,
        clients: ClientVerification<'_>,
    ) -> Result<Self, CertificateError> {
        let authorities = clients.roots.store();
        let provider = Arc::new(provider::default_provider());
        let mut verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&authorities), provider);
        if !clients.is_required {
            verifier = verifier.allow_unauthenticated();
        }
        let verifier = verifier
            .build()
            .map_err(|error| CertificateError::Certificate(error.to_string()))?;
        let clients = Clients {
            verifier: Some(Arc::new(BoundedChains(verifier))),
            authorities: Some(digest_of(&authorities.roots)),
            are_required: clients.is_required,
            verifies: true,
            keeps: clients.keeps,
        };
        Ok(Self::with(certificates, handshakes_max, clients))
    }

    /// Offers these certificates as [`new`](Self::new) does, to clients that show any certificate
    /// whose key they have, or none unless it is required. The acceptor does not verify it: the
    /// caller does, and closes the connection of a client that it does not trust.
    ///
    /// Shape: certificates are kept, and [marked](crate::PeerCertificates::are_verified). No
    /// session is resumed.
    ///
    /// ```
    /// use dwell_tls::Acceptor;
    ///
    /// let acceptor = Acceptor::unverified(Vec::new(), 1000, true);
    /// assert_eq!(acceptor.client_authorities(), None);
    /// ```
    pub fn unverified(
        certificates: Vec<Certificate>,
        handshakes_max: usize,
        is_required: bool,
    ) -> Self {
        let algorithms = provider::default_provider().signature_verification_algorithms;
        let verifier = Unverified {
            is_required,
            algorithms,
        };
        let clients = Clients {
            verifier: Some(Arc::new(BoundedChains(Arc::new(verifier)))),
            authorities: None,
            are_required: is_required,
            verifies: false,
            keeps: KeptOfClient::Chain,
        };
        Self::with(certificates, handshakes_max, clients)
    }

    /// Offers `h2` (HTTP/2) by ALPN, too, and prefers it: for components that speak it where it was
    /// [agreed on](Handshake::is_http2).
    ///
    /// Shape: it shares certificates, tickets and all that is set later with this one, so that a
    /// client resumes its session whichever of the two protocols it speaks then.
    ///
    /// ```
    /// use dwell_tls::Acceptor;
    ///
    /// /// Begins the handshakes of two listeners, of which one speaks HTTP/2.
    /// fn both(http1: Acceptor) -> [Acceptor; 2] {
    ///     [http1.with_http2(), http1]
    /// }
    ///
    /// let [http2, http1] = both(Acceptor::new(Vec::new(), 1000));
    /// http1.make_ticket_keys();
    /// assert!(http2.freeze_ticket_keys().is_some(), "they are the same");
    /// ```
    #[must_use]
    pub fn with_http2(&self) -> Self {
        let mut config = ServerConfig::clone(&self.0.config);
        // The order is that of preference.
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        Self(Arc::new(Offer {
            config: Arc::new(config),
            common: Arc::clone(&self.0.common),
        }))
    }

    /// From now on connections keep the names that clients ask for
    /// ([`Established::server_name`](crate::Established::server_name)), in all clones. It takes
    /// some hundred bytes of one that asks, and such a connection cannot be frozen.
    pub fn keep_server_names(&self) {
        self.0
            .common
            .keeps_server_names
            .store(true, Ordering::Relaxed);
    }

    fn with(certificates: Vec<Certificate>, handshakes_max: usize, clients: Clients) -> Self {
        let resumes = clients.verifier.is_none();
        let certificates = Arc::new(Certificates::new(certificates));
        let config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has suites of both versions");
        let config = match clients.verifier {
            Some(verifier) => config.with_client_cert_verifier(verifier),
            None => config.with_no_client_auth(),
        };
        let mut config =
            config.with_cert_resolver(Arc::clone(&certificates) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![HTTP1.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let tickets = Arc::new(Tickets::new(Arc::clone(&config.time_provider)));
        if resumes {
            config.ticketer = Arc::clone(&tickets) as Arc<dyn ProducesTickets>;
        } else {
            config.send_tls13_tickets = 0;
        }
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(Capture);
        let common = Common {
            certificates,
            tickets,
            handshakes_max,
            clients_are_required: clients.are_required,
            authorities: clients.authorities,
            verifies: clients.verifies,
            keeps: AtomicU8::new(clients.keeps as u8),
            keeps_server_names: AtomicBool::new(false),
        };
        Self(Arc::new(Offer {
            config: Arc::new(config),
            common: Arc::new(common),
        }))
    }

    /// Offers other certificates from now on, in all clones.
    pub fn set_certificates(&self, certificates: Vec<Certificate>) {
        self.0.common.certificates.set(certificates);
    }

    /// Makes and reads tickets with these keys from now on, in all clones: the first key makes
    /// them, all keys read them. Servers with the same keys resume sessions of one another. With
    /// none, keys are made when the first ticket is wanted, and replaced every four hours.
    pub fn set_ticket_keys(&self, keys: Vec<TicketKey>) {
        self.0.common.tickets.give(keys);
    }

    /// Makes the keys of tickets for a day now, so that processes that are forked later resume
    /// sessions of one another.
    pub fn make_ticket_keys(&self) {
        self.0.common.tickets.make_ahead();
    }

    /// The keys of tickets that were made here, for another process that takes this one's place;
    /// `None` if there is no key, or keys were [given](Self::set_ticket_keys).
    ///
    /// Shape: some hundred bytes, which hold the secrets and are erased when they are dropped. Both
    /// processes may use the keys.
    ///
    /// ```
    /// use dwell_tls::{Acceptor, TlsError};
    ///
    /// /// Lets `new` resume the sessions of `old`.
    /// fn succeed(old: &Acceptor, new: &Acceptor) -> Result<(), TlsError> {
    ///     match old.freeze_ticket_keys() {
    ///         Some(keys) => new.thaw_ticket_keys(&keys),
    ///         None => Ok(()),
    ///     }
    /// }
    ///
    /// let (old, new) = (Acceptor::new(Vec::new(), 1), Acceptor::new(Vec::new(), 1));
    /// old.make_ticket_keys();
    /// succeed(&old, &new)?;
    /// assert_eq!(old.freeze_ticket_keys(), new.freeze_ticket_keys());
    /// # Ok::<(), TlsError>(())
    /// ```
    pub fn freeze_ticket_keys(&self) -> Option<Zeroizing<Vec<u8>>> {
        self.0.common.tickets.freeze()
    }

    /// Takes the keys of tickets that another process has [frozen](Self::freeze_ticket_keys), in
    /// all clones. Keys that were given stay, and are the only ones.
    ///
    /// # Errors
    /// [`TlsError::Frozen`] if the bytes are not those of frozen keys, or of another version.
    pub fn thaw_ticket_keys(&self, frozen: &[u8]) -> Result<(), TlsError> {
        self.0.common.tickets.thaw(frozen)
    }

    /// A digest (SHA-256) of the authorities by which every client is [verified](Self::verifying);
    /// `None` where clients may show no certificate. Acceptors with the same digest let the same
    /// clients in.
    pub fn client_authorities(&self) -> Option<[u8; SHA256_OUTPUT_LEN]> {
        // Among optional ones there are clients that nobody has verified.
        self.authorities()
            .filter(|_| self.0.common.clients_are_required)
    }

    /// A digest (SHA-256) of the authorities by which the certificates of clients are
    /// [verified](Self::verifying), if clients are asked for any. A name means the same to
    /// acceptors with the same digest.
    pub fn authorities(&self) -> Option<[u8; SHA256_OUTPUT_LEN]> {
        self.0.common.authorities
    }

    /// Keeps this of the certificates of clients from the next handshakes on, in all clones.
    pub fn keep(&self, keeps: KeptOfClient) {
        self.0.common.keeps.store(keeps as u8, Ordering::Relaxed);
    }

    /// The part of the certificates of clients that is kept.
    pub fn keeps(&self) -> KeptOfClient {
        const KEPT: [KeptOfClient; 4] = [
            KeptOfClient::Nothing,
            KeptOfClient::Names,
            KeptOfClient::Certificate,
            KeptOfClient::Chain,
        ];
        KEPT[usize::from(self.0.common.keeps.load(Ordering::Relaxed)) % KEPT.len()]
    }

    /// Handshakes that are to be in progress at once in a loop, at most.
    pub fn handshakes_max(&self) -> usize {
        self.0.common.handshakes_max
    }

    /// Begins a handshake; `None` where rustls refuses its configuration.
    ///
    /// Shape: some tens of kilobytes, so it is to be begun when the client's first record
    /// [is here](Handshake::is_due).
    pub fn begin(&self) -> Option<Handshake> {
        let connection = ServerConnection::new(Arc::clone(&self.0.config)).ok()?;
        let connection = Connection::Server(connection);
        let kept = Kept {
            of_client: self.keeps(),
            are_verified: self.0.common.verifies,
            server_name: self.0.common.keeps_server_names.load(Ordering::Relaxed),
        };
        Some(Handshake::new(connection, Role::Server(kept)))
    }
}

/// The digest of a set of authorities, whatever their order.
fn digest_of(roots: &[TrustAnchor<'_>]) -> [u8; SHA256_OUTPUT_LEN] {
    let digest = |root: &TrustAnchor<'_>| {
        let constraints = root.name_constraints.as_deref();
        let parts = [
            Some(&root.subject[..]),
            Some(&root.subject_public_key_info[..]),
            constraints,
        ];
        let mut context = Context::new(&SHA256);
        for part in parts {
            // A part that is absent is not one that is empty.
            let length = part.map_or(u64::MAX, |part| part.len() as u64);
            context.update(&length.to_be_bytes());
            context.update(part.unwrap_or_default());
        }
        context.finish()
    };
    let mut digests: Vec<_> = roots.iter().map(digest).collect();
    digests.sort_unstable_by(|one, other| one.as_ref().cmp(other.as_ref()));
    digests.dedup_by(|one, other| one.as_ref() == other.as_ref());
    let mut context = Context::new(&SHA256);
    for digest in digests {
        context.update(digest.as_ref());
    }
    let mut whole = [0; SHA256_OUTPUT_LEN];
    whole.copy_from_slice(context.finish().as_ref());
    whole
}

/// The certificates that are offered now. Their lock is taken for an instant by a handshake.
#[derive(Debug)]
struct Certificates(RwLock<Offered>);

#[derive(Debug)]
struct Offered {
    default: Option<Arc<CertifiedKey>>,
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    fn new(certificates: Vec<Certificate>) -> Self {
        Self(RwLock::new(Offered::new(certificates)))
    }

    fn set(&self, certificates: Vec<Certificate>) {
        let offered = Offered::new(certificates);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = offered;
    }
}

impl Offered {
    fn new(certificates: Vec<Certificate>) -> Self {
        let mut by_name = HashMap::new();
        let default = certificates.first().map(Certificate::certified_key);
        for certificate in certificates {
            for name in certificate.names() {
                let key = || certificate.certified_key();
                by_name.entry(name.clone()).or_insert_with(key);
            }
        }
        Self { default, by_name }
    }

    /// The one for exactly this name, then the one for all names beside it, then the first.
    fn find(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let found = name.and_then(|name| {
            let exact = self.by_name.get(name);
            exact.or_else(|| {
                let (_, domain) = name.split_once('.')?;
                self.by_name.get(&format!("*.{domain}"))
            })
        });
        found.or(self.default.as_ref()).cloned()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let offered = self.0.read().unwrap_or_else(PoisonError::into_inner);
        offered.find(name.as_deref())
    }
}
