//! Response heads.

use super::error::HeadError;
use super::fields::Fields;
use super::framing::{BodyFraming, FramingFields, Version};
use super::head::{FieldStorage, HeadLimits, check_edges, grammar_error, visit_fields};

/// A response head that obeys every rule.
///
/// Shape: borrows the bytes of the head; nothing is copied.
///
/// ```
/// use dwell_proto::http1::{BodyFraming, FieldStorage, HeadLimits, ResponseHead, parse_response};
///
/// let input = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
/// let mut storage = FieldStorage::new();
/// let head: ResponseHead<'_, '_> =
///     parse_response(input, &mut storage, &HeadLimits::default(), "GET")?;
/// assert_eq!((head.status, head.framing), (200, BodyFraming::Length(5)));
/// # Ok::<(), dwell_proto::http1::HeadError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'f, 'b> {
    /// The protocol version.
    pub version: Version,
    /// The status code, 100 to 999; below 200 another head follows.
    pub status: u16,
    /// The reason phrase; often empty, and never to be relied on.
    pub reason: &'b str,
    /// The field lines.
    pub fields: Fields<'f, 'b>,
    /// The end of the body, with the request's method taken into account.
    pub framing: BodyFraming,
    /// The value of `Content-Length`; in the response to `HEAD`, of a body that does not follow.
    pub content_length: Option<u64>,
    /// True if the connection can be used again after the body.
    pub keep_alive: bool,
    /// True if the bytes after the head are not HTTP: after a 101, and if `CONNECT` succeeded.
    pub is_switching: bool,
    /// The head as it came, with its empty line.
    pub bytes: &'b [u8],
}

/// Parses one whole response head, as [`head_end`](super::head_end) cut it out.
///
/// Shape: `request_method` is the method of the request it answers: the answer to `HEAD` has no
/// body whatever its fields say, and where `CONNECT` succeeds a tunnel begins. A `Content-Length`
/// that is repeated, as a list or as fields, and every time the same is that length; the parser of
/// requests refuses it, since others may read another length there.
///
/// # Errors
/// [`HeadError`]; the connection must be closed, and a gateway answers 502.
///
/// Source: RFC 9112 sections 4 and 6.3.
pub fn parse_response<'f, 'b>(
    head: &'b [u8],
    storage: &'f mut FieldStorage<'b>,
    limits: &HeadLimits,
    request_method: &str,
) -> Result<ResponseHead<'f, 'b>, HeadError> {
    if head.len() > limits.head_bytes_max {
        return Err(HeadError::HeadTooLong {
            limit: limits.head_bytes_max,
            length: head.len(),
        });
    }
    let mut raw = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let parsed = config.parse_response_with_uninit_headers(&mut raw, head, storage.slots(limits));
    let used = parsed.map_err(|error| grammar_error(error, head, limits))?;
    let (Some(minor), Some(status)) = (raw.version, raw.code) else {
        return Err(HeadError::NotOneHead);
    };
    if used != httparse::Status::Complete(head.len()) {
        return Err(HeadError::NotOneHead);
    }
    if status < 100 {
        return Err(HeadError::StatusCode);
    }
    check_edges(head, &head[..0])?;
    check_status_line(head)?;
    let version = if minor == 0 {
        Version::Http10
    } else {
        Version::Http11
    };
    let fields = Fields::new(raw.headers);
    let mut framing = FramingFields::of_response();
    visit_fields(head, fields, &mut framing, |_, _| Ok(()))?;
    let by_fields = framing.framing(version)?.unwrap_or(BodyFraming::UntilClose);
    let is_switching = status == 101 || (request_method == "CONNECT" && status / 100 == 2);
    let bodiless =
        is_switching || request_method == "HEAD" || status < 200 || matches!(status, 204 | 304);
    let framing_kind = if bodiless {
        BodyFraming::None
    } else {
        by_fields
    };
    Ok(ResponseHead {
        version,
        status,
        reason: raw.reason.unwrap_or_default(),
        fields,
        framing: framing_kind,
        content_length: framing.content_length,
        keep_alive: framing.persists(version)
            && framing_kind != BodyFraming::UntilClose
            && !is_switching,
        is_switching,
        bytes: head,
    })
}

/// Checks that the status line starts the head, and ends with a carriage return and line feed.
fn check_status_line(head: &[u8]) -> Result<(), HeadError> {
    let end = memchr::memchr(b'\n', head).unwrap_or(0);
    if head.starts_with(b"HTTP/") && head[..end].ends_with(b"\r") {
        Ok(())
    } else {
        Err(HeadError::LineEnd)
    }
}

#[cfg(test)]
mod tests;
