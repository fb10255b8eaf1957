//! Environment variables that mark processes started by this program.

/// Set for the process in the background.
pub(super) const DAEMON: &str = "DWELL_DAEMON";
/// Set for a successor: the id of the process that has started it.
pub(super) const UPGRADE: &str = "DWELL_UPGRADE";
