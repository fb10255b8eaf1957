//! The client of one request: its identity, and the inputs of keys.

use super::{Claims, CorsGrant, Granted};
use crate::config::{ClientPart, Requested};
use dwell_engine::ClientNames;
use dwell_proto::http1::Fields;
use std::sync::Arc;
use std::time::Duration;

/// The identity of the client of one request, as far as its route needs it. It travels with the
/// request; nothing that lives longer keeps it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) origin: Option<CorsGrant>,
    /// Claims of the client's token.
    pub(super) claims: Option<Arc<Claims>>,
    /// Fields of the response by which the application has granted access.
    pub(super) granted: Option<Arc<Granted>>,
    /// Names in the client's certificate.
    pub(super) client: Option<ClientNames>,
    /// Expiry of the claims. Units: seconds of Unix time.
    pub(super) ends: Option<u64>,
}

/// Inputs of a key besides path and query.
#[derive(Clone, Copy)]
pub(crate) struct KeyInputs<'a> {
    pub(crate) fields: Fields<'a, 'a>,
    pub(crate) scheme: &'static str,
    pub(crate) identity: Option<&'a Identity>,
}

impl Identity {
    /// Makes an identity of which only the CORS grant is known.
    pub(crate) fn of(origin: Option<CorsGrant>) -> Self {
        Self {
            origin,
            ..Self::default()
        }
    }

    /// Makes the identity of a client of which a certificate alone is known.
    pub(crate) fn of_client(client: ClientNames) -> Self {
        Self {
            client: Some(client),
            ..Self::default()
        }
    }

    /// The time until the identity expires; `None` if it does not.
    ///
    /// Units: `now` is seconds of Unix time.
    pub(crate) fn time_left(&self, now: u64) -> Option<Duration> {
        let left = |ends: u64| Duration::from_secs(ends.saturating_sub(now));
        self.ends.map(left)
    }
}

impl<'a> Requested<'a> for KeyInputs<'a> {
    fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.fields.find(name)
    }

    fn scheme(&self) -> Option<&str> {
        Some(self.scheme)
    }

    fn claim(&self, name: &str) -> Option<&str> {
        self.identity?.claims.as_ref()?.text(name)
    }

    fn granted(&self, name: &str) -> Option<&[u8]> {
        self.identity?.granted.as_ref()?.field(name)
    }

    fn client_name(&self, part: ClientPart) -> Option<&str> {
        let client = self.identity?.client.as_ref()?;
        match part {
            ClientPart::CommonName => client.common_name(),
            ClientPart::AlternativeName => client.alternative_name(),
        }
    }
}
