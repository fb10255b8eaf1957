//! Variables of the environment by which this program marks processes that it starts.

/// Marks the process in the background.
pub(super) const DAEMON: &str = "DWELL_DAEMON";
/// Names, for a successor, the process that has started it.
pub(super) const UPGRADE: &str = "DWELL_UPGRADE";
