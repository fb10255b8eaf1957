//! Request targets as they may be logged.

use crate::config::query_value;
use crate::query::parameters;
use std::borrow::Cow;

/// Removes tokens from the query of a request target, so that readers of a log cannot use them.
///
/// Shape: `parameter` is the name of the parameter with the token. Every parameter of that name is
/// redacted, however it is encoded.
pub(crate) fn redacted<'t>(target: &'t str, parameter: Option<&str>) -> Cow<'t, str> {
    let (Some(parameter), Some((path, query))) = (parameter, target.split_once('?')) else {
        return Cow::Borrowed(target);
    };
    let is_token = |part: &str| {
        parameters(part)
            .next()
            .is_some_and(|(name, _)| name == parameter)
    };
    if !query.split('&').any(is_token) {
        return Cow::Borrowed(target);
    }
    let parts = query.split('&').map(|part| match part.split_once('=') {
        Some((name, _)) if is_token(part) => Cow::Owned(format!("{name}=redacted")),
        _ => Cow::Borrowed(part),
    });
    Cow::Owned(format!("{path}?{}", parts.collect::<Vec<_>>().join("&")))
}

/// Removes tokens in the query of a request target from a key that was made of them.
///
/// Shape: `key` is that of a template with the parameter `parameter`, and `target` the target of
/// its request. A key whose token cannot be found is redacted as a whole.
pub(crate) fn redacted_key(key: &[u8], target: &str, parameter: &str) -> Vec<u8> {
    let (_, query) = target.split_once('?').unwrap_or_default();
    let token = query_value(query, parameter).filter(|token| !token.is_empty());
    let token = token.as_deref().unwrap_or_default().as_bytes();
    let mut written = Vec::new();
    let (mut rest, mut is_found) = (key, false);
    while let Some((first, behind)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(token).filter(|_| !token.is_empty()) {
            written.extend_from_slice(REDACTED);
            (rest, is_found) = (behind, true);
        } else {
            written.push(*first);
            rest = behind;
        }
    }
    if is_found { written } else { REDACTED.to_vec() }
}

const REDACTED: &[u8] = b"redacted";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_token_is_left_out() {
        for (target, written) in [
            ("/me/", "/me/"),
            ("/me/?since=a&wait=5", "/me/?since=a&wait=5"),
            ("/me/?token=s.e.c", "/me/?token=redacted"),
            ("/me/?a=1&token=s&b=2", "/me/?a=1&token=redacted&b=2"),
            ("/me/?token=s&token=t", "/me/?token=redacted&token=redacted"),
            ("/me/?%74oken=s", "/me/?%74oken=redacted"),
            ("/me/?token=s=t?u", "/me/?token=redacted"),
            ("/me/?token", "/me/?token"),
            ("/me/?tokens=s&Token=t", "/me/?tokens=s&Token=t"),
            ("/token=s", "/token=s"),
        ] {
            assert_eq!(redacted(target, Some("token")), written, "{target}");
        }
        assert_eq!(redacted("/me/?token=s", None), "/me/?token=s");
    }

    #[test]
    fn a_key_loses_the_tokens_that_it_was_made_of() {
        for (key, target, written) in [
            ("me:s.e.c", "/me/?token=s.e.c", "me:redacted"),
            (
                "s.e.c:me:s.e.c",
                "/me/?a=1&token=s.e.c",
                "redacted:me:redacted",
            ),
            ("me:s.e.c", "/me/?%74oken=s%2Ee.c", "me:redacted"),
            ("me:s.e.c", "/me/?token=other", "redacted"),
            ("me:s.e.c", "/me/?token=", "redacted"),
            ("me:s.e.c", "/me/", "redacted"),
        ] {
            let seen = redacted_key(key.as_bytes(), target, "token");
            assert_eq!(String::from_utf8_lossy(&seen), written, "{target}");
        }
    }

    proptest! {
        #[test]
        fn what_would_be_taken_for_the_token_is_never_there(query in "[ten%=&+?74o6b-]{0,40}") {
            let target = format!("/me/?{query}");
            let written = redacted(&target, Some("te"));
            let (_, query) = written.split_once('?').unwrap();
            let value = query_value(query, "te");
            prop_assert!(value.is_none_or(|value| value == "redacted" || value.is_empty()));
        }
    }
}
