//! The client on an event loop against servers that the tests play, and against the real memcached.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "clippy sees only `#[test]` functions as tests"
)]

mod commands;
mod harness;
mod holding;
mod limits;
mod memcached;
mod moving;
mod reconnect;
mod replies;
#[cfg(feature = "tls")]
mod secure;
mod timeouts;
