//! Servers whose clients speak TLS, over real sockets.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clients;
mod manager;
mod server;
mod support;
