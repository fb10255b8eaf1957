//! A Redis that has the values: a model whose keys writers change directly, and what befalls it.

mod options;
mod plan;
mod server;

pub(crate) use options::SWEPT;
pub use options::{Kept, RedisAct, RedisFault, RedisOptions};
pub(crate) use plan::{redis_cuts, redis_steps};
pub(crate) use server::RedisServer;
