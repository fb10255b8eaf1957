//! Requests and trailers: which field lines make one.

use super::hpack::FieldSection;
use crate::http1::{
    FieldStorage, Fields, is_field_value, is_host, is_token, parse_path, plain_decimal,
};
use std::fmt;

/// The head of a request that obeys every rule.
///
/// Shape: borrows the section.
///
/// Source: RFC 9113 sections 8.2 and 8.3; RFC 8441 section 4.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'f, 'b> {
    /// The method, in the sender's case. It is `CONNECT` only with a protocol.
    pub method: &'b str,
    /// The scheme, in the sender's case.
    pub scheme: &'b str,
    /// The request target: a path with or without a query, or `*` of `OPTIONS`.
    pub target: &'b str,
    /// The part of the target before its first `?`.
    pub path: &'b str,
    /// The part of the target after its first `?`.
    pub query: Option<&'b str>,
    /// The host and port that the request is for. ASCII, never empty.
    pub host: &'b [u8],
    /// The protocol of an extended CONNECT request, such as `websocket`.
    pub protocol: Option<&'b str>,
    /// The field lines, without pseudo-header fields.
    pub fields: Fields<'f, 'b>,
    /// Units: bytes of the body, if the sender has said.
    pub content_length: Option<u64>,
}

/// Reasons why a field section is no request, or no trailers.
///
/// Shape: one with a [`status`](MessageError::status) is answered by it; all others are malformed
/// and end the stream with `PROTOCOL_ERROR`.
///
/// Source: RFC 9113 section 8.1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageError {
    /// The section is larger than allowed, or has more lines.
    TooLarge {
        /// The most bytes allowed, with 32 for each line.
        limit: usize,
        /// The most lines allowed.
        lines: usize,
    },
    /// The request target is longer than allowed.
    TargetTooLong {
        /// The most bytes allowed.
        limit: usize,
        /// The bytes there were.
        length: usize,
    },
    /// A CONNECT request without a protocol: tunnels are not supported.
    Connect,
    /// A field name is no token in lower case.
    FieldName,
    /// A field value has a control byte, or whitespace at an end.
    FieldValue,
    /// A field belongs to one connection of HTTP/1.1.
    ConnectionField,
    /// `te` says more than `trailers`.
    Te,
    /// A pseudo-header field is unknown, or does not belong here.
    Pseudo,
    /// A pseudo-header field comes twice.
    PseudoRepeated,
    /// A pseudo-header field comes behind a field.
    PseudoLate,
    /// `:method`, `:scheme` or `:path` is missing.
    PseudoMissing,
    /// The method is no token.
    Method,
    /// The scheme is neither `http` nor `https`.
    Scheme,
    /// `:path` is in a form that this method may not use.
    Target,
    /// Neither `:authority` nor `host` says whom the request is for.
    HostMissing,
    /// There are several hosts, and they differ.
    HostRepeated,
    /// `:authority` or `host` is not a host with an optional port.
    HostInvalid,
    /// `content-length` is not a plain decimal number, comes twice, or follows the body.
    LengthInvalid,
}

impl MessageError {
    /// The status that answers the request, if it is well formed.
    pub fn status(self) -> Option<u16> {
        match self {
            Self::TooLarge { .. } => Some(431),
            Self::TargetTooLong { .. } => Some(414),
            Self::Connect => Some(501),
            _ => None,
        }
    }
}

impl fmt::Display for MessageError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::TooLarge { limit, lines } => {
                return write!(out, "field section exceeds {limit} bytes or {lines} lines");
            }
            Self::TargetTooLong { limit, length } => {
                return write!(out, "request target exceeds {limit} bytes: {length}");
            }
            Self::Connect => "method CONNECT is not supported",
            Self::FieldName => "malformed field name",
            Self::FieldValue => "malformed field value",
            Self::ConnectionField => "field of a connection of http/1.1",
            Self::Te => "te other than trailers",
            Self::Pseudo => "unknown pseudo-header field",
            Self::PseudoRepeated => "repeated pseudo-header field",
            Self::PseudoLate => "pseudo-header field behind a field",
            Self::PseudoMissing => "missing pseudo-header field",
            Self::Method => "malformed method",
            Self::Scheme => "scheme other than http and https",
            Self::Target => "request target in a form this method may not use",
            Self::HostMissing => "missing host",
            Self::HostRepeated => "hosts that differ",
            Self::HostInvalid => "malformed host",
            Self::LengthInvalid => "malformed content-length",
        };
        out.write_str(text)
    }
}

impl std::error::Error for MessageError {}

/// Reads a field section as the head of a request.
///
/// Shape: `storage` has the field lines. The target has at most `target_bytes_max` bytes.
///
/// # Errors
/// [`MessageError`].
///
/// ```
/// use dwell_proto::http1::FieldStorage;
/// use dwell_proto::http2::{FieldSection, HpackDecoder, SectionLimits, encode_field, request_head};
///
/// let mut block = Vec::new();
/// let lines = [(":method", "GET"), (":scheme", "http"), (":path", "/poll/alice?wait=25")];
/// for (name, value) in lines.into_iter().chain([(":authority", "localhost"), ("cookie", "a=b")]) {
///     encode_field(name.as_bytes(), value.as_bytes(), &mut block);
/// }
/// let mut section = FieldSection::new(SectionLimits::default());
/// HpackDecoder::new(0).decode(&block, true, &mut section)?;
/// let mut storage = FieldStorage::new();
/// let head = request_head(&section, &mut storage, 8_192)?;
/// assert_eq!((head.method, head.path, head.query), ("GET", "/poll/alice", Some("wait=25")));
/// assert_eq!((head.host, head.fields.find("cookie")), (&b"localhost"[..], Some(&b"a=b"[..])));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: RFC 9113 sections 8.2 and 8.3; RFC 8441 section 4.
pub fn request_head<'f, 'b>(
    section: &'b FieldSection,
    storage: &'f mut FieldStorage<'b>,
    target_bytes_max: usize,
) -> Result<RequestHead<'f, 'b>, MessageError> {
    check_size(section)?;
    let mut pseudo = PseudoFields::default();
    let mut own = OwnFields::default();
    let mut lines = storage.apart();
    for (name, value) in section.lines() {
        if name.first() == Some(&b':') {
            if !lines.is_empty() {
                return Err(MessageError::PseudoLate);
            }
            pseudo.visit(name, value)?;
            continue;
        }
        let name = check_field(name, value)?;
        own.visit(name, value)?;
        lines.push(name, value);
    }
    let method = pseudo.method.ok_or(MessageError::PseudoMissing)?;
    if method == "CONNECT" && pseudo.protocol.is_none() {
        return Err(MessageError::Connect);
    }
    if method != "CONNECT" && pseudo.protocol.is_some() {
        return Err(MessageError::Pseudo);
    }
    let scheme = pseudo.scheme.ok_or(MessageError::PseudoMissing)?;
    let target = pseudo.path.ok_or(MessageError::PseudoMissing)?;
    let (limit, length) = (target_bytes_max, target.len());
    if length > limit {
        return Err(MessageError::TargetTooLong { limit, length });
    }
    let (path, query) = parse_path(method, target).ok_or(MessageError::Target)?;
    Ok(RequestHead {
        method,
        scheme,
        target,
        path,
        query,
        host: own.host(pseudo.authority)?,
        protocol: pseudo.protocol,
        fields: lines.fields(),
        content_length: own.content_length,
    })
}

/// Checks a field section that follows a body: that it is well formed and tells no length. It does
/// not check which other fields it has.
///
/// # Errors
/// [`MessageError`].
///
/// Source: RFC 9113 section 8.1.
pub fn check_trailers(section: &FieldSection) -> Result<(), MessageError> {
    check_size(section)?;
    for (name, value) in section.lines() {
        if name.first() == Some(&b':') {
            return Err(MessageError::Pseudo);
        }
        if check_field(name, value)? == "content-length" {
            return Err(MessageError::LengthInvalid);
        }
    }
    Ok(())
}

fn check_size(section: &FieldSection) -> Result<(), MessageError> {
    let limits = section.limits();
    if section.is_too_large() {
        Err(MessageError::TooLarge {
            limit: limits.section_bytes_max,
            lines: limits.field_count_max,
        })
    } else {
        Ok(())
    }
}

/// Checks a field line that may stand in any section, and returns its name.
///
/// Source: RFC 9113 sections 8.2.1 and 8.2.2.
fn check_field<'b>(name: &'b [u8], value: &[u8]) -> Result<&'b str, MessageError> {
    let is_name = is_token(name) && !name.iter().any(u8::is_ascii_uppercase);
    let name = std::str::from_utf8(name).ok().filter(|_| is_name);
    let name = name.ok_or(MessageError::FieldName)?;
    if !is_field_value(value) {
        return Err(MessageError::FieldValue);
    }
    match name {
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" => {
            Err(MessageError::ConnectionField)
        }
        "te" if !value.eq_ignore_ascii_case(b"trailers") => Err(MessageError::Te),
        name => Ok(name),
    }
}

/// The pseudo-header fields of a request.
#[derive(Default)]
struct PseudoFields<'b> {
    method: Option<&'b str>,
    scheme: Option<&'b str>,
    authority: Option<&'b [u8]>,
    path: Option<&'b str>,
    protocol: Option<&'b str>,
}

impl<'b> PseudoFields<'b> {
    fn visit(&mut self, name: &[u8], value: &'b [u8]) -> Result<(), MessageError> {
        let text = std::str::from_utf8(value);
        let (place, text) = match name {
            b":method" if !is_token(value) => return Err(MessageError::Method),
            b":method" => (&mut self.method, text.map_err(|_| MessageError::Method)?),
            b":scheme" => {
                let text = text.map_err(|_| MessageError::Scheme)?;
                if !["http", "https"]
                    .iter()
                    .any(|known| text.eq_ignore_ascii_case(known))
                {
                    return Err(MessageError::Scheme);
                }
                (&mut self.scheme, text)
            }
            b":path" => (&mut self.path, text.map_err(|_| MessageError::Target)?),
            b":protocol" if !is_token(value) => return Err(MessageError::Pseudo),
            b":protocol" => (&mut self.protocol, text.map_err(|_| MessageError::Pseudo)?),
            b":authority" if self.authority.is_some() => return Err(MessageError::PseudoRepeated),
            b":authority" => {
                self.authority = Some(value);
                return Ok(());
            }
            _ => return Err(MessageError::Pseudo),
        };
        match place.replace(text) {
            Some(_) => Err(MessageError::PseudoRepeated),
            None => Ok(()),
        }
    }
}

/// The fields that bear on the request itself.
#[derive(Default)]
struct OwnFields<'b> {
    host: Option<&'b [u8]>,
    content_length: Option<u64>,
}

impl<'b> OwnFields<'b> {
    fn visit(&mut self, name: &str, value: &'b [u8]) -> Result<(), MessageError> {
        match name {
            "host" if self.host.is_some() => Err(MessageError::HostRepeated),
            "host" => {
                self.host = Some(value);
                Ok(())
            }
            "content-length" => {
                let length = plain_decimal(value).ok_or(MessageError::LengthInvalid)?;
                match self.content_length.replace(length) {
                    Some(_) => Err(MessageError::LengthInvalid),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// The host that the request is for, which is the same wherever it stands.
    ///
    /// Source: RFC 9113 section 8.3.1.
    fn host(&self, authority: Option<&'b [u8]>) -> Result<&'b [u8], MessageError> {
        let host = match (authority, self.host) {
            (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
                return Err(MessageError::HostRepeated);
            }
            (Some(host), _) | (None, Some(host)) => host,
            (None, None) => return Err(MessageError::HostMissing),
        };
        if is_host(host) {
            Ok(host)
        } else {
            Err(MessageError::HostInvalid)
        }
    }
}

#[cfg(test)]
mod tests;
