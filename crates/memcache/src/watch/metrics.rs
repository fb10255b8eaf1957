//! The cells of a feed, and of the loops that follow its hints.

use dwell_metrics::{Counter, CounterSet, Histogram, labels};

/// Cells that one loop writes.
// Aligned so that two loops never write the same cache line, nor a pair of prefetched ones.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WatchMetrics {
    /// Lines in which memcached has reported changes of its items.
    pub lines: Counter,
    /// Lines that memcached has lost or left out.
    pub lines_lost: Counter,
    /// Hints that a key may have changed.
    pub hints: CounterSet<HintOutcome>,
    /// From memcached's own time of a change, by its clock, to its line.
    pub lag: Histogram,
    /// Times that every waited key of a server was read between sweeps.
    pub resyncs: CounterSet<ResyncReason>,
}

labels! {
    /// Result of a hint that a key may have changed.
    pub HintOutcome, "outcome":
    /// It reads the key.
    Read = "read",
    /// It reads the key already, or was told a moment ago.
    Joined = "joined",
    /// No request of the loop waits for the key.
    Unwatched = "unwatched",
}

labels! {
    /// Reason to read every waited key of one server.
    pub ResyncReason, "reason":
    /// The server begins to report changes, or has sent its statistics for the first time.
    Connected = "connected",
    /// A loop reaches it again.
    Returned = "returned",
    /// It says that it has left out lines.
    Skipped = "skipped",
    /// It has lost lines and does not say so, but for its statistics.
    Dropped = "dropped",
    /// It was told to flush everything.
    Flushed = "flushed",
    /// Many of its items have gone.
    Shrunk = "shrunk",
    /// It has done what it does not report: `incr`, `decr`, and in old versions `delete`.
    Untold = "untold",
    /// It is another process.
    Restarted = "restarted",
    /// A version is lower than it was.
    Reversed = "reversed",
    /// More keys have changed at once than are reported to a loop.
    Crowded = "crowded",
}
