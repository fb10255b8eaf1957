//! The cells of a client.

use dwell_metrics::{Counter, CounterSet, Gauge, labels};

/// Cells that one loop writes.
// Aligned so that two loops never write the same cache line, nor a pair of prefetched ones.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RedisMetrics {
    /// 1 while the server announces changes to this client, 0 otherwise.
    pub tracking_loops: Gauge,
    /// 1 while the server refuses to announce changes to this client, 0 otherwise.
    pub refused_loops: Gauge,
    /// Keys that are waited for and whose next change the server announces.
    pub armed_keys: Gauge,
    /// Values that were given without a round trip.
    pub kept_hits: Counter,
    /// Bytes of the values that are kept for that.
    pub kept_bytes: Gauge,
    /// Invalidations that the server has pushed.
    pub pushes: CounterSet<PushKind>,
    /// Reads of keys that are waited for, after a push, a reconnect or the end of a lifetime.
    pub rereads: Counter,
    /// Reads after an announcement of a change that found none.
    pub unchanged_rereads: Counter,
    /// Sweeps over the keys that are waited for.
    pub sweeps: Counter,
    /// Times that every key that is waited for was read again.
    pub resyncs: CounterSet<ResyncReason>,
    /// Commands that a server of a cluster has sent to another one.
    pub redirects: CounterSet<RedirectKind>,
    /// Questions for the topology of a cluster.
    pub topologies: CounterSet<TopologyRead>,
    /// Primaries of the cluster.
    pub primaries: Gauge,
    /// Slots of the cluster without a primary.
    pub missing_slots: Gauge,
    /// Connections that were closed because the server sent what it must not: a malformed message,
    /// or a reply to no command.
    pub protocol_errors: Counter,
    /// Replies that held no value that can be used.
    pub unusable_values: CounterSet<UnusableValue>,
}

labels! {
    /// Subject of an invalidation.
    pub PushKind, "kind":
    /// A key that is waited for.
    Waited = "waited",
    /// A key that was waited for before.
    Unwaited = "unwaited",
    /// Every key: the database was flushed.
    All = "all",
}

labels! {
    /// Reason to read every key that is waited for.
    pub ResyncReason, "reason":
    /// The tracking connection was made again.
    Connected = "connected",
    /// The server has invalidated everything.
    Flushed = "flushed",
    /// Slots of a cluster have moved to other servers: the keys in them are read.
    Moved = "moved",
}

labels! {
    /// Kind of a redirection.
    pub RedirectKind, "kind":
    /// The slot is there from now on.
    Moved = "moved",
    /// The slot is about to move, and the key may have done so.
    Ask = "ask",
}

labels! {
    /// Outcome of a question for the topology.
    pub TopologyRead, "outcome":
    /// It is as it was.
    Same = "same",
    /// It has changed.
    Changed = "changed",
    /// The server knows an older one.
    Outdated = "outdated",
    /// There was no reply that can be used.
    Failed = "failed",
}

labels! {
    /// Kind of a value that cannot be used.
    pub UnusableValue, "kind":
    /// It is a list, a hash or another type than a string.
    WrongType = "wrong_type",
    /// It is larger than the limit.
    TooLarge = "too_large",
}
