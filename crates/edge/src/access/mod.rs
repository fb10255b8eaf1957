//! Access: authentication of requests, rates, and CORS.
//!
//! [`Access`] is shared by the loops; each loop has a [`Verifier`] of its own. The only I/O here is
//! reading key files.

mod address;
mod client;
mod connection_limiter;
mod cors;
mod decision;
mod expiring_cache;
mod gate;
mod identity;
pub(crate) mod jwt;
mod rate;
mod redacted;
mod subrequests;
mod tokens;
mod verifier;

pub(crate) use address::{client_address, client_scheme, counted_as, forwarded_scheme, is_trusted};
pub(crate) use client::{
    CertificateRefusal, MayPublish, ShownClient, is_certificate_left_out, sent_certificate,
};
pub(crate) use connection_limiter::ConnectionLimiter;
pub(crate) use cors::{CorsGrant, CorsTable};
pub(crate) use decision::{AuthDecision, Granted, Refused, auth_request, credential};
pub(crate) use expiring_cache::{Digest, Digester, ExpiringCache};
pub(crate) use gate::{Denial, Gate, Limited, RequestTime};
pub(crate) use identity::{Identity, KeyInputs};
pub(crate) use jwt::Claims;
pub(crate) use rate::{Limiter, RateKey};
pub(crate) use redacted::{redacted, redacted_key};
pub(crate) use subrequests::AuthSubrequests;
pub(crate) use tokens::{Bearer, Tokens};
pub(crate) use verifier::{TokenRefusal, Verifier};

use crate::config::Config;
use std::sync::Arc;
use verifier::KeyRing;

/// State that all loops share.
#[derive(Debug)]
pub(crate) struct Access {
    /// Tokens of publishers.
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) connections: Arc<ConnectionLimiter>,
    /// Keys that verify clients' tokens, if a route needs tokens.
    keys: Option<Arc<KeyRing>>,
}

impl Access {
    /// Loads the state from the configuration and the files it names.
    ///
    /// Shape: connection counts are taken over from `before`. So are rates, unless the size of
    /// their table changes.
    ///
    /// # Errors
    /// The fault and the file.
    pub(crate) fn load(config: &Config, before: Option<&Self>) -> Result<Self, String> {
        let tokens = Tokens::load(&config.publish)
            .map_err(|error| format!("{error} (publish.token_file)"))?;
        let limits_any = config.routes.iter().any(|route| route.access.is_limited());
        let buckets = if limits_any {
            config.limits.rate_buckets
        } else {
            0
        };
        let known = before.map(|before| &before.limiter);
        let limiter = match known.filter(|known| known.is_for(buckets)) {
            Some(known) => Arc::clone(known),
            None => Arc::new(Limiter::new(buckets, dwell_evloop::now())),
        };
        let connections = before.map(|before| Arc::clone(&before.connections));
        let keys = config.jwt.is_on().then(|| KeyRing::load(&config.jwt));
        Ok(Self {
            tokens: Arc::new(tokens),
            limiter,
            connections: connections.unwrap_or_default(),
            keys: keys.transpose()?.map(Arc::new),
        })
    }

    /// The verifier of one loop.
    pub(crate) fn verifier(&self, config: &Config) -> Verifier {
        Verifier::new(self.keys.clone(), &config.jwt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use std::time::Instant;

    fn load(options: &str, before: Option<&Access>) -> Access {
        let text = format!("{options}\n[[route]]\nprefix = \"/p/\"\nrate_per_address = \"1/h\"\n");
        Access::load(&config::parse("test.toml", &text, &[]).unwrap(), before).unwrap()
    }

    #[test]
    fn a_reload_knows_who_has_asked_too_often() {
        let rate = "1/h".parse().unwrap();
        let now = Instant::now();
        let may_ask = |access: &Access| access.limiter.take("a", rate, now).is_ok();
        let before = load("", None);
        assert!(may_ask(&before) && !may_ask(&before));
        let after = load("[log]\nlevel = \"debug\"", Some(&before));
        assert!(!may_ask(&after), "nothing of it has changed");
        let larger = load("[limits]\nrate_buckets = 131072", Some(&after));
        assert!(may_ask(&larger), "another table knows nobody");
    }
}
