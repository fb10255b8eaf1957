//! The way in from other threads.

use super::command::{CommandError, Commands};
use dwell_evloop::Sender;
use std::fmt;

/// Orders of other threads to one engine.
///
/// Shape: a burst of them costs one wake-up. Orders to an engine that is gone are dropped.
#[derive(Clone)]
pub struct Remote {
    pub(super) sender: Sender<Vec<u8>>,
}

impl Remote {
    /// Gives the engine orders, which it carries out in its next turn, and ends its wait.
    ///
    /// # Errors
    /// [`CommandError::Full`] when a million such bundles wait already.
    pub fn submit(&self, commands: Commands) -> Result<(), CommandError> {
        self.submit_bytes(commands.into_bytes())
    }

    /// As [`submit`](Self::submit), with orders that were written elsewhere.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_bytes(&self, commands: Vec<u8>) -> Result<(), CommandError> {
        self.sender.send(commands).map_err(|_| CommandError::Full)
    }

    /// Ends the wait of a turn.
    pub fn wake(&self) {
        self.sender.wake();
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}
