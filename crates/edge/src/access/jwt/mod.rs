//! Tokens that identify a client, signed by their issuer (RFC 7519, compact form).
//!
//! `jsonwebtoken` parses and verifies tokens; this module chooses the key and the time. The choice
//! is never the token's alone: a key has the algorithms it is valid for, and the token's `alg` only
//! picks among them. So `none` is not an algorithm, and a public key is never taken for a secret.

mod claims;
mod file;
mod key;

pub(crate) use claims::Claims;
pub(crate) use file::{KeyFiles, KeysError};
use key::VerifyingKey;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;

/// Requirements on a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    /// Accepted issuers; any, if empty.
    pub(crate) issuers: Vec<String>,
    /// Accepted audiences; any, if empty.
    pub(crate) audiences: Vec<String>,
    /// Largest accepted difference between clocks.
    pub(crate) leeway: Duration,
    /// Tokens without an expiry are refused.
    pub(crate) requires_expiry: bool,
}

/// Reason why a token is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// It is longer than [`TOKEN_BYTES_MAX`].
    TooLong,
    /// It is not three parts of base64url with JSON in them, or its algorithm is unknown.
    Malformed,
    /// It has critical extensions (`crit`), which are not supported.
    Critical,
    /// No key has its name or is valid for its algorithm.
    NoKey,
    /// No key has signed it.
    Signature,
    /// It has expired, or a time in it is malformed.
    Expired,
    /// It has no expiry.
    NoExpiry,
    /// It is not valid yet.
    NotYet,
    /// Its issuer is not accepted.
    Issuer,
    /// Its audience is not accepted.
    Audience,
    /// Its subject is not a string.
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

/// Keys that verify tokens.
#[derive(Debug, Default)]
pub(crate) struct VerifyingKeys(Vec<VerifyingKey>);

impl VerifyingKeys {
    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Verifies a token at `now`, and returns its claims.
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
        // The library accepts a list of issuers; the standard has only one.
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

    /// The claims of a token that one of its candidate keys has signed.
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
    /// The checks of the library: all but the times, for which it would read the clock.
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

/// Longest token that is parsed.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Keys that are tried for one token.
const CANDIDATES_MAX: usize = 8;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) use tests::signed;
