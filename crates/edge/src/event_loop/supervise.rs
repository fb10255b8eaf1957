//! Supervision of the process by its first loop.

use std::fmt::Debug;
use std::time::Duration;

/// Signals of the system, and notifications to a service manager.
pub(crate) trait Supervise: Debug + Send {
    /// Handles a signal; returns false if the process is to end.
    fn handle_signal(&self, signal: i32) -> bool;

    /// Reports that the loops serve.
    fn serves(&self);

    /// Reports that the loops drain.
    fn drains(&self);

    /// Reports that the loops hand their connections over to another process.
    fn hands_over(&self);

    /// Interval between calls of [`check_loops`](Self::check_loops); `None` if they are not needed.
    fn watchdog_interval(&self) -> Option<Duration>;

    /// Notifies the watchdog, if every loop has turned since the last call.
    fn check_loops(&mut self);
}
