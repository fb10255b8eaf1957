//! The embedded store: a bytes-bounded cache that tells waiting loops of every change.
//!
//! It is memcached's data model in one process: keys, values, flags, expiry, versions (`cas`) and
//! the text and meta commands as typed methods of [`Store`]. Two things are its own. Values are
//! reference-counted, so a read copies nothing. And a loop can [`Store::watch`] a key: it is then
//! told of every change, through [`Notify`], without a lost wake-up.
//!
//! The crate reads no clock and does no I/O. Callers pass the time in seconds, and call
//! [`Store::sweep`] about once a second.
//!
//! # Memory
//!
//! [`StoreConfig::bytes_max`] bounds key and value, the allocation around them, the slots (56 bytes
//! each), the hash table and the eviction queues' memory. The bound is never exceeded, not even
//! between two steps of a store: room is made first. Eviction is S3-FIFO, which a scan does not
//! disturb.
#![forbid(unsafe_code)]

mod arithmetic;
mod commands;
mod item;
mod keep;
mod options;
mod queues;
mod shard;
mod slab;
mod statistics;
mod store;
mod watch;

pub use item::{Expiry, Item, Seconds, Value};
pub use keep::{KeptItem, KeptState};
pub use options::{
    ArithmeticOptions, ArithmeticOutcome, DeleteOptions, DeleteOutcome, Direction, MetaDebug,
    MetaGet, MetaHit, StoreMode, StoreOptions, StoreOutcome,
};
pub use statistics::Statistics;
pub use store::{KEY_BYTES_MAX, Store, StoreConfig};
pub use watch::{Notify, WatcherId};
