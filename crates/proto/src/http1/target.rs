//! Request targets and hosts.

use memchr::memchr;

use super::error::HeadError;
use super::words;

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
        // To know that there is no query is cheaper than to look for where it begins.
        let has_query = words::contains(target.as_bytes(), |word| words::equal(word, b'?', 0));
        let question_mark = has_query.then(|| memchr(b'?', target.as_bytes())).flatten();
        let (path, query) = match question_mark {
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

/// Takes a path with or without a query apart, or `*` of `OPTIONS`; `None` for anything else.
pub(crate) fn parse_path<'b>(method: &str, target: &'b str) -> Option<(&'b str, Option<&'b str>)> {
    let parts = parse_target(method, target).ok()?;
    (parts.authority.is_none()).then_some((parts.path, parts.query))
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
    if !is_host(authority.as_bytes()) {
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

/// Returns true if every byte may stand in a target.
///
/// Bytes that browsers and tools send unescaped though RFC 3986 has no place for them (such as `|`
/// and brackets) are let through: they separate nothing. Space, quotes, angle brackets, `#`,
/// controls and everything beyond ASCII are not.
fn is_clean(target: &[u8]) -> bool {
    !words::contains(target, |word| {
        words::below(word, b' ' + 1)
            | words::beyond_ascii(word)
            | words::equal(word, 0x7f, 0)
            | words::equal(word, b'"', b'"' ^ b'#')
            | words::equal(word, b'<', b'<' ^ b'>')
    })
}

/// True of a host with an optional port. The host of an `http` URI is never empty, so neither is
/// this one, whatever is behind it.
///
/// Source: RFC 9110 sections 4.2.1 and 7.2; RFC 9112 section 3.2; RFC 3986 section 3.2.2.
pub(crate) fn is_host(text: &[u8]) -> bool {
    if let [b'[', rest @ ..] = text {
        let Some(end) = rest.iter().position(|byte| *byte == b']') else {
            return false;
        };
        let (literal, port) = (&rest[..end], &rest[end + 1..]);
        let is_literal = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
        return !literal.is_empty() && literal.iter().all(is_literal) && is_port(port);
    }
    // A colon that begins a port is one of the last bytes.
    let (name, port) = match text.iter().rposition(|byte| *byte == b':') {
        Some(colon) => text.split_at(colon),
        None => (text, &[][..]),
    };
    // No early exit: hosts are short and clean.
    let is_name = name
        .iter()
        .fold(true, |clean, byte| clean & HOST_BYTES[usize::from(*byte)]);
    (is_name || is_coded_name(name)) && !name.is_empty() && is_port(port)
}

/// Returns true if each byte may stand in the name of a host, or is coded as `%` and two digits.
fn is_coded_name(name: &[u8]) -> bool {
    let mut rest = name;
    while let [first, behind @ ..] = rest {
        rest = match behind {
            [high, low, behind @ ..]
                if *first == b'%' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                behind
            }
            _ if HOST_BYTES[usize::from(*first)] => behind,
            _ => return false,
        };
    }
    true
}

/// Returns true if the text is empty, or a colon with at most five digits.
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
    let others = b"-._~!$&'()*+,;=";
    let mut index = 0;
    while index < others.len() {
        table[others[index] as usize] = true;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::is_host;

    #[test]
    fn a_coded_byte_of_a_host_has_two_digits() {
        let taken = [
            "a",
            "a.b:80",
            "%41",
            "a%2fb",
            "%C3%BC.test:8",
            "a!$&'()*+,;=-._~",
        ];
        for host in taken {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        let refused = [
            "%", "%4", "a%", "a%:80", "%g1", "%1g", "%%41", "a%2", "%41%", "",
        ];
        for host in refused {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
