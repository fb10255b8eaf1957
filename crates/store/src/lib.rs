//! The embedded store: a bytes-bounded cache that notifies waiting loops of every change.
//!
//! It is memcached's data model in one process: keys, values, flags, expiry, versions (`cas`) and
//! the text and meta commands as typed methods of [`Store`]. Two things are its own. Large values
//! are reference-counted, so a read copies nothing. And a loop can [`Store::watch`] a key: the
//! store then reports every change to it, through [`Notify`], without a lost wake-up.
//!
//! The crate reads no clock and does no I/O. Callers pass the time in seconds, and call
//! [`Store::sweep`] about once a second.
//!
//! # Memory
//!
//! [`StoreConfig::bytes_max`] bounds what is taken, not only what is used: segments with their
//! gaps, the values outside of them, the hash table with the memory of what was evicted. The bound
//! is never exceeded, not even between two steps of a store: room is made first.
//!
//! All of it lies in pages from the system, in an arena for each shard, and goes back to the system
//! when it is free. In memory are at most 1.15 of the bound, for any sizes of values, and the
//! values that callers still hold after the store has dropped them.
//!
//! An item of up to about 1 KiB is a record of 32 bytes, its key and its value, in a segment of the
//! queue that it is in; larger ones have a record there, and a run of bytes of their own. Records
//! are appended at the new end of a queue and evicted from the old end, by S3-FIFO, which a scan
//! does not disturb. A record that is removed elsewhere leaves a gap; when gaps are more than a
//! sixteenth of the memory, segments are cleaned, one at a time, by moving what is left in them.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod arena;
mod arithmetic;
mod commands;
mod config;
mod hot;
mod item;
mod items;
mod keep;
mod large;
mod options;
mod queues;
mod record;
mod resize;
mod segments;
mod shard;
mod statistics;
mod store;
mod table;
mod walk;
mod watch;

pub use config::StoreConfig;
pub use hot::{HotKey, HotKeys, READS_PER_SAMPLE, hottest};
pub use item::{Expiry, Item, ItemRef, Seconds, Value};
pub use keep::{HashSeed, KeptItem, KeptState, RestoreOutcome};
pub use options::{
    ArithmeticOptions, ArithmeticOutcome, DeleteOptions, DeleteOutcome, Direction, MetaDebug,
    MetaGet, MetaHit, StoreMode, StoreOptions, StoreOutcome,
};
pub use statistics::Statistics;
pub use store::{KEY_BYTES_MAX, Store};
pub use walk::{Walk, WalkedItem};
pub use watch::{Notify, SharedKey, WatcherId};
