//! Supervision of the process by its first loop.

use std::fmt::Debug;
use std::time::Duration;

/// Signals of the system, and signs of life for a service manager.
pub(crate) trait Supervise: Debug + Send {
    /// Does what a signal asks for; false where it asks for the end.
    fn heard(&self, signal: i32) -> bool;

    /// Notes that the loops turn.
    fn serves(&self);

    /// Notes that the loops drain.
    fn drains(&self);

    /// Interval at which [`check_loops`](Self::check_loops) is to be called, if it is.
    fn watchdog_interval(&self) -> Option<Duration>;

    /// Gives a sign of life for all loops, if each has turned since the last call.
    fn check_loops(&mut self);
}
