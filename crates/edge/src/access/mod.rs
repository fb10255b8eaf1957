//! Who may ask what: what a route asks of its clients, and grants them.
//!
//! [`Access`] is what the loops share; each loop has a [`Verifier`] of its own. Nothing here does
//! I/O but to read the files of keys.

mod address;
mod cors;
pub(crate) mod jwt;
mod rate;
mod remembered;
mod verdict;
mod verifier;

pub(crate) use address::{client_address, counted_as};
pub(crate) use cors::{CorsTable, Origin};
pub(crate) use jwt::Claims;
pub(crate) use rate::Limiter;
pub(crate) use remembered::{Digest, Digester, Remembered};
pub(crate) use verdict::{Granted, Refused, Verdict, credential, question};
pub(crate) use verifier::{Refusal, Verifier};

use crate::config::Config;
use crate::publish::Tokens;
use std::sync::Arc;
use std::time::Instant;
use verifier::KeyRing;

/// What all loops share of it.
#[derive(Debug)]
pub(crate) struct Access {
    /// Those who may publish.
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) limiter: Limiter,
    /// The keys that tokens of clients are verified with, where a route asks for tokens.
    keys: Option<Arc<KeyRing>>,
}

impl Access {
    /// Makes it from the configuration and the files that it names.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub(crate) fn load(config: &Config) -> Result<Self, String> {
        let tokens = Tokens::load(&config.publish)
            .map_err(|error| format!("{error} (publish.token_file)"))?;
        let limits_any = config.routes.iter().any(|route| route.access.is_limited());
        let buckets = if limits_any {
            config.limits.rate_buckets
        } else {
            0
        };
        let keys = config.jwt.is_on().then(|| KeyRing::load(&config.jwt));
        Ok(Self {
            tokens: Arc::new(tokens),
            limiter: Limiter::new(buckets, Instant::now()),
            keys: keys.transpose()?.map(Arc::new),
        })
    }

    /// The verifier of one loop.
    pub(crate) fn verifier(&self, config: &Config) -> Verifier {
        Verifier::new(self.keys.clone(), &config.jwt)
    }
}
