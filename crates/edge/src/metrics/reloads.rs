//! Outcomes of reloads of the configuration.

use super::SharedCounter;
use super::labels::ReloadOutcome;
use serde::Serialize;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

/// Characters of an error that are kept.
const ERROR_CHARACTERS_MAX: usize = 500;

/// Outcomes of reloads.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    /// Configurations that were applied.
    pub taken: SharedCounter,
    /// Configurations that were rejected.
    pub refused: SharedCounter,
    /// Time of the last applied reload. Unix time, seconds; 0 if there was none.
    pub last_taken: AtomicU64,
    /// The configuration as the dashboard shows it.
    state: Mutex<ConfigState>,
}

/// The source of the configuration, and the outcome of the last reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ConfigState {
    /// Path of the file, if there is one.
    file: Option<String>,
    /// Time of the last reload, if there was one. Unix time, seconds.
    reloaded: Option<u64>,
    /// The error of the last reload, if it was rejected, as the log has it: without values of
    /// options that are secrets.
    error: Option<String>,
    /// Options whose new values need a restart.
    pub(crate) needs_restart: Vec<String>,
}

impl Reloads {
    /// Returns true if the last reload was rejected.
    pub(crate) fn is_last_refused(&self) -> bool {
        self.lock().error.is_some()
    }

    /// The number of those that were taken, and of those that were refused.
    pub(super) fn totals(&self) -> Vec<(&'static str, u64)> {
        vec![
            (ReloadOutcome::Taken.as_str(), self.taken.value()),
            (ReloadOutcome::Refused.as_str(), self.refused.value()),
        ]
    }

    /// Names the file of the configuration.
    pub(crate) fn name_file(&self, path: &impl Display) {
        self.lock().file = Some(path.to_string());
    }

    /// Notes the options whose new values need a restart.
    pub(crate) fn await_restart(&self, options: Vec<String>) {
        self.lock().needs_restart = options;
    }

    /// Counts a reload that was applied.
    pub(crate) fn count_taken(&self) {
        let now = unix_seconds();
        self.taken.add(1);
        self.last_taken.store(now, Ordering::Relaxed);
        let mut state = self.lock();
        (state.reloaded, state.error) = (Some(now), None);
    }

    /// Counts a reload that was rejected.
    pub(crate) fn count_refused(&self, error: &impl Display) {
        self.refused.add(1);
        let error = error.to_string();
        let error = error.chars().take(ERROR_CHARACTERS_MAX).collect();
        let mut state = self.lock();
        (state.reloaded, state.error) = (Some(unix_seconds()), Some(error));
    }

    /// The configuration as the dashboard shows it.
    pub(crate) fn state(&self) -> ConfigState {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, ConfigState> {
        // Changed in one step, so a panicking thread leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unix_seconds() -> u64 {
    let now = dwell_evloop::wall().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reload_has_the_outcome() {
        let reloads = Reloads::default();
        reloads.name_file(&"dwell.toml");
        assert!(!reloads.is_last_refused() && reloads.state().reloaded.is_none());
        reloads.count_refused(&"é".repeat(2 * ERROR_CHARACTERS_MAX));
        let error = reloads.state().error.expect("it was refused");
        assert_eq!(error.chars().count(), ERROR_CHARACTERS_MAX);
        assert!(reloads.is_last_refused());
        reloads.await_restart(vec!["server.pollers".to_owned()]);
        reloads.count_taken();
        let state = reloads.state();
        assert!(state.error.is_none() && state.reloaded.is_some());
        assert_eq!(state.file.as_deref(), Some("dwell.toml"));
        assert_eq!(state.needs_restart, ["server.pollers"]);
    }
}
