//! Verification of clients' tokens on one loop.

use super::expiring_cache::{Digester, ExpiringCache};
use super::jwt::{Claims, Expected, KeyFiles, TokenError, VerifyingKeys};
use super::tokens::bearer_token;
use crate::config::{JwtConfig, cookie_value, query_value};
use dwell_proto::http1::RequestHead;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// The keys of the process, reloaded when their files change.
#[derive(Debug)]
pub(crate) struct KeyRing {
    files: KeyFiles,
    /// Counts the reloads, so that a loop notices one without a lock.
    readings: AtomicU64,
    /// Time of the next check of the files. Units: seconds of Unix time.
    next_check: AtomicU64,
    current: Mutex<Reading>,
}

#[derive(Debug)]
struct Reading {
    keys: Arc<VerifyingKeys>,
    changed_at: Vec<Option<SystemTime>>,
}

/// Interval between checks of the files, while there are requests.
const CHECK_INTERVAL_SECONDS: u64 = 5;

impl KeyRing {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// The fault and the file.
    pub(super) fn load(config: &JwtConfig) -> Result<Self, String> {
        let files = KeyFiles {
            secret: config.secret_file.clone(),
            public: config.public_key_file.clone(),
            jwks: config.jwks_file.clone(),
        };
        let changed_at = files.changed_at();
        let keys = files
            .read()
            .map_err(|(path, error)| format!("{}: {error} (jwt)", path.display()))?;
        let keys = Arc::new(keys);
        Ok(Self {
            files,
            readings: AtomicU64::new(1),
            next_check: AtomicU64::new(0),
            current: Mutex::new(Reading { keys, changed_at }),
        })
    }

    /// Reloads files that have changed, if a check is due and no other loop makes it.
    fn reload_if_due(&self, now: u64) {
        // Relaxed: the lock orders what is read.
        let due = self.next_check.load(Ordering::Relaxed);
        let next = now + CHECK_INTERVAL_SECONDS;
        let order = Ordering::Relaxed;
        if now < due
            || self
                .next_check
                .compare_exchange(due, next, order, order)
                .is_err()
        {
            return;
        }
        let changed_at = self.files.changed_at();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.changed_at == changed_at {
            return;
        }
        current.changed_at = changed_at;
        match self.files.read() {
            Ok(keys) => {
                let count = keys.len();
                current.keys = Arc::new(keys);
                self.readings.fetch_add(1, Ordering::Release);
                drop(current);
                tracing::info!(keys = count, "jwt keys read again");
            }
            Err((path, error)) => {
                tracing::error!(path = %path.display(), %error, "jwt keys stay as they were");
            }
        }
    }

    fn keys(&self) -> Arc<VerifyingKeys> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current.keys)
    }
}

/// Verifies the tokens of the requests of one loop.
#[derive(Debug)]
pub(crate) struct Verifier {
    ring: Option<Arc<KeyRing>>,
    keys: Arc<VerifyingKeys>,
    reading: u64,
    expected: Expected,
    query_parameter: Option<String>,
    cookie: Option<String>,
    digester: Digester,
    known: ExpiringCache<Arc<Claims>>,
}

/// Reason why a request is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenRefusal {
    /// It has no token.
    NoToken,
    /// Its token is not valid.
    Token(TokenError),
}

/// Verified tokens that a loop caches.
const KNOWN_MAX: usize = 2048;
/// Longest token that is cached.
const KNOWN_BYTES_MAX: usize = 2048;

impl Verifier {
    pub(super) fn new(ring: Option<Arc<KeyRing>>, config: &JwtConfig) -> Self {
        Self {
            ring,
            keys: Arc::default(),
            reading: 0,
            expected: Expected {
                issuers: config.issuer.clone(),
                audiences: config.audience.clone(),
                leeway: config.leeway,
                requires_expiry: config.expiry_required,
            },
            query_parameter: config.query_parameter.clone(),
            cookie: config.cookie.clone(),
            digester: Digester::new(),
            known: ExpiringCache::new(KNOWN_MAX),
        }
    }

    /// Verifies the token of a request, and returns its claims.
    ///
    /// Shape: the token is read from `Authorization`, else from the query parameter or the cookie
    /// that the configuration names. Units: `now` is seconds of Unix time.
    ///
    /// # Errors
    /// The reason why the request is not authenticated.
    pub(crate) fn claims(
        &mut self,
        head: &RequestHead<'_, '_>,
        now: u64,
    ) -> Result<Arc<Claims>, TokenRefusal> {
        let Some(token) = self.token(head) else {
            return Err(TokenRefusal::NoToken);
        };
        self.follow_ring(now);
        let digest = (token.len() <= KNOWN_BYTES_MAX).then(|| self.digester.digest(&[&token]));
        if let Some(claims) = digest
            .as_ref()
            .and_then(|digest| self.known.get(digest, now))
        {
            return Ok(Arc::clone(claims));
        }
        let claims = self
            .keys
            .verify(&token, &self.expected, now)
            .map_err(TokenRefusal::Token)?;
        let claims = Arc::new(claims);
        if let Some(digest) = digest {
            let until = self.ends(&claims).unwrap_or(u64::MAX);
            self.known.put(digest, until, Arc::clone(&claims), now);
        }
        Ok(claims)
    }

    /// Expiry of a token, with the leeway. Units: seconds of Unix time.
    pub(crate) fn ends(&self, claims: &Claims) -> Option<u64> {
        let leeway = self.expected.leeway.as_secs();
        claims.expires().map(|at| at.saturating_add(leeway))
    }

    fn follow_ring(&mut self, now: u64) {
        let Some(ring) = &self.ring else { return };
        ring.reload_if_due(now);
        let reading = ring.readings.load(Ordering::Acquire);
        if reading != self.reading {
            self.reading = reading;
            self.keys = ring.keys();
            // The key that signed them may not be trusted any more.
            self.known.clear();
        }
    }

    fn token<'h>(&self, head: &RequestHead<'h, 'h>) -> Option<Cow<'h, [u8]>> {
        if let Some(token) = bearer_token(head.fields) {
            return Some(Cow::Borrowed(token));
        }
        if let (Some(name), Some(query)) = (&self.query_parameter, head.query)
            && let Some(token) = query_value(query, name)
        {
            return Some(Cow::Owned(token.into_owned().into_bytes()));
        }
        let cookies = head.fields.find("cookie")?;
        cookie_value(cookies, self.cookie.as_ref()?).map(Cow::Borrowed)
    }
}
