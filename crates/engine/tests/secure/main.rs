//! Servers whose clients speak TLS, over real sockets.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clients;
#[path = "../tower/grpc.rs"]
mod grpc;
#[expect(dead_code, reason = "it is made for other tests, which need more")]
#[path = "../server/h2c/client.rs"]
mod h2;
mod http2;
mod manager;
mod server;
mod support;
