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

mod binary;
mod commands;
mod connection;
mod credentials;
mod dump;
mod meta;
mod moving;
mod service;
mod session;
mod stats;

pub use connection::{Kinds, StoreServer};
pub use credentials::Credentials;
pub use service::{Allowed, Listening, Protocols, StoreServerLimits, StoreService, VERSION};

#[cfg(test)]
mod tests;
