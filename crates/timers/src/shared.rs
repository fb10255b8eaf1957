//! Timers for futures on any executor, all fired by one thread.
//!
//! `slot` is the protocol between a timer's owner and the sweeper, `sweep` what the sweeper does
//! in one tick; both are also compiled into the loom model. `pool` is where slots come from,
//! `inbox` how the sweeper hears of them, `sweeper` the thread, `timer` the owner's end.

/// The atomics of the protocol; the model has loom's in this place.
mod atomics {
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
}
mod barrier;
mod clock;
mod deadline;
mod fork;
mod futures;
mod gaps;
mod inbox;
mod interval;
mod manual;
mod pool;
mod published;
mod slot;
mod statistics;
mod sweep;
mod sweeper;
mod sys;
mod timer;

pub use deadline::Deadline;
pub use fork::forks;
pub use futures::{Sleep, SleepUntil, Timeout, TimeoutAt, sleep, sleep_until, timeout, timeout_at};
pub use interval::{Interval, interval};
pub use manual::ManualClock;
pub use statistics::{Statistics, statistics};
