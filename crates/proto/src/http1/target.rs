//! Request targets and hosts.

use memchr::memchr;

use super::error::HeadError;

/// A request target taken apart.
pub(super) struct Target<'b> {
    pub(super) authority: Option<&'b str>,
    pub(super) path: &'b str,
    pub(super) query: Option<&'b str>,
}

/// Takes a request target apart.
///
/// Source: RFC 9112 section 3.2; RFC 9110 section 4.2.4 for user information in a target.
#[inline]
pub(super) fn parse_target<'b>(method: &str, target: &'b str) -> Result<Target<'b>, HeadError> {
    if !is_clean(target.as_bytes()) {
        return Err(HeadError::RequestLine);
    }
    if target.starts_with('/') {
        let (path, query) = match memchr(b'?', target.as_bytes()) {
            Some(at) => (&target[..at], Some(&target[at + 1..])),
            None => (target, None),
        };
        return Ok(Target {
            authority: None,
            path,
            query,
        });
    }
    parse_unusual(method, target)
}

/// The forms other than a path: a whole URI, and `*` of `OPTIONS`.
#[cold]
fn parse_unusual<'b>(method: &str, target: &'b str) -> Result<Target<'b>, HeadError> {
    if target == "*" && method == "OPTIONS" {
        return Ok(Target {
            authority: None,
            path: "*",
            query: None,
        });
    }
    let rest = strip_scheme(target).ok_or(HeadError::Target)?;
    let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(authority_end);
    if authority.is_empty() || !is_host(authority.as_bytes()) {
        return Err(HeadError::HostInvalid);
    }
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    let path = if path.is_empty() { "/" } else { path };
    Ok(Target {
        authority: Some(authority),
        path,
        query,
    })
}

fn strip_scheme(target: &str) -> Option<&str> {
    let (scheme, rest) = target.split_once("://")?;
    let known = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    known.then_some(rest)
}

/// Whether every byte may stand in a target.
///
/// What browsers and tools send unescaped though RFC 3986 has no place for it (such as `|` and
/// brackets) is let through: it parts nothing. Space, quotes, angle brackets, `#`, controls and
/// everything beyond ASCII are not. No early exit, so that the compiler can take many bytes at
/// a time.
fn is_clean(target: &[u8]) -> bool {
    let refused = |byte| byte <= b' ' || byte >= 0x7f || matches!(byte, b'"' | b'#' | b'<' | b'>');
    !target
        .iter()
        .fold(false, |found, byte| found | refused(*byte))
}

/// Whether the text is a host with an optional port, or nothing at all.
///
/// Source: RFC 9110 section 7.2; RFC 3986 section 3.2.2.
pub(super) fn is_host(text: &[u8]) -> bool {
    if let [b'[', rest @ ..] = text {
        let Some(end) = rest.iter().position(|byte| *byte == b']') else {
            return false;
        };
        let (literal, port) = (&rest[..end], &rest[end + 1..]);
        let is_literal = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
        return !literal.is_empty() && literal.iter().all(is_literal) && is_port(port);
    }
    for (index, byte) in text.iter().enumerate() {
        if !HOST_BYTES[usize::from(*byte)] {
            return is_port(&text[index..]);
        }
    }
    true
}

/// Whether the text is nothing, or a colon with at most five digits.
fn is_port(text: &[u8]) -> bool {
    match text {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

static HOST_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 0x7f {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"-._~%!$&'()*+,;=";
    let mut index = 0;
    while index < others.len() {
        table[others[index] as usize] = true;
        index += 1;
    }
    table
};
