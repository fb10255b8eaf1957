//! A model of Redis and Valkey.

mod change;
mod cluster;
mod connection;
mod process;
mod quirks;
mod server;
mod tracking;

pub use change::RedisChange;
pub use cluster::RedisSlots;
pub use process::RedisProcess;
pub use quirks::{RedisQuirks, RedisStruck};
