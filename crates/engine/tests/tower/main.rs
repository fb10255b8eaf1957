//! Handlers over the types of the `http` crate, and services of tower: an axum `Router`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bodies;
mod closures;
mod copies;
mod runtime;
#[path = "../server/support.rs"]
mod support;
#[cfg(feature = "axum")]
mod websocket;
