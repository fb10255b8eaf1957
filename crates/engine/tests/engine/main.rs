//! The engine on real sockets, turned step by step: one module for each subject.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod backpressure;
mod closures;
mod deadlines;
mod endings;
mod gathering;
mod holds;
#[cfg(feature = "sim")]
mod http2;
mod labels;
mod lifecycle;
mod limits;
mod moving;
mod pipelining;
#[cfg(feature = "sim")]
mod proxy_protocol;
mod refused;
mod streaming;
mod support;
mod uploads;
