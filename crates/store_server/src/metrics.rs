//! The figures of a store server: what its loops count, and what its host adds.

use dwell_metrics::{Counter, CounterSet, HistogramSet, labels};
use dwell_store::HotKeys;
use std::fmt::Debug;

/// Cells that one loop writes.
// Aligned so that two loops never write the same cache line, nor a pair of prefetched ones.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct StoreMetrics {
    /// Commands of memcached clients.
    pub commands: CounterSet<StoreCommand>,
    /// All of them, by which the measured ones are chosen.
    pub(crate) counted: Counter,
    /// Time that the store took for one command in 64, from its bytes to the reply's. Nanoseconds.
    pub durations: HistogramSet<StoreCommand>,
    /// The most read keys of the store.
    pub hot: HotKeys,
}

/// Figures of the process around the store, for `stats`.
pub trait HostFigures: Debug + Send + Sync {
    /// Requests that wait for a key to change.
    fn waiters(&self) -> u64;
    /// Open connections of other clients than the store's.
    fn connections_open(&self) -> u64;
    /// The CPU time of the process in user and in system mode. Units: seconds.
    fn cpu_times(&self) -> Option<(f64, f64)>;
}

/// Called when a client was refused because the process has too many open descriptors.
pub trait RefusalObserver: Debug + Send + Sync {
    /// Tells the operator, if it is time to.
    fn refused(&self);
}

labels! {
    /// A command of a memcached client; the binary protocol's count under the text ones' names.
    pub StoreCommand, "command":
    /// `get` and `gets`, one for each command whatever its keys.
    Get = "get",
    /// `gat` and `gats`.
    GetAndTouch = "gat",
    /// `touch`.
    Touch = "touch",
    /// `set`.
    Set = "set",
    /// `add`.
    Add = "add",
    /// `replace`.
    Replace = "replace",
    /// `append`.
    Append = "append",
    /// `prepend`.
    Prepend = "prepend",
    /// `cas`.
    Cas = "cas",
    /// `delete`.
    Delete = "delete",
    /// `incr`.
    Increment = "incr",
    /// `decr`.
    Decrement = "decr",
    /// `mg`.
    MetaGet = "mg",
    /// `ms`.
    MetaSet = "ms",
    /// `md`.
    MetaDelete = "md",
    /// `ma`.
    MetaArithmetic = "ma",
    /// `me`.
    MetaDebug = "me",
    /// `mn`, and the binary protocol's no-op.
    Noop = "mn",
    /// `flush_all`.
    FlushAll = "flush_all",
    /// `stats`.
    Stats = "stats",
    /// Any other.
    Other = "other",
}
