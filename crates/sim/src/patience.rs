//! The times for which clients wait before they complain.

use std::time::Duration;

/// The time within which a client hears of a change, or gets an answer, once nothing hinders that:
/// longer than all delays of the network together, and shorter than any interval at which the
/// server looks again by itself.
pub(crate) const PROMPT: Duration = Duration::from_millis(2_500);
/// The time that answers of the application may take beyond that.
pub(crate) const APP_PATIENCE: Duration = Duration::from_secs(15);
