//! Streams without a socket of their own: their table, and what stands in the place of the socket.

pub(crate) mod socket;
pub(crate) mod table;
