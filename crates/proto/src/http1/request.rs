//! Request heads.

use super::error::HeadError;
use super::fields::Fields;
use super::framing::{BodyFraming, FramingFields, Version};
use super::head::{
    FieldStorage, HeadLimits, check_edges, grammar_error, offset_of_end, oversized_head,
    visit_fields,
};
use super::target::{is_host, parse_target};

/// A request head that obeys every rule.
///
/// Shape: borrows the bytes of the head; nothing is copied.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'f, 'b> {
    /// The method, in the sender's case. Never `CONNECT`.
    pub method: &'b str,
    /// The request target as it came.
    pub target: &'b str,
    /// The host and port of a target in absolute form, which wins over `Host`.
    pub authority: Option<&'b str>,
    /// The path of the target; `*` of `OPTIONS *`, `/` where an absolute form has none.
    pub path: &'b str,
    /// What follows the first `?` of the target.
    pub query: Option<&'b str>,
    /// The host and port that the request is for; absent or empty if it named none.
    pub host: Option<&'b str>,
    /// The protocol version.
    pub version: Version,
    /// The field lines.
    pub fields: Fields<'f, 'b>,
    /// Where the body ends; never [`BodyFraming::UntilClose`].
    pub framing: BodyFraming,
    /// Whether the sender wants to use the connection again.
    pub keep_alive: bool,
    /// Whether the sender waits for a `100 (Continue)` before its body.
    pub expect_continue: bool,
    /// The value of `Upgrade`, if `Connection` nominates it and the version has it.
    pub upgrade: Option<&'b [u8]>,
}

/// Parses one whole request head, as [`head_end`](super::head_end) cut it out.
///
/// # Errors
/// [`HeadError`], whose [`status`](HeadError::status) answers the request; close the connection
/// after that. `CONNECT` is refused here, with 501.
///
/// Source: RFC 9112 sections 2 to 6; RFC 9110 sections 7.2, 7.6.1, 7.8 and 10.1.1.
pub fn parse_request<'f, 'b>(
    head: &'b [u8],
    storage: &'f mut FieldStorage<'b>,
    limits: &HeadLimits,
) -> Result<RequestHead<'f, 'b>, HeadError> {
    if head.len() > limits.head_bytes_max {
        return Err(oversized_head(head, limits));
    }
    let mut raw = httparse::Request::new(&mut []);
    let parsed = raw.parse_with_uninit_headers(head, storage.slots(limits));
    let used = parsed.map_err(|error| grammar_error(error, head, limits))?;
    let (Some(method), Some(target), Some(minor)) = (raw.method, raw.path, raw.version) else {
        return Err(HeadError::NotOneHead);
    };
    if used != httparse::Status::Complete(head.len()) {
        return Err(HeadError::NotOneHead);
    }
    if target.len() > limits.target_bytes_max {
        let (limit, length) = (limits.target_bytes_max, target.len());
        return Err(HeadError::TargetTooLong { limit, length });
    }
    check_edges(head, method.as_bytes())?;
    let line_end = offset_of_end(head, target.as_bytes()) + " HTTP/1.1".len();
    if head.get(line_end) != Some(&b'\r') {
        return Err(HeadError::LineEnd);
    }
    if method == "CONNECT" {
        return Err(HeadError::Connect);
    }
    let parts = parse_target(method, target)?;
    let version = if minor == 0 {
        Version::Http10
    } else {
        Version::Http11
    };
    let fields = Fields::new(raw.headers);
    let mut framing = FramingFields::default();
    let mut own = RequestFields::default();
    visit_fields(head, fields, &mut framing, |name, value| {
        own.visit(name, value)
    })?;
    let is_11 = version == Version::Http11;
    if is_11 && own.host.is_none() {
        return Err(HeadError::HostMissing);
    }
    if is_11 && own.expects_other {
        return Err(HeadError::Expectation);
    }
    Ok(RequestHead {
        method,
        target,
        authority: parts.authority,
        path: parts.path,
        query: parts.query,
        host: parts.authority.or(own.host),
        version,
        fields,
        framing: framing.framing(version)?.unwrap_or(BodyFraming::None),
        keep_alive: framing.persists(version),
        expect_continue: is_11 && own.expects_continue,
        upgrade: own.upgrade.filter(|_| is_11 && framing.upgrade),
    })
}

/// What the fields that only a request has said so far.
#[derive(Default)]
struct RequestFields<'b> {
    host: Option<&'b str>,
    upgrade: Option<&'b [u8]>,
    expects_continue: bool,
    expects_other: bool,
}

impl<'b> RequestFields<'b> {
    #[inline]
    fn visit(&mut self, name: &str, value: &'b [u8]) -> Result<(), HeadError> {
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => {
                if self.host.is_some() {
                    return Err(HeadError::HostRepeated);
                }
                let text = std::str::from_utf8(value).ok().filter(|_| is_host(value));
                self.host = Some(text.ok_or(HeadError::HostInvalid)?);
            }
            6 if name.eq_ignore_ascii_case("expect") => {
                if value.eq_ignore_ascii_case(b"100-continue") {
                    self.expects_continue = true;
                } else {
                    self.expects_other = true;
                }
            }
            7 if name.eq_ignore_ascii_case("upgrade") => {
                self.upgrade = self.upgrade.or(Some(value));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
