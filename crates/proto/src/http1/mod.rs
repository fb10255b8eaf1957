//! HTTP/1.1 messages: heads, framing and bodies (RFC 9110, RFC 9112).
