//! Keys of requests, made from templates.

use crate::query::parameters;
use dwell_proto::http1::normal_path;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// A key made from path, query parameters, header fields, cookies, claims, names of certificates
/// and literal text.
///
/// Written as text with the parts in braces: `{path}`, `{uri}`, `{scheme}`, `{query.NAME}`,
/// `{header.NAME}`, `{cookie.NAME}`, `{claim.NAME}`, `{auth.NAME}`, `{tls.client.cn}`,
/// `{tls.client.san}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTemplate {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Path,
    Uri,
    Scheme,
    Query(String),
    Header(String),
    Cookie(String),
    Claim(String),
    Auth(String),
    Client(ClientPart),
}

/// A name in the certificate of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientPart {
    CommonName,
    AlternativeName,
}

/// Inputs of a key besides the target.
pub(crate) trait Requested<'h> {
    /// The first field of a name, in any case.
    fn header(&self, name: &str) -> Option<&'h [u8]>;

    /// The scheme that the client uses: `http` or `https`.
    fn scheme(&self) -> Option<&str> {
        None
    }

    /// A claim of the client's token.
    fn claim(&self, name: &str) -> Option<&str> {
        let _ = name;
        None
    }

    /// A field of the response by which the application has granted access.
    fn granted(&self, name: &str) -> Option<&[u8]> {
        let _ = name;
        None
    }

    /// A name in the client's certificate.
    fn client_name(&self, part: ClientPart) -> Option<&str> {
        let _ = part;
        None
    }
}

impl<'h, F: Fn(&str) -> Option<&'h [u8]>> Requested<'h> for F {
    fn header(&self, name: &str) -> Option<&'h [u8]> {
        self(name)
    }
}

impl KeyTemplate {
    /// The template `{path}`: the key is the request path with the query stripped.
    pub fn path() -> Self {
        Self {
            parts: vec![Part::Path],
        }
    }

    /// Returns true if the key is the path and nothing else.
    pub fn is_path(&self) -> bool {
        self.parts == [Part::Path]
    }

    /// Returns true if the key contains the path, so that different paths have different keys.
    pub fn takes_path(&self) -> bool {
        self.parts.contains(&Part::Path) || self.parts.contains(&Part::Uri)
    }

    /// Returns true if the key contains claims of a token.
    pub fn takes_claims(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Claim(_)))
    }

    /// Returns true if the key contains an identity: a cookie, a claim, or a field of the
    /// application's decision.
    ///
    /// Shape: a name in a certificate is none. It may be that of a device or a gateway, whose users
    /// are told apart by their cookies.
    pub(crate) fn is_of_identity(&self) -> bool {
        let is_it = |part: &Part| matches!(part, Part::Cookie(_) | Part::Claim(_) | Part::Auth(_));
        self.parts.iter().any(is_it)
    }

    /// Returns true if the key contains a name of the client's certificate.
    pub(crate) fn takes_client(&self) -> bool {
        self.client_parts().next().is_some()
    }

    /// Names of the client's certificate that the key contains.
    pub(crate) fn client_parts(&self) -> impl Iterator<Item = ClientPart> {
        self.parts.iter().filter_map(|part| match part {
            Part::Client(part) => Some(*part),
            _ => None,
        })
    }

    /// Returns true if a name of the client's certificate and another part stand side by side, so
    /// that several pairs of them make one key.
    pub(crate) fn has_client_without_separator(&self) -> bool {
        let is_client = |part: &Part| matches!(part, Part::Client(_));
        let is_literal = |part: &Part| matches!(part, Part::Literal(_));
        self.parts
            .windows(2)
            .any(|two| two.iter().any(is_client) && !two.iter().any(is_literal))
    }

    /// Returns true if a name of the client's certificate stands between two parts that clients
    /// choose: what they choose may then have the name of another client in it.
    pub(crate) fn has_client_between_chosen(&self) -> bool {
        let is_client = |part: &Part| matches!(part, Part::Client(_));
        let is_chosen =
            |part: &Part| !matches!(part, Part::Client(_) | Part::Literal(_) | Part::Scheme);
        let parts = &self.parts;
        parts.iter().enumerate().any(|(place, part)| {
            is_client(part)
                && parts[..place].iter().any(is_chosen)
                && parts[place..].iter().any(is_chosen)
        })
    }

    /// Returns true if the key contains this header field.
    pub(crate) fn takes_header(&self, name: &str) -> bool {
        let is_it = |part: &Part| matches!(part, Part::Header(of) if of.eq_ignore_ascii_case(name));
        self.parts.iter().any(is_it)
    }

    /// Returns true if the key contains this query parameter.
    pub(crate) fn takes_query(&self, name: &str) -> bool {
        let is_it = |part: &Part| matches!(part, Part::Query(of) if of == name);
        self.parts.iter().any(is_it)
    }

    /// Fields of the application's decision that the key contains.
    pub(crate) fn granted_names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Auth(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Makes the key of one request.
    ///
    /// Shape: `path` and `query` are the two sides of the target's first `?`. `requested` finds the
    /// other inputs; a function from a field's name to its value has only fields. The key is `path`
    /// itself for the template `{path}`. Otherwise it is written to `scratch`, which is cleared
    /// first. A key has 1 to 250 bytes, without spaces and control characters.
    ///
    /// # Errors
    /// [`KeyError`] if an input is missing, or memcached does not accept the key.
    pub(crate) fn render<'k, 'h>(
        &self,
        path: &'k str,
        query: Option<&str>,
        requested: &impl Requested<'h>,
        scratch: &'k mut Vec<u8>,
    ) -> Result<&'k [u8], KeyError> {
        if let [Part::Path] = self.parts.as_slice() {
            return check_key(path.as_bytes());
        }
        scratch.clear();
        for (place, part) in self.parts.iter().enumerate() {
            part.render(path, query, requested, scratch)?;
            if let Part::Client(client) = part {
                let name = requested.client_name(*client).unwrap_or_default();
                self.check_separators(place, name)?;
            }
        }
        check_key(scratch)
    }

    /// Checks that a name of a certificate, the part at `place`, does not have the character that
    /// parts it from another part: so no two names with other values make the same key.
    fn check_separators(&self, place: usize, name: &str) -> Result<(), KeyError> {
        let text = |place: Option<usize>| match self.parts.get(place?) {
            Some(Part::Literal(text)) => Some(text),
            _ => None,
        };
        let before = text(place.checked_sub(1)).filter(|_| place > 1);
        let behind = text(Some(place + 1)).filter(|_| place + 2 < self.parts.len());
        let before = before.and_then(|text| text.chars().next_back());
        let behind = behind.and_then(|text| text.chars().next());
        match before
            .into_iter()
            .chain(behind)
            .find(|one| name.contains(*one))
        {
            Some(separator) => Err(KeyError::Separator(separator)),
            None => Ok(()),
        }
    }
}

impl KeyTemplate {
    /// The parts for which a request has no value, as written in the template.
    pub(crate) fn lacking<'h>(
        &self,
        path: &str,
        query: Option<&str>,
        requested: &impl Requested<'h>,
    ) -> Vec<String> {
        let lacks = |part: &&Part| {
            let mut scratch = Vec::new();
            part.render(path, query, requested, &mut scratch).is_err()
        };
        let alone = |part: &Part| {
            let parts = vec![part.clone()];
            Self { parts }.to_string()
        };
        self.parts.iter().filter(lacks).map(alone).collect()
    }
}

impl Part {
    fn render<'h>(
        &self,
        path: &str,
        query: Option<&str>,
        requested: &impl Requested<'h>,
        key: &mut Vec<u8>,
    ) -> Result<(), KeyError> {
        match self {
            Self::Literal(text) => key.extend_from_slice(text.as_bytes()),
            Self::Path => key.extend_from_slice(path.as_bytes()),
            Self::Uri => {
                let path = normal_path(path).map_err(|_| KeyError::Path)?;
                for byte in path {
                    push_escaped(key, byte);
                }
            }
            Self::Scheme => {
                let scheme = requested.scheme().ok_or(KeyError::Missing)?;
                key.extend_from_slice(scheme.as_bytes());
            }
            Self::Query(name) => {
                let value = query.and_then(|query| query_value(query, name));
                key.extend_from_slice(value.ok_or(KeyError::Missing)?.as_bytes());
            }
            Self::Header(name) => {
                key.extend_from_slice(requested.header(name).ok_or(KeyError::Missing)?);
            }
            Self::Cookie(name) => {
                let cookies = requested.header("cookie");
                let value = cookies.and_then(|field| cookie_value(field, name));
                key.extend_from_slice(value.ok_or(KeyError::Missing)?);
            }
            Self::Claim(name) => {
                let value = requested.claim(name).ok_or(KeyError::Missing)?;
                key.extend_from_slice(value.as_bytes());
            }
            Self::Auth(name) => {
                key.extend_from_slice(requested.granted(name).ok_or(KeyError::Missing)?);
            }
            Self::Client(part) => {
                let name = requested.client_name(*part).ok_or(KeyError::Missing)?;
                key.extend_from_slice(name.as_bytes());
            }
        }
        Ok(())
    }
}

impl FromStr for KeyTemplate {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            push_literal(&mut parts, &rest[..open]);
            let inside = rest[open..]
                .strip_prefix('{')
                .ok_or(TemplateError::Unopened)?;
            let close = inside.find('}').ok_or(TemplateError::Unclosed)?;
            parts.push(part(&inside[..close])?);
            rest = &inside[close + 1..];
        }
        push_literal(&mut parts, rest);
        if parts.iter().all(|part| matches!(part, Part::Literal(_))) {
            return Err(TemplateError::NoPart);
        }
        match parts.iter().find_map(forbidden_literal) {
            Some(character) => Err(TemplateError::Literal(character)),
            None => Ok(Self { parts }),
        }
    }
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Literal(text) => f.write_str(text)?,
                Part::Path => f.write_str("{path}")?,
                Part::Uri => f.write_str("{uri}")?,
                Part::Scheme => f.write_str("{scheme}")?,
                Part::Query(name) => write!(f, "{{query.{name}}}")?,
                Part::Header(name) => write!(f, "{{header.{name}}}")?,
                Part::Cookie(name) => write!(f, "{{cookie.{name}}}")?,
                Part::Claim(name) => write!(f, "{{claim.{name}}}")?,
                Part::Auth(name) => write!(f, "{{auth.{name}}}")?,
                Part::Client(ClientPart::CommonName) => f.write_str("{tls.client.cn}")?,
                Part::Client(ClientPart::AlternativeName) => f.write_str("{tls.client.san}")?,
            }
        }
        Ok(())
    }
}

/// Reason why a text is not a key template.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateError {
    /// A `{` has no `}`.
    Unclosed,
    /// A `}` has no `{`.
    Unopened,
    /// The name in braces is unknown.
    Part(String),
    /// A part of `query`, `header` or `cookie` has no name, or an impossible one.
    Name(String),
    /// The template has no part, so all requests would share one key.
    NoPart,
    /// The literal text has a character that no key can have.
    Literal(char),
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclosed => f.write_str("a `{` has no `}`"),
            Self::Unopened => f.write_str("a `}` has no `{`"),
            Self::Part(part) => write!(f, "unknown part of a request: `{part}`"),
            Self::Name(part) => write!(f, "not a name a request can have: `{part}`"),
            Self::NoPart => f.write_str("the key uses nothing of the request"),
            Self::Literal(character) => write!(f, "a key cannot have the character {character:?}"),
        }
    }
}

impl std::error::Error for TemplateError {}

/// Reason why a request has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The request has no value for an input, or all values are empty.
    Missing,
    /// The key has more than 250 bytes.
    TooLong(usize),
    /// The key has a space or a control character.
    Forbidden(u8),
    /// The path cannot be decoded, or leads above its root.
    Path,
    /// A name in the client's certificate has the character that parts it from the rest of the key.
    Separator(char),
}

impl KeyError {
    /// The status of the response: 414 for a key that is too long, otherwise 400.
    pub fn status(self) -> u16 {
        match self {
            Self::TooLong(_) => 414,
            Self::Missing | Self::Forbidden(_) | Self::Path | Self::Separator(_) => 400,
        }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the request lacks a value its key is made of"),
            Self::TooLong(bytes) => write!(f, "key exceeds {KEY_BYTES_MAX} bytes: {bytes}"),
            Self::Forbidden(byte) => write!(f, "key has the byte 0x{byte:02x}"),
            Self::Separator(separator) => {
                write!(f, "the name in the client certificate has a {separator:?}")
            }
            Self::Path => f.write_str("the path cannot be decoded or leads above its root"),
        }
    }
}

impl std::error::Error for KeyError {}

fn push_literal(parts: &mut Vec<Part>, text: &str) {
    if !text.is_empty() {
        parts.push(Part::Literal(text.to_owned()));
    }
}

fn part(text: &str) -> Result<Part, TemplateError> {
    match text {
        "path" => return Ok(Part::Path),
        "uri" => return Ok(Part::Uri),
        "scheme" => return Ok(Part::Scheme),
        "tls.client.cn" => return Ok(Part::Client(ClientPart::CommonName)),
        "tls.client.san" => return Ok(Part::Client(ClientPart::AlternativeName)),
        _ => {}
    }
    let (kind, name) = text
        .split_once('.')
        .ok_or_else(|| TemplateError::Part(text.to_owned()))?;
    let make = match kind {
        "query" => Part::Query,
        "header" => Part::Header,
        "cookie" => Part::Cookie,
        "claim" => Part::Claim,
        "auth" => Part::Auth,
        _ => return Err(TemplateError::Part(text.to_owned())),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~[]".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(TemplateError::Name(text.to_owned()));
    }
    Ok(make(name.to_owned()))
}

/// Appends a byte as nginx does in `$memcached_key`: bytes that no key can have, and `%`, as `%XX`.
fn push_escaped(key: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if byte > b' ' && byte != b'%' && byte != 0x7f {
        return key.push(byte);
    }
    let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
    key.extend_from_slice(&[b'%', DIGITS[high], DIGITS[low]]);
}

fn forbidden_literal(part: &Part) -> Option<char> {
    let Part::Literal(text) = part else {
        return None;
    };
    text.chars().find(|c| c.is_ascii_control() || *c == ' ')
}

/// Checks that memcached accepts the key.
///
/// Source: memcached `doc/protocol.txt`, "Keys".
pub(crate) fn check_key(key: &[u8]) -> Result<&[u8], KeyError> {
    if key.is_empty() {
        return Err(KeyError::Missing);
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(KeyError::TooLong(key.len()));
    }
    match key
        .iter()
        .find(|byte| byte.is_ascii_control() || **byte == b' ')
    {
        Some(byte) => Err(KeyError::Forbidden(*byte)),
        None => Ok(key),
    }
}

/// The first value of `name`, percent-decoded.
pub(crate) fn query_value<'q>(query: &'q str, name: &str) -> Option<Cow<'q, str>> {
    parameters(query)
        .find(|(candidate, _)| candidate == name)
        .map(|(_, value)| value)
}

/// The first value of `name` in a `Cookie` field. Source: RFC 6265 section 4.2.
pub(crate) fn cookie_value<'h>(field: &'h [u8], name: &str) -> Option<&'h [u8]> {
    field.split(|byte| *byte == b';').find_map(|pair| {
        let pair = pair.trim_ascii();
        pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
    })
}

const KEY_BYTES_MAX: usize = 250;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn template(text: &str) -> KeyTemplate {
        text.parse().expect("the template is right")
    }

    /// Renders against `GET /poll/a?user=x%20y&user=z&empty= HTTP/1.1` with two fields.
    fn key(text: &str) -> Result<String, KeyError> {
        let header = |name: &str| match name.to_ascii_lowercase().as_str() {
            "cookie" => Some(&b"a=1; id=\"7\"; id=8;id2=9"[..]),
            "x-user" => Some(&b"bob"[..]),
            "x-space" => Some(&b"b b"[..]),
            _ => None,
        };
        let query = Some("user=x%2By&user=z&empty=&space=x+y");
        let mut scratch = b"left over".to_vec();
        let key = template(text).render("/poll/a", query, &header, &mut scratch)?;
        Ok(String::from_utf8(key.to_vec()).expect("the parts are text"))
    }

    #[test]
    fn each_part_is_found() {
        assert_eq!(key("{path}").as_deref(), Ok("/poll/a"));
        assert_eq!(key("{query.user}").as_deref(), Ok("x+y"));
        assert_eq!(
            key("u:{header.X-User}/{cookie.id2}").as_deref(),
            Ok("u:bob/9")
        );
        assert_eq!(key("{cookie.id}").as_deref(), Ok("\"7\""));
        assert_eq!(key("{path}{query.empty}").as_deref(), Ok("/poll/a"));
    }

    #[test]
    fn the_scheme_is_asked_for() {
        struct Secure;
        impl Requested<'_> for Secure {
            fn header(&self, _: &str) -> Option<&'static [u8]> {
                None
            }

            fn scheme(&self) -> Option<&str> {
                Some("https")
            }
        }
        let (by_scheme, mut scratch) = (template("{scheme}:{path}"), Vec::new());
        let key = by_scheme.render("/poll/a", None, &Secure, &mut scratch);
        assert_eq!(key, Ok(&b"https:/poll/a"[..]));
        assert!(by_scheme.takes_path() && !by_scheme.is_path());
        assert_eq!(by_scheme.to_string(), "{scheme}:{path}");
    }

    /// A client of this common name and alternative name.
    struct Certified(&'static str, Option<&'static str>);

    impl Requested<'_> for Certified {
        fn header(&self, _: &str) -> Option<&'static [u8]> {
            None
        }

        fn client_name(&self, part: ClientPart) -> Option<&str> {
            match part {
                ClientPart::CommonName => Some(self.0),
                ClientPart::AlternativeName => self.1,
            }
        }
    }

    #[test]
    fn a_name_of_a_certificate_makes_no_key_of_another_one() {
        let key = |text: &str, client: Certified| {
            let mut scratch = Vec::new();
            let key = template(text).render("/p", Some("q=x:b"), &client, &mut scratch);
            key.map(|key| String::from_utf8_lossy(key).into_owned())
        };
        let cn = |text: &str, name| key(text, Certified(name, None));
        assert_eq!(cn("in:{tls.client.cn}", "a:b").as_deref(), Ok("in:a:b"));
        assert_eq!(cn("{tls.client.cn}:in", "a:b").as_deref(), Ok("a:b:in"));
        assert_eq!(
            cn("in:{tls.client.cn}:{query.q}", "a").as_deref(),
            Ok("in:a:x:b")
        );
        for text in ["in:{tls.client.cn}:{query.q}", "{query.q}:{tls.client.cn}"] {
            assert_eq!(cn(text, "a:x"), Err(KeyError::Separator(':')), "{text}");
        }
        assert_eq!(cn("{tls.client.cn}", "a b"), Err(KeyError::Forbidden(b' ')));
        assert_eq!(cn("{tls.client.cn}", "a\0"), Err(KeyError::Forbidden(0)));
        assert_eq!(cn("{tls.client.san}", "a"), Err(KeyError::Missing));
        let both = key(
            "{tls.client.cn}|{tls.client.san}",
            Certified("a", Some("b:c")),
        );
        assert_eq!(both.as_deref(), Ok("a|b:c"));
    }

    #[test]
    fn a_name_of_a_certificate_stands_apart_and_is_no_user() {
        let by_name = template("in:{tls.client.cn}/{tls.client.san}");
        assert!(by_name.takes_client() && !by_name.is_of_identity());
        assert_eq!(by_name.to_string(), "in:{tls.client.cn}/{tls.client.san}");
        assert!(!by_name.has_client_without_separator());
        for text in ["{tls.client.cn}{path}", "{path}{tls.client.san}"] {
            assert!(template(text).has_client_without_separator(), "{text}");
        }
        assert!(!template("{path}{query.a}:{tls.client.cn}").has_client_without_separator());
        for text in [
            "{query.a}:{tls.client.cn}:{query.b}",
            "{path}|{tls.client.san}|{tls.client.cn}|{uri}",
        ] {
            assert!(template(text).has_client_between_chosen(), "{text}");
        }
        for text in [
            "{scheme}:{tls.client.cn}:{query.b}",
            "{tls.client.cn}:{path}:{tls.client.san}",
            "in:{query.a}:{tls.client.cn}",
        ] {
            assert!(!template(text).has_client_between_chosen(), "{text}");
        }
        let unknown = "{tls.client.ou}".parse::<KeyTemplate>();
        assert_eq!(
            unknown,
            Err(TemplateError::Part("tls.client.ou".to_owned()))
        );
    }

    #[test]
    fn the_uri_is_what_nginx_has_for_a_key() {
        let key = |path: &str| {
            let mut scratch = Vec::new();
            let key = template("{uri}").render(path, None, &|_: &str| None, &mut scratch);
            key.map(|key| String::from_utf8_lossy(key).into_owned())
        };
        for (path, expected) in [
            ("/Poll/alice", "/Poll/alice"),
            ("/Poll/a%20b", "/Poll/a%20b"),
            ("/Poll/%E4%BD%A0", "/Poll/\u{4f60}"),
            ("/Poll//a/b", "/Poll/a/b"),
            ("/Poll/c%2Cd", "/Poll/c,d"),
            ("/Poll/x/../alice", "/Poll/alice"),
            ("/Poll/%0d%0aflush_all", "/Poll/%0D%0Aflush_all"),
            ("/Poll/100%25", "/Poll/100%25"),
            ("/Poll/%7f", "/Poll/%7F"),
        ] {
            assert_eq!(key(path).as_deref(), Ok(expected), "{path}");
        }
        for path in ["/%", "/%zz", "/a/../../b", "/%00"] {
            assert_eq!(key(path), Err(KeyError::Path), "{path}");
        }
        assert!(template("{uri}").takes_path() && !template("{uri}").is_path());
        assert_eq!(template("a:{uri}").to_string(), "a:{uri}");
    }

    #[test]
    fn a_request_without_the_value_has_no_key() {
        for text in [
            "{query.none}",
            "{header.none}",
            "{cookie.none}",
            "{query.empty}",
        ] {
            assert_eq!(key(text), Err(KeyError::Missing), "{text}");
        }
        let no_query = template("{query.user}")
            .render("/", None, &|_: &str| None, &mut Vec::new())
            .err();
        assert_eq!(no_query, Some(KeyError::Missing));
    }

    #[test]
    fn no_value_makes_a_key_memcached_would_read_as_two() {
        assert_eq!(key("{query.space}"), Err(KeyError::Forbidden(b' ')));
        assert_eq!(key("{header.x-space}"), Err(KeyError::Forbidden(b' ')));
        let split = template("{query.a}")
            .render(
                "/",
                Some("a=x%0D%0Aflush_all"),
                &|_: &str| None,
                &mut Vec::new(),
            )
            .err();
        assert_eq!(split, Some(KeyError::Forbidden(b'\r')));
        assert_eq!(KeyError::Forbidden(b' ').status(), 400);
    }

    #[test]
    fn a_key_has_at_most_250_bytes() {
        let long = "/".repeat(251);
        let render = |path| {
            KeyTemplate::path()
                .render(path, None, &|_: &str| None, &mut Vec::new())
                .err()
        };
        assert_eq!(render(&long[..250]), None);
        assert_eq!(render(&long), Some(KeyError::TooLong(251)));
        assert_eq!(KeyError::TooLong(251).status(), 414);
        assert_eq!(
            KeyError::TooLong(251).to_string(),
            "key exceeds 250 bytes: 251"
        );
    }

    #[test]
    fn wrong_templates_are_refused() {
        let error = |text: &str| text.parse::<KeyTemplate>().err();
        assert_eq!(error("{path"), Some(TemplateError::Unclosed));
        assert_eq!(error("path}"), Some(TemplateError::Unopened));
        assert_eq!(error("{}"), Some(TemplateError::Part(String::new())));
        assert_eq!(
            error("{body}"),
            Some(TemplateError::Part("body".to_owned()))
        );
        assert_eq!(
            error("{body.x}"),
            Some(TemplateError::Part("body.x".to_owned()))
        );
        assert_eq!(
            error("{query.}"),
            Some(TemplateError::Name("query.".to_owned()))
        );
        assert_eq!(
            error("{cookie.a b}"),
            Some(TemplateError::Name("cookie.a b".to_owned()))
        );
        assert_eq!(error("all"), Some(TemplateError::NoPart));
        assert_eq!(error(""), Some(TemplateError::NoPart));
        assert_eq!(error("a {path}"), Some(TemplateError::Literal(' ')));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(
            text in "([a-z:/]{0,3}(\\{path\\}|\\{query\\.[a-z]{1,4}\\})){1,4}",
        ) {
            prop_assert_eq!(template(&text).to_string(), text);
        }

        #[test]
        fn no_text_panics(text in ".*", path in ".*", query in ".*", field in ".*") {
            if let Ok(template) = text.parse::<KeyTemplate>() {
                let header = |_: &str| Some(field.as_bytes());
                let _ = template.render(&path, Some(&query), &header, &mut Vec::new());
            }
        }

        #[test]
        fn every_key_is_one_word_of_a_command(
            query in "[a%0-9A-F=&+ -~]{0,20}",
            field in ".{0,9}",
        ) {
            let header = |_: &str| Some(field.as_bytes());
            let mut scratch = Vec::new();
            let template = template("{query.a}{header.b}");
            let key = template.render("/", Some(&query), &header, &mut scratch);
            let breaks = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
            let is_one_word = key.map_or(true, |key| !key.is_empty() && !key.iter().any(breaks));
            prop_assert!(is_one_word);
        }
    }
}
