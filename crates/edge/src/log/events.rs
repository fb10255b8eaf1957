//! Events for operators, on standard error.
//!
//! They are written at once until the process serves, and then through a [writer](LogWriter): a
//! loop that logs does not wait for a reader.

use super::json::{JsonLine, Message};
use super::losses::Losses;
use crate::config::LogFormat;
use crate::metrics::ProcessMetrics;
use dwell_evloop::{LogAppender, LogOptions, LogWriter, wall};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::{self, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The background writer of a process that serves.
struct Background {
    writer: LogWriter,
    appender: LogAppender,
}

/// One per process, as is standard error.
static BACKGROUND: OnceLock<Background> = OnceLock::new();

/// Starts a thread that writes events from now on, and counts lost lines.
///
/// Shape: only the first call has an effect. It is made after root privileges are dropped, because
/// a thread keeps the privileges that it was started with.
///
/// # Errors
/// The error of starting the thread; events are written as before.
pub(crate) fn write_in_background(metrics: &ProcessMetrics) -> io::Result<()> {
    if BACKGROUND.get().is_some() {
        return Ok(());
    }
    let background = Background::start(io::stderr(), metrics)?;
    // Only the first call sets it; the thread of a further one ends when it is dropped.
    let _ = BACKGROUND.set(background);
    Ok(())
}

/// Writes the pending events and the error that ends the process, if one does. Waits for a reader
/// for two seconds at most.
pub fn end(error: Option<&dyn fmt::Display>) {
    let last_words = error.map_or_else(String::new, |error| match super::format() {
        LogFormat::Text => format!("dwell: {error}\n"),
        LogFormat::Json => error_line(format_args!("{error}"), |_| ()),
    });
    match BACKGROUND.get() {
        Some(background) => background.report(&last_words, END_TIMEOUT),
        // An error of standard error cannot be reported.
        None => drop(io::stderr().write_all(last_words.as_bytes())),
    }
}

/// A line in JSON that is written whatever the level is.
fn error_line(message: fmt::Arguments<'_>, fields: impl FnOnce(&mut JsonLine<'_>)) -> String {
    let mut out = Vec::new();
    let mut line = JsonLine::begin(&mut out, wall(), "error", message);
    fields(&mut line);
    line.end();
    String::from_utf8_lossy(&out).into_owned()
}

/// Events as lines in JSON.
pub(super) struct JsonEvents;

impl<S, N> FormatEvent<S, N> for JsonEvents
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = Message::default();
        event.record(&mut message);
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        let mut out = Vec::new();
        let message = format_args!("{}", message.0);
        let mut line = JsonLine::begin(&mut out, wall(), &level, message);
        if let Some(thread) = thread::current().name() {
            line.own("thread", thread);
        }
        line.own("module", event.metadata().target());
        event.record(&mut line);
        line.end();
        // All of it is text.
        writer.write_str(&String::from_utf8_lossy(&out))
    }
}

/// Logs panics like events, and waits for a moment until they are written: the process may be about
/// to end.
pub(super) fn tell_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| match BACKGROUND.get() {
        Some(background) => background.report(&shown(panic), PANIC_TIMEOUT),
        None if super::format() == LogFormat::Json => {
            drop(io::stderr().write_all(shown(panic).as_bytes()));
        }
        None => before(panic),
    }));
}

/// The message that the standard library prints for a panic, or a line with it.
fn shown(panic: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let backtrace = Backtrace::capture();
    let has_backtrace = backtrace.status() == BacktraceStatus::Captured;
    match (super::format(), has_backtrace) {
        (LogFormat::Json, _) => error_line(format_args!("{panic}"), |line| {
            line.own("thread", name);
            if has_backtrace {
                line.display("backtrace", format_args!("{backtrace}"));
            }
        }),
        (LogFormat::Text, true) => format!("\nthread '{name}' {panic}\n{backtrace}\n"),
        (LogFormat::Text, false) => format!("\nthread '{name}' {panic}\n"),
    }
}

impl Background {
    fn start(output: impl Write + Send + 'static, metrics: &ProcessMetrics) -> io::Result<Self> {
        let log = "log";
        let dropped = Arc::clone(&metrics.log_dropped);
        let options = LogOptions {
            name: log,
            buffers: 1,
            gather: Duration::ZERO,
            observer: Losses { log, dropped },
        };
        let writer = LogWriter::start(output, options)?;
        let appender = writer.appender(0);
        Ok(Self { writer, appender })
    }

    /// Writes text that must not be lost, and waits for `timeout` at most.
    fn report(&self, text: &str, timeout: Duration) {
        self.appender
            .append_always(|lines| lines.extend_from_slice(text.as_bytes()));
        self.writer.flush(timeout);
    }
}

/// The output of one event.
pub(super) struct EventLine;

impl Write for EventLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match BACKGROUND.get() {
            Some(background) => {
                let appender = &background.appender;
                appender.append(|lines| lines.extend_from_slice(bytes));
                Ok(bytes.len())
            }
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Longest time that the last act of a process takes.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest time that a panicking thread waits until its message is written.
const PANIC_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn last_words_come_behind_all_that_waits_and_wait_for_nobody() {
        let (mut reader, output) = io::pipe().unwrap();
        let background = Background::start(output, &ProcessMetrics::default()).unwrap();
        // More than the pipe and a buffer take.
        let line = [b'e'; 1_000];
        for _ in 0..3_000 {
            background
                .appender
                .append(|lines| lines.extend_from_slice(&line));
        }
        background.report("the reason\n", Duration::from_millis(20));
        drop(background.writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("the reason\n"), "it is not lost");
    }
}
