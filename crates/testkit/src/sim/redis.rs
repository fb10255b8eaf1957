//! A model of Redis and Valkey.

mod change;
mod connection;
mod process;
mod quirks;
mod server;
mod tracking;

pub use change::RedisChange;
pub use process::RedisProcess;
pub use quirks::{RedisQuirks, RedisStruck};
