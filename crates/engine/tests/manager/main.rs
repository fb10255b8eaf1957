//! The manager on real sockets, polled step by step: one module for each subject.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod endings;
mod errors;
mod events;
mod faults;
mod http;
mod http2;
mod lifecycle;
mod outbound;
mod raw;
mod support;
mod timers;
mod turns;
mod wakeups;
mod websocket;
mod wire;
