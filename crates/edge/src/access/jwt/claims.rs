//! Claims of a token.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Claims of a verified token, as far as they are used here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    /// Claims that can be part of a key, by name.
    texts: BTreeMap<String, String>,
    expires: Option<u64>,
    not_before: Option<u64>,
    has_senseless_time: bool,
    has_senseless_subject: bool,
}

impl Claims {
    pub(super) fn of(all: Map<String, Value>) -> Self {
        let mut claims = Self::default();
        for (name, value) in all {
            if matches!(name.as_str(), "exp" | "nbf") {
                claims.take_time(&name, &value);
            }
            if name == "sub" {
                claims.has_senseless_subject = !value.is_string();
            }
            let text = match value {
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                Value::Bool(truth) => truth.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => continue,
            };
            claims.texts.insert(name, text);
        }
        claims
    }

    fn take_time(&mut self, name: &str, value: &Value) {
        let Some(seconds) = numeric_date(value) else {
            self.has_senseless_time = true;
            return;
        };
        if name == "exp" {
            self.expires = Some(seconds);
        } else {
            self.not_before = Some(seconds);
        }
    }

    /// A claim that is a string, a number or a boolean.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// Expiry of the token (`exp`). Units: seconds of Unix time.
    pub(crate) fn expires(&self) -> Option<u64> {
        self.expires
    }

    pub(super) fn not_before(&self) -> Option<u64> {
        self.not_before
    }

    /// Returns true if `sub` is present and not a string.
    ///
    /// Source: RFC 7519 section 4.1.2.
    pub(super) fn has_senseless_subject(&self) -> bool {
        self.has_senseless_subject
    }

    pub(super) fn has_senseless_time(&self) -> bool {
        self.has_senseless_time
    }
}

/// A `NumericDate` of RFC 7519 section 2: seconds, perhaps with a fraction. The fraction is cut
/// off, so that a token expires too early rather than too late.
fn numeric_date(value: &Value) -> Option<u64> {
    if let Some(seconds) = value.as_u64() {
        return Some(seconds);
    }
    let seconds = value.as_f64()?;
    if !seconds.is_finite() || seconds >= TIME_MAX {
        return None;
    }
    // Times before 1970 have passed.
    #[expect(clippy::cast_sign_loss, reason = "it is not negative")]
    Some(seconds.max(0.0) as u64)
}

/// Largest number whose neighbours are exact.
const TIME_MAX: f64 = 9_007_199_254_740_992.0;
