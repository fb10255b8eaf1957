//! WebSocket connections on real sockets, turn by turn.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod closing;
mod conformance;
mod deadlines;
mod flow;
mod gathering;
mod handshake;
mod lifecycle;
mod messages;
mod properties;
mod second_opinion;
mod support;
mod violations;
