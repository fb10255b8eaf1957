//! Raw streams on real sockets, turned step by step.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod endings;
mod flow;
mod outbound;
mod support;
