//! The state that the handshakes of a client share: what it trusts, shows, and may resume.

use crate::handshake::{Capture, Handshake, HandshakeError, Role};
use crate::verifier::Verifier;
use crate::x509;
use crate::{Certificate, CertificateError};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The certificates that a client trusts: those of authorities, and of single servers.
#[derive(Clone, Debug)]
pub struct Roots {
    store: Arc<RootCertStore>,
    /// The part of `store` that may vouch for servers.
    authorities: Arc<RootCertStore>,
    certificates: Arc<[CertificateDer<'static>]>,
}

/// The settings of a client: what it trusts and what it shows.
///
/// Shape: cloned freely; the clones and their connectors share the sessions of TLS 1.2 that may be
/// resumed. Sessions of TLS 1.3 are not resumed.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

/// Begins handshakes with one server.
///
/// ```
/// use dwell_tls::{ClientTls, Roots};
///
/// let roots = Roots::from_pem(include_bytes!("../tests/data/certificate.pem"))?;
/// let settings = ClientTls::new(&roots, None, &["http/1.1"])?;
/// let connector = settings.connector("localhost")?;
/// let mut hello = Vec::new();
/// connector.begin()?.transmit(&mut hello);
/// assert_eq!(hello[0], 22, "a handshake record");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Connector {
    settings: ClientTls,
    name: ServerName<'static>,
    host: Arc<str>,
}

/// An error of a server's name: it is neither a host name nor an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameError(String);

impl Roots {
    /// Reads the certificates of a PEM file.
    ///
    /// Shape: a certificate of an authority is trusted for all that it has issued. A certificate of
    /// a server is trusted for this server alone, even if it is self-signed.
    ///
    /// # Errors
    /// When there is no certificate, or one that cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, CertificateError> {
        let wrong = |error: &dyn fmt::Display| CertificateError::Certificate(error.to_string());
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|error| wrong(&error))?;
        if certificates.is_empty() {
            return Err(wrong(&"no certificate in the file"));
        }
        let mut store = RootCertStore::empty();
        let mut authorities = RootCertStore::empty();
        for certificate in &certificates {
            let added = store.add(certificate.clone());
            added.map_err(|error| wrong(&error))?;
            // One without basic constraints may be that of an old authority.
            if x509::fields(certificate).is_none_or(|fields| !fields.is_end_entity) {
                authorities.roots.extend(store.roots.last().cloned());
            }
        }
        Ok(Self {
            store: Arc::new(store),
            authorities: Arc::new(authorities),
            certificates: certificates.into(),
        })
    }

    /// Reads the certificates that the system trusts: those of `SSL_CERT_FILE` and `SSL_CERT_DIR`,
    /// or of the place where the system keeps them.
    ///
    /// Shape: reads files, about a megabyte at most; certificates that cannot be read are left out.
    ///
    /// # Errors
    /// When none is there.
    pub fn system() -> Result<Self, CertificateError> {
        let found = rustls_native_certs::load_native_certs();
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(found.certs);
        if added == 0 {
            let reason = match found.errors.first() {
                Some(error) => format!("the system has no trusted certificates: {error}"),
                None => "the system has no trusted certificates".to_owned(),
            };
            return Err(CertificateError::Certificate(reason));
        }
        let store = Arc::new(store);
        Ok(Self {
            authorities: Arc::clone(&store),
            store,
            certificates: Arc::new([]),
        })
    }

    /// The certificates of authorities.
    pub(crate) fn store(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.store)
    }
}

/// The names and keys that are trusted; equal ones have the same hash.
impl Hash for Roots {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for root in &self.store.roots {
            root.subject.hash(state);
            root.subject_public_key_info.hash(state);
            root.name_constraints.hash(state);
        }
        self.certificates.hash(state);
    }
}

impl ClientTls {
    /// Trusts `roots`, shows `identity` to a server that asks for a certificate, and offers
    /// `protocols` by ALPN, the preferred one first.
    ///
    /// Shape: TLS 1.3 and 1.2. The certificate of the server is verified in every full handshake; a
    /// session of TLS 1.2 that is resumed goes on with the one that was verified when it began.
    ///
    /// # Errors
    /// When the system's cryptography has no suite of these versions.
    pub fn new(
        roots: &Roots,
        identity: Option<&Certificate>,
        protocols: &[&str],
    ) -> Result<Self, CertificateError> {
        let wrong = |error: &dyn fmt::Display| CertificateError::Certificate(error.to_string());
        let provider: Arc<CryptoProvider> = Arc::new(provider::default_provider());
        let verifier = Verifier {
            authorities: Arc::clone(&roots.authorities),
            trusted: Arc::clone(&roots.certificates),
            algorithms: provider.signature_verification_algorithms,
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let key = SingleCertAndKey::from(identity.certified_key());
                config.with_client_cert_resolver(Arc::new(key))
            }
        };
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
        config.alpn_protocols = protocols.collect();
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(Capture);
        Ok(Self(Arc::new(config)))
    }

    /// A connector for the server of this name, which its certificate has to be for: a host name,
    /// or an address without brackets.
    ///
    /// # Errors
    /// When it is neither.
    pub fn connector(&self, host: &str) -> Result<Connector, NameError> {
        let name = ServerName::try_from(host.to_owned());
        Ok(Connector {
            settings: self.clone(),
            name: name.map_err(|_| NameError(host.to_owned()))?,
            host: host.into(),
        })
    }
}

impl Connector {
    /// Begins a handshake, whose first bytes [`Handshake::transmit`] gives.
    ///
    /// # Errors
    /// When the system's cryptography fails.
    pub fn begin(&self) -> Result<Handshake, HandshakeError> {
        let config = Arc::clone(&self.settings.0);
        let connection = ClientConnection::new(config, self.name.clone())?;
        let connection = Connection::Client(connection);
        let role = Role::Client(Arc::clone(&self.host));
        Ok(Handshake::new(connection, role))
    }

    /// The name of the server.
    pub fn host(&self) -> &str {
        &self.host
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "neither a host name nor an address: {}", self.0)
    }
}

impl std::error::Error for NameError {}
