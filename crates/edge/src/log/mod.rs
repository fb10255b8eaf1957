//! Logs of the process: events for operators, and one line per request.

mod access;
mod events;
mod json;
mod losses;
mod outage;
mod recent;
mod request_fields;
mod throttle;
mod time;
mod trace;

pub(crate) use access::{AccessLine, AccessLog, AccessSwitch, AccessWriter};
pub use events::end;
pub(crate) use events::write_in_background;
pub(crate) use outage::Outage;
pub(crate) use recent::{events_number, recent_events};
pub(crate) use request_fields::{RequestFields, kept_fields};
pub(crate) use throttle::LogThrottle;
pub(crate) use time::write_rfc3339;
pub(crate) use trace::{TRACEPARENT, TraceId};

use events::{EventLine, JsonEvents};
use recent::RecentLayer;

use crate::config::{LogConfig, LogFormat, LogLevel};
use std::env;
use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, reload};

/// Logs the events of the whole process, and its panics, to standard error.
///
/// Shape: only the first call has an effect.
pub fn start(config: &LogConfig) {
    let (level, handle) = reload::Layer::new(filter(config.level));
    // The dashboard has its events whatever the level is.
    let recent = RecentLayer.with_filter(LevelFilter::INFO);
    let registry = tracing_subscriber::registry().with(recent);
    // The thread name tells which loop has logged an event.
    let events = fmt::layer()
        .with_thread_names(true)
        .log_internal_errors(false)
        .with_writer(|| EventLine);
    // The process has one subscriber: the first that is set.
    let started = match config.format {
        LogFormat::Text => {
            let events = events
                .with_target(false)
                .with_ansi(has_colors(&io::stderr()));
            registry.with(events.with_filter(level)).try_init()
        }
        LogFormat::Json => {
            let events = events.event_format(JsonEvents);
            registry.with(events.with_filter(level)).try_init()
        }
    };
    if started.is_ok() {
        // Set before anything ends or panics.
        let _ = FORMAT.set(config.format);
        events::tell_panics();
        // Fails only if the subscriber is gone.
        let _ = CHANGE_LEVEL.set(Box::new(move |level| drop(handle.reload(level))));
    }
}

/// Returns true if text for `out` may have colours: it is a terminal, and `NO_COLOR` is not set.
///
/// Source: <https://no-color.org>.
pub fn has_colors(out: &impl IsTerminal) -> bool {
    out.is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Changes the lowest severity that is logged; has no effect before [`start`].
pub(crate) fn change_level(level: LogLevel) {
    if let Some(change) = CHANGE_LEVEL.get() {
        change(filter(level));
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// The format of what is logged beside the events.
fn format() -> LogFormat {
    FORMAT.get().copied().unwrap_or(LogFormat::Text)
}

/// Set with the subscriber, of which the process has one.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Set with the subscriber, of which the process has one.
static CHANGE_LEVEL: OnceLock<Box<dyn Fn(LevelFilter) + Send + Sync>> = OnceLock::new();
