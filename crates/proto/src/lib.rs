//! Codecs without I/O: HTTP/1.1, HTTP/2, WebSocket, server-sent events and memcached, both sides of
//! each, the client's side of Redis, the header of the PROXY protocol, and strings of JSON.
//!
//! Every decoder is given bytes and says how many it used; incomplete input is progress, not an
//! error. Nothing here reads a clock, touches a socket or allocates for a message that comes in
//! one piece.
#![forbid(unsafe_code)]

pub mod http1;
pub mod http2;
pub mod json;
pub mod memcache;
pub mod proxy_protocol;
pub mod resp;
pub mod sse;
pub mod websocket;
