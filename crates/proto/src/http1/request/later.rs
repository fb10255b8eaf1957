//! Request heads of a minor version after 1.1. No such version exists so far; a client that sends
//! one expects to be understood as if it were 1.1.
//!
//! Source: RFC 9110 section 2.5.

use httparse::{EMPTY_HEADER, Header, Status};
use memchr::memchr;

use super::{RequestHead, RequestLine, check_request};
use crate::http1::error::HeadError;
use crate::http1::head::{HeadLimits, field_count_max, grammar_error, offset_of_end};

/// Returns true if the first line of `input` ends with such a version.
pub(super) fn is_named(input: &[u8]) -> bool {
    matches!(
        first_line(input).1,
        [
            ..,
            b' ',
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            b'1',
            b'.',
            b'2'..=b'9',
            b'\r',
            b'\n'
        ]
    )
}

/// Parses one whole head that names such a version.
///
/// Shape: the grammar is given the line with the version it knows, and what it finds there is
/// looked up in the original.
pub(super) fn parse_request<'f, 'b>(
    head: &'b [u8],
    apart: &'f mut Vec<Header<'b>>,
    limits: &HeadLimits,
) -> Result<RequestHead<'f, 'b>, HeadError> {
    let (start, line) = first_line(head);
    let mut known = line.to_vec();
    if let [.., minor, b'\r', b'\n'] = &mut *known {
        *minor = b'1';
    }
    known.extend_from_slice(b"\r\n");
    let mut raw = httparse::Request::new(&mut []);
    let parsed = raw.parse(&known);
    parsed.map_err(|error| grammar_error(error, head, limits))?;
    let RequestLine {
        method,
        target,
        version,
    } = RequestLine::of(&raw)?;
    let original = |part: &str| {
        let end = start + offset_of_end(&known, part.as_bytes());
        std::str::from_utf8(&head[end - part.len()..end]).map_err(|_| HeadError::RequestLine)
    };
    let line_of_head = RequestLine {
        method: original(method)?,
        target: original(target)?,
        version,
    };
    *apart = vec![EMPTY_HEADER; field_count_max(limits)];
    let fields = &head[start + line.len()..];
    match httparse::parse_headers(fields, apart) {
        Ok(Status::Complete((used, headers))) if used == fields.len() => {
            check_request(line_of_head, headers, head, limits)
        }
        Ok(_) => Err(HeadError::NotOneHead),
        Err(error) => Err(grammar_error(error, head, limits)),
    }
}

/// Returns the first line that is not empty, with its end, and its offset.
fn first_line(input: &[u8]) -> (usize, &[u8]) {
    let line = input.trim_ascii_start();
    let start = input.len() - line.len();
    let end = memchr(b'\n', line).map_or(line.len(), |end| end + 1);
    (start, &line[..end])
}
