//! Servers on a simulated network: no socket, no thread, no time that passes.

mod memcached;
mod redis;
mod scripted;
mod tls;

pub use dwell_evloop::sim::{Link, Peer, SimListener, SimNet, SimServer, SimStream, Trace};
pub use memcached::{MemcachedOptions, MemcachedProcess, Quirks, SimMemcached, Stored, Struck};
pub use redis::{RedisChange, RedisProcess, RedisQuirks, RedisSlots, RedisStruck};
pub use scripted::SimScripted;
pub use tls::{PeerStream, SimTls};
