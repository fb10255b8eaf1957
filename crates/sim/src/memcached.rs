//! External memcached servers: models whose items writers change directly, and what befalls them.

mod options;
mod plan;
mod servers;

pub(crate) use options::addresses;
pub use options::{MemcachedAct, MemcachedFault, MemcachedOptions};
pub(crate) use plan::{cut_steps, memcached_steps};
pub(crate) use servers::{RECOVERY, Servers};
