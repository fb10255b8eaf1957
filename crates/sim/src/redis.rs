//! A Redis that has the values, or a cluster of them: a model whose keys writers change directly,
//! and what befalls it.

mod cluster;
mod cluster_plan;
mod moves;
mod node;
mod options;
mod plan;
mod server;
mod slots;

pub use cluster::{ClusterAct, ClusterFault, ClusterOptions, Lost};
pub(crate) use cluster_plan::cluster_steps;
pub use node::Old;
pub(crate) use options::SWEPT;
pub use options::{Kept, RedisAct, RedisFault, RedisOptions};
pub(crate) use plan::{redis_cuts, redis_moves, redis_steps};
pub(crate) use server::RedisServer;
