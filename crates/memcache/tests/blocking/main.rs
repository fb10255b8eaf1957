//! The blocking client against the real memcached, and against servers that do something else.
#![expect(
    clippy::unwrap_used,
    reason = "clippy sees only `#[test]` functions as tests"
)]

mod carried;
mod cluster;
mod faults;
mod keys;
mod large;
mod meta;
mod operations;
mod pool;
mod processes;
mod support;
mod system_calls;
#[cfg(feature = "tls")]
mod tls;
