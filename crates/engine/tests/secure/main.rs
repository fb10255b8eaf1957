//! Servers whose clients speak TLS, over real sockets.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod manager;
mod server;
mod support;
