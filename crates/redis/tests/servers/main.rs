//! The client beside real servers: Debian's Redis and a Valkey, started here on unix sockets.

#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "clippy sees only `#[test]` functions as tests"
)]

mod commands;
mod fakes;
mod faults;
mod harness;
mod in_order;
mod moves;
mod prefixes;
mod refusals;
mod waits;
