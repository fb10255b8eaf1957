//! Request heads.

mod later;

use memchr::memchr;

use super::error::HeadError;
use super::fields::Fields;
use super::framing::{BodyFraming, FramingFields, Version};
use super::head::{
    FieldStorage, HeadLimits, check_edges, check_method_length, grammar_error, head_end,
    offset_of_end, oversized_head, visit_fields,
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
    /// The part of the target after its first `?`.
    pub query: Option<&'b str>,
    /// The host and port that the request is for; absent where one of HTTP/1.0 named none. ASCII,
    /// never empty.
    pub host: Option<&'b [u8]>,
    /// The protocol version.
    pub version: Version,
    /// The field lines.
    pub fields: Fields<'f, 'b>,
    /// The end of the body; never [`BodyFraming::UntilClose`].
    pub framing: BodyFraming,
    /// True if the sender keeps the connection for another request.
    pub keep_alive: bool,
    /// True if the sender waits for a `100 (Continue)` before its body.
    pub expect_continue: bool,
    /// The value of `Upgrade`, if `Connection` nominates it and the version has it.
    pub upgrade: Option<&'b [u8]>,
    /// Bytes of the head, with its empty line; the body starts after them.
    pub length: usize,
}

/// Parses the request head at the front of `input`, or returns that more bytes are needed.
///
/// Shape: the quickest way through one connection's bytes: a head that is there as a whole is
/// examined once. Any other head is examined once more when its end has come, independent of the
/// number of its pieces; `scanned` is kept as by [`head_end`], with 0 for a new head.
///
/// # Errors
/// [`HeadError`], as soon as what there is can no longer become a valid head within the limits;
/// otherwise as [`parse_request`].
///
/// Source: as [`parse_request`].
///
/// ```
/// use dwell_proto::http1::{FieldStorage, HeadLimits, RequestHead, next_request};
///
/// let limits = HeadLimits::default();
/// let mut scanned = 0;
/// let mut storage = FieldStorage::new();
/// // The beginning of a head: more is needed.
/// assert!(next_request(b"GET / HTTP/1.1\r\nHo", &mut scanned, &mut storage, &limits)?.is_none());
/// let input = b"GET /a?b HTTP/1.1\r\nHost: h\r\n\r\nGET /next";
/// let mut storage = FieldStorage::new();
/// let head: Option<RequestHead<'_, '_>> =
///     next_request(input, &mut scanned, &mut storage, &limits)?;
/// let head = head.expect("it is complete");
/// assert_eq!((head.method, head.path, head.query), ("GET", "/a", Some("b")));
/// assert_eq!(&input[head.length..], b"GET /next");
/// # Ok::<(), dwell_proto::http1::HeadError>(())
/// ```
pub fn next_request<'f, 'b>(
    input: &'b [u8],
    scanned: &mut usize,
    storage: &'f mut FieldStorage<'b>,
    limits: &HeadLimits,
) -> Result<Option<RequestHead<'f, 'b>>, HeadError> {
    if *scanned > 0 {
        return match head_end(input, scanned) {
            Some(end) => parse_request(&input[..end], storage, limits).map(Some),
            None if input.len() > limits.head_bytes_max => Err(oversized_head(input, limits)),
            None => Ok(None),
        };
    }
    let (slots, apart) = storage.both(limits);
    let mut raw = httparse::Request::new(&mut []);
    match raw.parse_with_uninit_headers(input, slots) {
        Ok(httparse::Status::Complete(end)) => {
            return check_request(RequestLine::of(&raw)?, raw.headers, &input[..end], limits)
                .map(Some);
        }
        Ok(httparse::Status::Partial) => {}
        // Which version it is shows only when all of its line is there.
        Err(httparse::Error::Version) if !first_line_ended(input) => {}
        Err(httparse::Error::Version) if later::is_named(input) => {
            if let Some(end) = head_end(input, scanned) {
                return later::parse_request(&input[..end], apart, limits).map(Some);
            }
        }
        Err(error) => return Err(grammar_error(error, input, limits)),
    }
    if head_end(input, scanned).is_some() {
        return Err(HeadError::NotOneHead);
    }
    if input.len() > limits.head_bytes_max {
        return Err(oversized_head(input, limits));
    }
    Ok(None)
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
    let (slots, apart) = storage.both(limits);
    let mut raw = httparse::Request::new(&mut []);
    match raw.parse_with_uninit_headers(head, slots) {
        Ok(httparse::Status::Complete(end)) if end == head.len() => {
            check_request(RequestLine::of(&raw)?, raw.headers, head, limits)
        }
        Ok(_) => Err(HeadError::NotOneHead),
        Err(httparse::Error::Version) if later::is_named(head) => {
            later::parse_request(head, apart, limits)
        }
        Err(error) => Err(grammar_error(error, head, limits)),
    }
}

/// The parts of a request line, as the grammar found them.
#[derive(Clone, Copy)]
struct RequestLine<'b> {
    method: &'b str,
    target: &'b str,
    version: Version,
}

impl<'b> RequestLine<'b> {
    fn of(raw: &httparse::Request<'_, 'b>) -> Result<Self, HeadError> {
        let (Some(method), Some(target), Some(minor)) = (raw.method, raw.path, raw.version) else {
            return Err(HeadError::NotOneHead);
        };
        Ok(Self {
            method,
            target,
            version: if minor == 0 {
                Version::Http10
            } else {
                Version::Http11
            },
        })
    }
}

/// Checks what the grammar leaves open. `head` is what it took the head to be.
fn check_request<'f, 'b>(
    line: RequestLine<'b>,
    headers: &'f [httparse::Header<'b>],
    head: &'b [u8],
    limits: &HeadLimits,
) -> Result<RequestHead<'f, 'b>, HeadError> {
    let RequestLine {
        method,
        target,
        version,
    } = line;
    check_lengths(method, target, head, limits)?;
    check_edges(head, method.as_bytes())?;
    let line_end = offset_of_end(head, target.as_bytes()) + " HTTP/1.1".len();
    if head.get(line_end) != Some(&b'\r') {
        return Err(HeadError::LineEnd);
    }
    if method == "CONNECT" {
        return Err(HeadError::Connect);
    }
    let parts = parse_target(method, target)?;
    let fields = Fields::new(headers);
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
        host: parts.authority.map(str::as_bytes).or(own.host),
        version,
        fields,
        framing: framing.framing(version)?.unwrap_or(BodyFraming::None),
        keep_alive: framing.persists(version),
        expect_continue: is_11 && own.expects_continue,
        upgrade: own.upgrade.filter(|_| is_11 && framing.upgrade),
        length: head.len(),
    })
}

fn check_lengths(
    method: &str,
    target: &str,
    head: &[u8],
    limits: &HeadLimits,
) -> Result<(), HeadError> {
    check_method_length(method.len())?;
    if target.len() > limits.target_bytes_max {
        let (limit, length) = (limits.target_bytes_max, target.len());
        return Err(HeadError::TargetTooLong { limit, length });
    }
    if head.len() > limits.head_bytes_max {
        let (limit, length) = (limits.head_bytes_max, head.len());
        return Err(HeadError::HeadTooLong { limit, length });
    }
    Ok(())
}

fn first_line_ended(input: &[u8]) -> bool {
    memchr(b'\n', input.trim_ascii_start()).is_some()
}

/// The fields read so far that only a request has.
#[derive(Default)]
struct RequestFields<'b> {
    host: Option<&'b [u8]>,
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
                if !is_host(value) {
                    return Err(HeadError::HostInvalid);
                }
                self.host = Some(value);
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
