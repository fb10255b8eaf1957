//! The gate of one loop: it admits requests to a route, with the identity of their client.
//!
//! It decides and sends nothing: a denial is returned, and an [`Identity`] is a value that travels
//! with its request.

use super::tokens::Bearer;
use super::{
    Access, AuthDecision, AuthSubrequests, CertificateRefusal, Identity, MayPublish, RateKey,
    Refused, ShownClient, TokenRefusal, Verifier, client_address, counted_as, is_trusted,
};
use crate::config::{Config, Rate, RouteConfig};
use dwell_proto::http1::{Fields, RequestHead};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// State from which one loop decides on access.
#[derive(Debug)]
pub(crate) struct Gate {
    config: Arc<Config>,
    access: Arc<Access>,
    verifier: Verifier,
    pub(crate) subrequests: AuthSubrequests,
}

/// The reason why a request is not admitted.
#[derive(Debug)]
pub(crate) enum Denial {
    /// It goes beyond a rate.
    Limited(Limited),
    /// It has no good token.
    Token(TokenRefusal),
    /// Its client has no certificate with a name for the key.
    Certificate(CertificateRefusal),
    /// The application refuses it.
    Refused(Arc<Refused>),
}

/// A rate that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) rate: Rate,
    /// The time until there is room for one more.
    pub(crate) wait: Duration,
}

/// The time of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTime {
    pub(crate) at: Instant,
    /// Units: seconds of Unix time.
    pub(crate) unix_seconds: u64,
}

impl Gate {
    /// Makes the gate of a loop that asks the application by `subrequests`.
    pub(crate) fn new(
        config: Arc<Config>,
        access: Arc<Access>,
        subrequests: AuthSubrequests,
    ) -> Self {
        Self {
            verifier: access.verifier(&config),
            config,
            access,
            subrequests,
        }
    }

    /// Goes by another configuration from now on, with room for `subrequests_max`.
    pub(crate) fn reconfigure(&mut self, config: &Arc<Config>, subrequests_max: usize) {
        self.config = Arc::clone(config);
        self.subrequests.reconfigure(subrequests_max);
    }

    /// Goes by other tokens, keys and rates from now on.
    pub(crate) fn change_access(&mut self, access: &Arc<Access>) {
        self.access = Arc::clone(access);
        self.verifier = access.verifier(&self.config);
    }

    /// Admits a request by the rate of its address, by its certificate and by its token, and
    /// completes `identity`.
    ///
    /// # Errors
    /// The reason why it is not admitted.
    pub(crate) fn admit(
        &mut self,
        rules: &RouteConfig,
        head: &RequestHead<'_, '_>,
        peer: impl FnOnce() -> Option<SocketAddr>,
        asked: RequestTime,
        client: impl FnOnce() -> ShownClient,
        identity: &mut Identity,
    ) -> Result<(), Denial> {
        if let Some(rate) = rules.access.rate_per_address {
            let client = RateKey::Address(self.client_of(head, peer()));
            self.take_share(asked.at, rules, client, rate)
                .map_err(Denial::Limited)?;
        }
        self.verify(rules, head, asked.unix_seconds, client, identity)
    }

    /// Completes an identity by the certificate of its client and by the token of a request, where
    /// its route needs them.
    ///
    /// Units: `now` is seconds of Unix time.
    ///
    /// # Errors
    /// The reason why one of them is not good.
    pub(crate) fn verify(
        &mut self,
        rules: &RouteConfig,
        head: &RequestHead<'_, '_>,
        now: u64,
        client: impl FnOnce() -> ShownClient,
        identity: &mut Identity,
    ) -> Result<(), Denial> {
        if rules.key.takes_client() {
            let names = client().names_for(&rules.key);
            identity.client = Some(names.map_err(Denial::Certificate)?);
        }
        if rules.access.jwt {
            let claims = self.verifier.claims(head, now).map_err(Denial::Token)?;
            identity.ends = self.verifier.ends(&claims);
            identity.claims = Some(claims);
        }
        Ok(())
    }

    /// Counts a request for a key.
    ///
    /// # Errors
    /// The rate that it goes beyond.
    pub(crate) fn count_key(
        &self,
        now: Instant,
        rules: &RouteConfig,
        name: &[u8],
    ) -> Result<(), Limited> {
        match rules.access.rate_per_key {
            Some(rate) => self.take_share(now, rules, RateKey::Key(name), rate),
            None => Ok(()),
        }
    }

    /// Counts the keys of a request beyond the first, which its admission has counted: each may
    /// cause a request to the application.
    pub(crate) fn count_further_keys(
        &self,
        now: Instant,
        rules: &RouteConfig,
        head: &RequestHead<'_, '_>,
        peer: impl FnOnce() -> Option<SocketAddr>,
        keys: usize,
    ) {
        let further = u32::try_from(keys.saturating_sub(1)).unwrap_or(u32::MAX);
        if let Some(rate) = rules.access.rate_per_address.filter(|_| further > 0) {
            let client = RateKey::Address(self.client_of(head, peer()));
            let subject = (rules.prefix.as_str(), rate, client);
            self.access.limiter.charge(subject, rate, now, further);
        }
    }

    /// Counts a key of a client that is connected already.
    ///
    /// Shape: behind a trusted proxy the address of the client is unknown, and that of the proxy is
    /// not counted.
    ///
    /// # Errors
    /// The rate that it goes beyond.
    pub(crate) fn count_key_of(
        &self,
        now: Instant,
        rules: &RouteConfig,
        name: &[u8],
        peer: Option<SocketAddr>,
    ) -> Result<(), Limited> {
        let peer = peer.filter(|peer| !is_trusted(Some(*peer), self.trusted()));
        if let (Some(rate), Some(peer)) = (rules.access.rate_per_address, peer) {
            let client = RateKey::Address(Some(counted_as(peer.ip().to_canonical())));
            self.take_share(now, rules, client, rate)?;
        }
        self.count_key(now, rules, name)
    }

    /// Takes one request from the share of a client or a key on a route.
    ///
    /// Shape: shares are found by prefix and rate, so they outlive a reload that changes neither.
    ///
    /// # Errors
    /// The rate, and the time until there is room.
    pub(crate) fn take_share(
        &self,
        now: Instant,
        rules: &RouteConfig,
        counted: RateKey<'_>,
        rate: Rate,
    ) -> Result<(), Limited> {
        let subject = (rules.prefix.as_str(), rate, counted);
        let taken = self.access.limiter.take(subject, rate, now);
        taken.map_err(|wait| Limited { rate, wait })
    }

    /// Counts a WebSocket message that names `keys` keys, where messages have a rate.
    ///
    /// # Errors
    /// The rate that it goes beyond.
    pub(crate) fn count_message(
        &self,
        now: Instant,
        counted: RateKey<'_>,
        keys: usize,
    ) -> Result<(), Rate> {
        let Some(rate) = self.config.limits.websocket_messages_rate else {
            return Ok(());
        };
        let limiter = &self.access.limiter;
        limiter.take(counted, rate, now).map_err(|_| rate)?;
        let further = u32::try_from(keys.saturating_sub(1)).unwrap_or(u32::MAX);
        if further > 0 {
            limiter.charge(counted, rate, now, further);
        }
        Ok(())
    }

    /// The address under which the client of a request is counted.
    pub(crate) fn client_of(
        &self,
        head: &RequestHead<'_, '_>,
        peer: Option<SocketAddr>,
    ) -> Option<IpAddr> {
        client_address(peer, head.fields, self.trusted()).map(counted_as)
    }

    /// Checks the bearer token of a publisher or, without one, its certificate.
    pub(crate) fn may_publish(
        &self,
        fields: Fields<'_, '_>,
        client: impl FnOnce() -> ShownClient,
    ) -> MayPublish {
        let (tokens, publishers) = (&self.access.tokens, &self.config.publish.clients);
        match tokens.bearer(fields) {
            Bearer::Known => MayPublish::Yes,
            Bearer::Missing if !publishers.is_empty() => {
                client().may_publish(publishers, !tokens.is_empty())
            }
            bearer => MayPublish::NoToken(bearer),
        }
    }

    fn trusted(&self) -> &[crate::config::Network] {
        &self.config.server.trusted_proxies
    }
}

impl Identity {
    /// Adds the decision of the application.
    ///
    /// # Errors
    /// Its refusal.
    pub(crate) fn decided(&mut self, decision: AuthDecision) -> Result<(), Denial> {
        match decision {
            AuthDecision::Granted(granted) => {
                self.granted = Some(granted);
                Ok(())
            }
            AuthDecision::Refused(refused) => Err(Denial::Refused(refused)),
        }
    }
}

#[cfg(test)]
mod tests;
