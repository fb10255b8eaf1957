//! Heads of requests: from fields to the lines that HTTP/1.1 would have.

use crate::websocket::nonce;
use dwell_proto::http1::{Version, encode};
use dwell_proto::http2::{FieldSection, RequestHead};
use dwell_proto::websocket::ClientHandshake;

/// Writes a head as it would stand in HTTP/1.1, so that everything behind it reads one form.
///
/// Shape: the fields were checked, so none can end its line. A body of unknown size is chunked, as
/// it is when it goes on to a server of HTTP/1.1.
pub(super) fn write(head: &RequestHead<'_, '_>, has_body: bool, text: &mut Vec<u8>) {
    if let Some(protocol) = head.protocol {
        return write_upgrade(head, protocol, text);
    }
    encode::request_line(text, head.method, head.target, Version::Http11);
    encode::field(text, "Host", head.host);
    for (name, value) in head.fields.iter().filter(|(name, _)| *name != "host") {
        encode::field(text, name, value);
    }
    if has_body && head.content_length.is_none() {
        encode::field(text, "Transfer-Encoding", b"chunked");
    }
    encode::end_of_head(text);
}

/// Writes an extended CONNECT as the request for an upgrade that it would be in HTTP/1.1.
///
/// Shape: the key means nothing on a stream, and is there for what goes on to a server of HTTP/1.1.
///
/// Source: RFC 8441 section 5.
fn write_upgrade(head: &RequestHead<'_, '_>, protocol: &str, text: &mut Vec<u8>) {
    encode::request_line(text, "GET", head.target, Version::Http11);
    encode::field(text, "Host", head.host);
    encode::field(text, "Connection", b"Upgrade");
    encode::field(text, "Upgrade", protocol.as_bytes());
    ClientHandshake::new(nonce()).encode_key(text);
    let own = |name: &str| matches!(name, "host" | "sec-websocket-key");
    for (name, value) in head.fields.iter().filter(|(name, _)| !own(name)) {
        encode::field(text, name, value);
    }
    encode::end_of_head(text);
}

/// Writes the lines of a trailer section.
pub(super) fn write_trailers(section: &FieldSection, text: &mut Vec<u8>) {
    for (name, value) in section.lines() {
        if let Ok(name) = std::str::from_utf8(name) {
            encode::field(text, name, value);
        }
    }
}
