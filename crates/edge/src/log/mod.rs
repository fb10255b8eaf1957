//! What the process writes about itself: events for operators, and one line per request.

mod access;
mod time;

pub use access::{AccessLine, AccessLog, AccessWriter};
pub use time::write_rfc3339;

use crate::config::{LogConfig, LogFormat, LogLevel};
use std::io::{self, IsTerminal};
use tracing_subscriber::filter::LevelFilter;

/// Sends the events of the whole process to standard error.
///
/// Shape: the first call counts; a later one changes nothing.
pub fn start(config: &LogConfig) {
    let level = match config.level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let events = tracing_subscriber::fmt()
        .with_max_level(level)
        // Loops say the same things, each of its own clients and peers.
        .with_thread_names(true)
        .with_writer(io::stderr);
    // Whoever set a subscriber first keeps it: the process has one.
    let _ = match config.format {
        LogFormat::Text => events
            .with_target(false)
            .with_ansi(io::stderr().is_terminal())
            .try_init(),
        LogFormat::Json => events
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .try_init(),
    };
}
