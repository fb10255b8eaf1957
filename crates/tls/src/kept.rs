//! The part of a client's certificates that outlives its handshake.

use crate::{ClientNames, PeerCertificates};
use rustls::pki_types::CertificateDer;

/// The part of a client's certificates that is kept for as long as its connection, which takes
/// these bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum KeptOfClient {
    /// Nothing.
    Nothing,
    /// The [names](crate::Established::client_names) of the client.
    Names,
    /// The names, and its own [certificate](ClientNames::certificate).
    Certificate,
    /// All certificates that it has shown
    /// ([`Established::peer_certificates`](crate::Established::peer_certificates)). Such a
    /// connection cannot be frozen.
    Chain,
}

/// A client, as far as it is kept.
#[derive(Debug)]
pub(crate) enum KeptClient {
    Chain(PeerCertificates),
    Names(ClientNames),
}

impl KeptClient {
    /// The part of a chain that is to be kept; `None` for nothing. A chain that is not verified has
    /// no names.
    pub(crate) fn of(
        keeps: KeptOfClient,
        shown: Option<&[CertificateDer<'_>]>,
        are_verified: bool,
    ) -> Option<Self> {
        let shown = shown.unwrap_or_default();
        match keeps {
            KeptOfClient::Nothing => None,
            KeptOfClient::Chain => PeerCertificates::new(shown, are_verified).map(Self::Chain),
            KeptOfClient::Names | KeptOfClient::Certificate => {
                let shown = if are_verified { shown } else { &[] };
                let keeps_certificate = keeps == KeptOfClient::Certificate;
                Some(Self::Names(ClientNames::of_chain(shown, keeps_certificate)))
            }
        }
    }
}
