//! `Server` over real sockets: its options, its handlers, its end, and the wire.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answering;
mod h2c;
mod handlers;
mod lifecycle;
mod options;
mod shutdown;
mod support;
mod takeover;
mod wire;
