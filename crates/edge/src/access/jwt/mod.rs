//! Tokens that say who somebody is, signed by whoever gave them out (RFC 7519, compact form).
//!
//! `jsonwebtoken` takes tokens apart and verifies them; which key it does that with, and what time
//! it is, is said here. That is never the token's choice alone: a key has the algorithms it is for,
//! and the token's `alg` only picks among them. So `none` is no algorithm, and a public key is
//! never taken for a secret.

mod claims;
mod file;
mod key;

pub(crate) use claims::Claims;
pub(crate) use file::{KeyFiles, KeysError};
use key::Key;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;

/// What a token has to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    /// One of these issuers, where any is named.
    pub(crate) issuers: Vec<String>,
    /// For one of these audiences, where any is named.
    pub(crate) audiences: Vec<String>,
    /// How far clocks may be apart.
    pub(crate) leeway: Duration,
    /// Whether it has to say when it ends.
    pub(crate) requires_expiry: bool,
}

/// Why a token is not good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// It is longer than tokens are.
    TooLong,
    /// It is not three parts of base64url with JSON in them, or of no known algorithm.
    Malformed,
    /// It must be understood in a way that this is not (`crit`).
    Critical,
    /// No key is for its algorithm, or has its name.
    NoKey,
    /// No key has signed it.
    Signature,
    /// Its time is over, or it has no time that makes sense.
    Expired,
    /// It does not say when it ends.
    NoExpiry,
    /// Its time has not come.
    NotYet,
    /// It comes from somebody else.
    Issuer,
    /// It is for somebody else.
    Audience,
    /// Whom it is about is no text.
    Subject,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the token is too long",
            Self::Malformed => "the token is malformed or its algorithm unknown",
            Self::Critical => "the token has a critical extension",
            Self::NoKey => "no key is for the token",
            Self::Signature => "the signature is wrong",
            Self::Expired => "the token has expired",
            Self::NoExpiry => "the token has no time at which it expires",
            Self::NotYet => "the token is not valid yet",
            Self::Issuer => "the token is from another issuer",
            Self::Audience => "the token is for another audience",
            Self::Subject => "the subject of the token is not a string",
        })
    }
}

impl TokenError {
    fn of(kind: &ErrorKind) -> Self {
        match kind {
            ErrorKind::MissingRequiredClaim(name) if name == "aud" => Self::Audience,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::InvalidIssuer | ErrorKind::MissingRequiredClaim(_) => Self::Issuer,
            ErrorKind::InvalidSignature => Self::Signature,
            _ => Self::Malformed,
        }
    }
}

/// The keys tokens are verified with.
#[derive(Debug, Default)]
pub(crate) struct Keys(Vec<Key>);

impl Keys {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The claims of a token, if it is good at `now`.
    ///
    /// Units: `now` is seconds of Unix time.
    ///
    /// # Errors
    /// [`TokenError`].
    ///
    /// Source: RFC 7515 section 5.2; RFC 7519 section 7.2.
    pub(crate) fn verify(
        &self,
        token: &[u8],
        expected: &Expected,
        now: u64,
    ) -> Result<Claims, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong);
        }
        let header = decode_header(token).map_err(|_| TokenError::Malformed)?;
        if header.crit.is_some() {
            return Err(TokenError::Critical);
        }
        let claims = Claims::of(self.signed(token, &header, expected)?);
        // The library takes a list of issuers, too; the standard knows only one.
        if !expected.issuers.is_empty() && claims.text("iss").is_none() {
            return Err(TokenError::Issuer);
        }
        if claims.has_senseless_subject() {
            return Err(TokenError::Subject);
        }
        check_times(&claims, expected.leeway, now)?;
        if expected.requires_expiry && claims.expires().is_none() {
            return Err(TokenError::NoExpiry);
        }
        Ok(claims)
    }

    /// What the token says, if one of the keys it may mean has signed it.
    fn signed(
        &self,
        token: &[u8],
        header: &Header,
        expected: &Expected,
    ) -> Result<Map<String, Value>, TokenError> {
        let kid = header.kid.as_deref();
        let candidates = self
            .0
            .iter()
            .filter(|key| key.is_for(header.alg) && key.may_be_named(kid));
        let validation = expected.validation(header.alg);
        let mut refused = TokenError::NoKey;
        for key in candidates.take(CANDIDATES_MAX) {
            match decode::<Map<String, Value>>(token, key.material(), &validation) {
                Ok(decoded) => return Ok(decoded.claims),
                Err(error) => refused = TokenError::of(error.kind()),
            }
            if refused != TokenError::Signature {
                break;
            }
        }
        Err(refused)
    }
}

impl Expected {
    /// What the library is to hold a token to: all but the times, as it would read the clock.
    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.validate_exp = false;
        validation.required_spec_claims.clear();
        validation.validate_aud = !self.audiences.is_empty();
        for (parties, name) in [(&self.issuers, "iss"), (&self.audiences, "aud")] {
            if !parties.is_empty() {
                validation.required_spec_claims.insert(name.to_owned());
            }
        }
        validation.set_audience(&self.audiences);
        if !self.issuers.is_empty() {
            validation.set_issuer(&self.issuers);
        }
        validation
    }
}

fn check_times(claims: &Claims, leeway: Duration, now: u64) -> Result<(), TokenError> {
    let leeway = leeway.as_secs();
    if claims.has_senseless_time() {
        return Err(TokenError::Expired);
    }
    if claims
        .expires()
        .is_some_and(|at| at.saturating_add(leeway) <= now)
    {
        return Err(TokenError::Expired);
    }
    if claims
        .not_before()
        .is_some_and(|at| at > now.saturating_add(leeway))
    {
        return Err(TokenError::NotYet);
    }
    Ok(())
}

/// A longer token is refused unread.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Keys that one token is tried with.
const CANDIDATES_MAX: usize = 8;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) use tests::signed;
