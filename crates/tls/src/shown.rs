//! Certificates that clients show.

use crate::x509;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::sync::Arc;

/// The certificates that a client has shown. The first one was verified in its handshake, unless
/// that is [left](crate::Acceptor::unverified) to the program.
///
/// Shape: cloned freely; at most 16 KiB, or the client is refused.
///
/// ```
/// use dwell_tls::PeerCertificates;
///
/// /// The name of a client, for a log.
/// fn name_of(client: Option<&PeerCertificates>) -> String {
///     let subject = client.and_then(PeerCertificates::subject);
///     subject.unwrap_or_else(|| "unknown".to_owned())
/// }
/// assert_eq!(name_of(None), "unknown");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PeerCertificates {
    chain: Arc<Vec<CertificateDer<'static>>>,
    are_verified: bool,
}

impl PeerCertificates {
    /// Keeps a chain; `None` of no certificate.
    pub(crate) fn new(chain: &[CertificateDer<'_>], are_verified: bool) -> Option<Self> {
        let own = |certificate: &CertificateDer<'_>| certificate.clone().into_owned();
        (!chain.is_empty()).then(|| Self {
            chain: Arc::new(chain.iter().map(own).collect()),
            are_verified,
        })
    }

    /// Returns true if an authority vouches for the first one, and false if the client has only
    /// proved that it has the key.
    pub fn are_verified(&self) -> bool {
        self.are_verified
    }

    /// The certificates in DER: that of the client, then the others that it has sent. The client
    /// chooses those, and they need not vouch for the first.
    pub fn chain(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.chain.iter().map(|certificate| &**certificate)
    }

    /// The subject of the client's certificate, as text: `CN=alice,O=Example`. `None` if it cannot
    /// be read.
    ///
    /// Source: RFC 4514.
    pub fn subject(&self) -> Option<String> {
        x509::subject(self.chain().next()?)
    }
}

/// Says how many there are, and not whose.
impl fmt::Debug for PeerCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerCertificates({})", self.chain.len())
    }
}
