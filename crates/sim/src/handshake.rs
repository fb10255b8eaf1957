//! The handshake of a WebSocket.

/// The fields of its request.
pub(crate) const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
/// The field of its answer.
pub(crate) const ACCEPTED: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
