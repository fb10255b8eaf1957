//! Handlers over the types of the `http` crate, and services of tower: an axum `Router`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bodies;
mod closures;
mod copies;
mod grpc;
#[expect(dead_code, reason = "it is made for other tests, which need more")]
#[path = "../server/h2c/client.rs"]
mod h2;
mod http2;
mod runtime;
#[path = "../server/support.rs"]
mod support;
#[cfg(feature = "axum")]
mod websocket;
