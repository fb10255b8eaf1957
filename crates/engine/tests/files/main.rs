//! Files over real sockets, from a server in a thread of its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod curl;
mod server;
mod sockets;
