//! The Redis serialization protocol, version 3, on the side of a client: it writes commands and
//! reads replies and pushes (the RESP3 specification of Redis).
//!
//! [`command`] writes a command, an array of bulk strings. A [`Decoder`] is shown what was read and
//! gives one [`Message`] at a time, borrowed from the input: every byte that has not been consumed
//! yet is shown again, contiguous. Replies of version 2 are read as well, as its types are among
//! those of version 3.
//!
//! The depth and the length of a message are bounded. Attributes are skipped. Streamed strings and
//! aggregates, which no server sends unasked, are refused.

mod decoder;
mod encode;
mod error;
mod header;
mod value;

pub use decoder::{Decoded, Decoder, Limits, Message};
pub use encode::command;
pub use error::PeerError;
pub use value::{ItemIter, Items, Value};

#[cfg(test)]
mod tests;
