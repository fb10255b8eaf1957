//! Tokens that say who somebody is, signed by whoever gave them out (RFC 7519, compact form).
//!
//! Which key a token is verified with is never the token's choice alone: a key has the algorithms
//! it is for, and the token's `alg` only picks among them. So `none` is no algorithm, and a public
//! key is never taken for a secret.

mod claims;
mod file;
mod key;

pub(crate) use claims::Claims;
pub(crate) use file::{KeyFiles, KeysError};
use key::{Algorithm, Key};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
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
}

/// Why a token is not good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// It is longer than tokens are.
    TooLong,
    /// It is not three parts of base64url with JSON in them.
    Malformed,
    /// It must be understood in a way that this is not (`crit`).
    Critical,
    /// No key is for its algorithm, or has its name.
    NoKey,
    /// No key has signed it.
    Signature,
    /// Its time is over, or it has no time that makes sense.
    Expired,
    /// Its time has not come.
    NotYet,
    /// It comes from somebody else.
    Issuer,
    /// It is for somebody else.
    Audience,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the token is too long",
            Self::Malformed => "the token is malformed",
            Self::Critical => "the token has a critical extension",
            Self::NoKey => "no key is for the token",
            Self::Signature => "the signature is wrong",
            Self::Expired => "the token has expired",
            Self::NotYet => "the token is not valid yet",
            Self::Issuer => "the token is from another issuer",
            Self::Audience => "the token is for another audience",
        })
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
        let mut dots = token.iter().rposition(|byte| *byte == b'.').into_iter();
        let end = dots.next().ok_or(TokenError::Malformed)?;
        let (signed, signature) = (&token[..end], &token[end + 1..]);
        let dot = signed.iter().position(|byte| *byte == b'.');
        let dot = dot.ok_or(TokenError::Malformed)?;
        let header = object(&signed[..dot])?;
        let signature = decode(signature)?;
        self.check_signature(&header, signed, &signature)?;
        // Only what somebody has signed is looked at any further.
        let claims = Claims::of(object(&signed[dot + 1..])?);
        check_times(&claims, expected.leeway, now)?;
        check_parties(&claims, expected)?;
        Ok(claims)
    }

    fn check_signature(
        &self,
        header: &Map<String, Value>,
        signed: &[u8],
        signature: &[u8],
    ) -> Result<(), TokenError> {
        if header.contains_key("crit") {
            return Err(TokenError::Critical);
        }
        let name = header.get("alg").and_then(Value::as_str);
        let algorithm = name.and_then(Algorithm::named).ok_or(TokenError::NoKey)?;
        let kid = match header.get("kid") {
            None => None,
            Some(kid) => Some(kid.as_str().ok_or(TokenError::Malformed)?),
        };
        let candidates = self
            .0
            .iter()
            .filter(|key| key.is_for(algorithm) && key.may_be_named(kid));
        let mut error = TokenError::NoKey;
        for key in candidates.take(CANDIDATES_MAX) {
            if key.has_signed(algorithm, signed, signature) {
                return Ok(());
            }
            error = TokenError::Signature;
        }
        Err(error)
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

fn check_parties(claims: &Claims, expected: &Expected) -> Result<(), TokenError> {
    let is_from = |issuer: &String| claims.issuer() == Some(issuer);
    if !expected.issuers.is_empty() && !expected.issuers.iter().any(is_from) {
        return Err(TokenError::Issuer);
    }
    let is_for = |audience: &String| claims.is_for(audience);
    if !expected.audiences.is_empty() && !expected.audiences.iter().any(is_for) {
        return Err(TokenError::Audience);
    }
    Ok(())
}

fn decode(text: &[u8]) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| TokenError::Malformed)
}

fn object(text: &[u8]) -> Result<Map<String, Value>, TokenError> {
    let json = decode(text)?;
    serde_json::from_slice(&json).map_err(|_| TokenError::Malformed)
}

/// A longer token is refused unread.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Keys that one token is tried with.
const CANDIDATES_MAX: usize = 8;

#[cfg(test)]
mod tests;
