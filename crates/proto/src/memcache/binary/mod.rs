//! The binary protocol, the server's side (memcached `doc/protocol-binary.txt`).
//!
//! A connection whose first byte is [`MAGIC`] speaks it to its end. A server gives its input to a
//! [`RequestDecoder`] and writes with [`Reply`]. Quiet requests are the ones whose nominal reply is
//! left out; refusals are always sent.

mod opcode;
mod reply;
mod request;

pub use opcode::{Operation, Quiet};
pub use reply::{Echo, Reply, Status};
pub use request::{Command, Decoded, Progress, Request, RequestDecoder};

/// The first byte of every request.
pub const MAGIC: u8 = 0x80;

/// The first byte of every reply.
pub const REPLY_MAGIC: u8 = 0x81;

/// The bytes before extras, key and value.
pub const HEADER_BYTES: usize = 24;

#[cfg(test)]
mod tests;
