//! The whole edge on a simulated network: one thread, all loops, clients and writers, and every
//! order of events chosen by a seed.
//!
//! A seed gives a `Plan`: what clients ask, what writers store, and what goes wrong and when. The
//! plan runs in two phases: first with its faults, then without. Throughout, every answer is
//! checked against a model of the store; at the end of the second phase everything has been
//! answered, the tables are as they were at the start, and the loops are silent. The same seed
//! gives the same events, so a failure is had again by its seed, and with fewer steps (`shrink`).
#![cfg(feature = "sim")]
#![forbid(unsafe_code)]

mod answer;
mod app;
mod around;
mod bounding;
mod bounds;
mod carrier;
mod chance;
mod client;
mod connection;
mod failure;
mod h2;
mod handshake;
mod hindrances;
mod intrusions;
mod keys;
mod line;
mod memcached;
mod options;
mod outward;
mod patience;
mod phases;
mod pick;
mod plan;
mod publisher;
mod redis;
mod reload;
mod report;
mod servers;
mod shrink;
mod socket;
mod step;
mod streamer;
mod tls;
mod transports;
mod upgrade;
mod wire;
mod world;
mod writer;

pub use bounds::Bounds;
pub use dwell_evloop::sim::{Planted, Trace, plant};
pub use failure::{Failure, Oracle};
pub use h2::{Attack, BrowserAct, BrowserFault, H2Options, Made};
pub use memcached::{MemcachedAct, MemcachedFault, MemcachedOptions};
pub use options::{Fault, Options, Protocol};
pub use outward::{Behind, OutwardOptions, WrongCertificate};
pub use phases::{Outcome, play, play_seed, record};
pub use pick::{Pick, SEVERAL_MAX};
pub use plan::Plan;
pub use redis::{
    ClusterAct, ClusterFault, ClusterOptions, Kept, Lost, Old, RedisAct, RedisFault, RedisOptions,
};
pub use reload::{Change, Reload};
pub use report::Counts;
pub use shrink::shrink;
pub use socket::{Act, BREACHES, Opening, SocketOptions};
pub use step::{Ask, FIXED, Has, Method, Order, Several, Step};
pub use tls::{Habits, Intrusion, TlsFault, TlsOptions};
pub use upgrade::{Upgrade, UpgradeFault};
