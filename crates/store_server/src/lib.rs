//! The embedded store's face to the network: memcached's protocols on the loop.
//!
//! A [`StoreServer`] is a component of one loop; all loops share one [`StoreService`], which holds
//! the [`Store`](dwell_store::Store) and the figures that `stats` shows. Bytes become commands in
//! `dwell_proto::memcache`, commands become replies in `commands`, `meta` and `binary` (pure
//! functions), and this module moves the bytes.
//!
//! A connection owns memory only for a command that has not come whole, and for replies its peer
//! does not read. While it has such replies its commands are not executed and its socket is not
//! read, so both are bounded.
//!
//! [`snapshot`] keeps the items over a restart. [`StoreMetrics`] are the cells of one loop; a
//! [`Moment`] is the time of the store beside that of the world.
#![forbid(unsafe_code)]

mod binary;
mod commands;
mod connection;
mod credentials;
mod dump;
mod meta;
mod metrics;
mod moment;
mod moving;
mod service;
mod session;
pub mod snapshot;
mod stats;

pub use connection::{Kinds, StoreServer};
pub use credentials::{Credentials, CredentialsError};
pub use metrics::{HostFigures, RefusalObserver, StoreCommand, StoreMetrics};
pub use moment::{Moment, seconds};
pub use moving::Left;
pub use service::{Allowed, Listening, StoreServerLimits, StoreService, VERSION};

#[cfg(test)]
mod tests;
