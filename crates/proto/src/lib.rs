//! Codecs without I/O: HTTP/1.1 and the memcached text and meta protocols, both sides.
//!
//! Every decoder is given bytes and says how many it used; incomplete input is progress, not an
//! error. Nothing here reads a clock, touches a socket or allocates per message.
#![forbid(unsafe_code)]

pub mod http1;
pub mod memcache;
