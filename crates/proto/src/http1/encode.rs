//! Writing messages: start lines, fields, chunks.
//!
//! Everything appends to a `Vec<u8>`; nothing written through [`field`] can end a line early.

use super::framing::Version;
use super::trailers::is_forbidden;
use super::words;

/// Appends a status line.
///
/// Source: RFC 9112 section 4.
///
/// ```
/// use dwell_proto::http1::{Version, encode};
///
/// let mut out = Vec::new();
/// encode::status_line(&mut out, Version::Http11, 200);
/// encode::field(&mut out, "Transfer-Encoding", b"chunked");
/// encode::end_of_head(&mut out);
/// encode::chunk(&mut out, b"hello");
/// encode::last_chunk(&mut out);
/// assert_eq!(
///     out,
///     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
/// );
/// ```
pub fn status_line(out: &mut Vec<u8>, version: Version, status: u16) {
    push_status_line(out, version, status, reason(status).as_bytes());
}

/// Appends a status line with a reason phrase of one's own.
///
/// Shape: bytes that no reason phrase may have become spaces.
///
/// Source: RFC 9112 section 4.
///
/// ```
/// use dwell_proto::http1::{Version, encode};
///
/// let mut out = Vec::new();
/// encode::status_line_with(&mut out, Version::Http10, 404, b"Not\r\nHere");
/// assert_eq!(out, b"HTTP/1.0 404 Not  Here\r\n");
/// assert_eq!(encode::reason(404), "Not Found");
/// ```
pub fn status_line_with(out: &mut Vec<u8>, version: Version, status: u16, reason: &[u8]) {
    let start = out.len();
    push_status_line(out, version, status, reason);
    let end = out.len() - 2;
    for byte in &mut out[start..end] {
        if byte.is_ascii_control() && *byte != b'\t' {
            *byte = b' ';
        }
    }
}

fn push_status_line(out: &mut Vec<u8>, version: Version, status: u16, reason: &[u8]) {
    out.reserve(reason.len() + 20);
    out.extend_from_slice(version_name(version));
    out.push(b' ');
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

/// Appends a request line.
///
/// Shape: method and target are those of a parsed request, or known to be clean; bytes that
/// would end the line or part its words are dropped.
///
/// Source: RFC 9112 section 3.
///
/// ```
/// use dwell_proto::http1::{Version, encode};
///
/// let mut out = Vec::new();
/// encode::request_line(&mut out, "PUT", "/news", Version::Http11);
/// encode::field(&mut out, "Host", b"a");
/// encode::field_u64(&mut out, "Content-Length", 5);
/// encode::end_of_head(&mut out);
/// assert_eq!(out, b"PUT /news HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
/// ```
pub fn request_line(out: &mut Vec<u8>, method: &str, target: &str, version: Version) {
    push_word(out, method.as_bytes());
    out.push(b' ');
    push_word(out, target.as_bytes());
    out.push(b' ');
    out.extend_from_slice(version_name(version));
    out.extend_from_slice(b"\r\n");
}

/// Appends a field line.
///
/// Shape: carriage returns, line feeds and NULs in the value become spaces. Nothing is appended for
/// a name that is empty, or has bytes that would end or part it: mended, it could become the name
/// of another field.
///
/// Source: RFC 9112 section 5; RFC 9110 section 5.5.
pub fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    if !push_name(out, name) {
        return;
    }
    let start = out.len();
    out.extend_from_slice(value);
    // Nearly every value is free of control bytes.
    if words::contains(value, |word| words::below(word, b' ')) {
        for byte in &mut out[start..] {
            if matches!(byte, b'\r' | b'\n' | 0) {
                *byte = b' ';
            }
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a field line with a decimal value.
pub fn field_u64(out: &mut Vec<u8>, name: &str, value: u64) {
    if !push_name(out, name) {
        return;
    }
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the empty line that ends a head.
pub fn end_of_head(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Appends one chunk; nothing for no data, because an empty chunk would end the body.
///
/// Source: RFC 9112 section 7.1.
pub fn chunk(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    chunk_size(out, data.len());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Appends the size line of a chunk; its data and a line end have to follow.
pub fn chunk_size(out: &mut Vec<u8>, size: usize) {
    let bits = usize::BITS - size.leading_zeros();
    let mut digits = bits.div_ceil(4).max(1);
    while digits > 0 {
        digits -= 1;
        out.push(HEX_DIGITS[(size >> (digits * 4)) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the empty chunk and the empty trailer section that end a chunked body.
pub fn last_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n\r\n");
}

/// Appends the empty chunk and a trailer section that end a chunked body. Values are sanitised as
/// by [`field`]; fields that are not allowed in a trailer section are left out.
///
/// Source: RFC 9112 section 7.1.2; RFC 9110 section 6.5.1.
///
/// ```
/// use dwell_proto::http1::encode;
///
/// let mut out = Vec::new();
/// encode::chunk_size(&mut out, 255);
/// out.extend_from_slice(&[b'x'; 255]);
/// out.extend_from_slice(b"\r\n");
/// encode::last_chunk_with(&mut out, &[("Digest", b"abc")]);
/// assert!(out.starts_with(b"ff\r\n") && out.ends_with(b"\r\n0\r\nDigest: abc\r\n\r\n"));
/// ```
pub fn last_chunk_with(out: &mut Vec<u8>, trailers: &[(&str, &[u8])]) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        if !is_forbidden(name) {
            field(out, name, value);
        }
    }
    end_of_head(out);
}

/// The registered reason phrase of a status code; empty for one that is not registered.
///
/// Source: RFC 9110 section 15; RFC 6585; RFC 8297.
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200..=299 => reason_successful(status),
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400..=499 => reason_client_error(status),
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}

fn reason_successful(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        _ => "",
    }
}

fn reason_client_error(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        _ => "",
    }
}

fn version_name(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"HTTP/1.0",
        // A message that goes on from HTTP/2 does so in HTTP/1.1.
        Version::Http11 | Version::Http2 => b"HTTP/1.1",
    }
}

/// Appends a name and its colon; false, and nothing is appended, for what is no name.
fn push_name(out: &mut Vec<u8>, name: &str) -> bool {
    if name.is_empty() || words::contains(name.as_bytes(), not_in_a_name) {
        return false;
    }
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    true
}

/// Finds bytes that would end or part a field name.
fn not_in_a_name(word: u64) -> u64 {
    words::below(word, b' ' + 1)
        | words::beyond_ascii(word)
        | words::equal(word, b':', 0)
        | words::equal(word, 0x7f, 0)
}

fn push_word(out: &mut Vec<u8>, word: &[u8]) {
    if word.iter().any(|byte| *byte <= b' ') {
        out.extend(word.iter().filter(|byte| **byte > b' '));
    } else {
        out.extend_from_slice(word);
    }
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests;
