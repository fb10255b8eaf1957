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

    /// The beginning that is the same in all keys of a route, as far as that is known.
    pub(crate) fn beginning(&self, route_prefix: &str) -> String {
        let mut beginning = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => beginning.push_str(text),
                Part::Path => return beginning + route_prefix,
                // Dot segments may lead out of the route.
                Part::Uri => return beginning + "/",
                _ => return beginning,
            }
        }
        beginning
    }

    /// A key of a route, with `word` in the place of all that requests bring.
    pub(crate) fn sample(&self, route_prefix: &str, word: &str) -> String {
        let mut sample = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => sample.push_str(text),
                Part::Path | Part::Uri => sample.extend([route_prefix, word]),
                Part::Scheme => sample.push_str("https"),
                _ => sample.push_str(word),
            }
        }
        sample
    }

    /// Returns true if clients choose all that makes one key of a route differ from another.
    pub(crate) fn is_of_choice(&self) -> bool {
        let is_given =
            |part: &Part| matches!(part, Part::Claim(_) | Part::Auth(_) | Part::Client(_));
        !self.parts.iter().any(is_given)
    }

    /// Returns true if the key contains claims of a token.
    pub fn takes_claims(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Claim(_)))
    }

    /// Returns true if the key contains an identity: a cookie, a claim, or a field of the
    /// application's decision.
    ///
    /// Shape: a name in a certificate does not count. It may be that of a device or a gateway,
    /// whose users are told apart by their cookies.
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
    /// parts it from another part. So no two names make the same key, unless one stands
    /// [between chosen parts](Self::has_client_between_chosen), which no configuration has.
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
mod tests;
