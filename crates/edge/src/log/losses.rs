//! Warnings about lost lines of a log.

use crate::metrics::SharedCounter;
use dwell_evloop::LogObserver;
use std::io;
use std::sync::Arc;

/// Counts and logs the lines that a log loses.
#[derive(Debug)]
pub(super) struct Losses {
    /// The name of the log.
    pub(super) log: &'static str,
    pub(super) dropped: Arc<SharedCounter>,
}

impl LogObserver for Losses {
    fn lost(&self, lines: u64) {
        self.dropped.add(lines);
    }

    fn failed(&self, error: &io::Error) {
        tracing::warn!(log = self.log, %error, "a log cannot be written");
    }

    fn recovered(&self, lines: u64) {
        tracing::warn!(
            log = self.log,
            lines,
            "lines of a log were dropped: its reader was too slow"
        );
    }
}
