//! The names of application protocols (RFC 7301 section 6).

/// HTTP/1.1.
pub(crate) const HTTP1: &[u8] = b"http/1.1";
/// HTTP/2 over TLS (RFC 9113 section 3.2).
pub(crate) const HTTP2: &[u8] = b"h2";
