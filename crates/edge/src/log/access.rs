//! The access log: one JSON line per request.
//!
//! Each loop appends to a buffer of its own, which the [writer](LogWriter) writes out. A loop
//! never waits for the disk.

use super::json::JsonLine;
use super::losses::Losses;
use super::request_fields::FIELD_BYTES_MAX;
use super::request_fields::RequestFields;
use crate::config::AccessTarget;
use crate::metrics::ProcessMetrics;
use dwell_evloop::{LogAppender, LogOptions, LogSwitch, LogWriter};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The fields of one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessLine<'a> {
    /// Time at which the response was ready.
    pub time: SystemTime,
    /// The client.
    pub remote: SocketAddr,
    /// The method; empty if it was not kept.
    pub method: &'a str,
    /// The request target; empty if it was not kept.
    pub target: &'a str,
    /// The protocol, such as `HTTP/2`.
    pub protocol: &'a str,
    /// Headers of the request.
    pub fields: RequestFields<'a>,
    /// The prefix of its route, if it has one.
    pub route: Option<&'a str>,
    /// The key of a poll, if it has one.
    pub key: Option<&'a [u8]>,
    /// Status of the response.
    pub status: u16,
    /// Body of the response. Units: bytes.
    pub bytes: u64,
    /// Time from the end of the header section to the response, including time held.
    pub duration: Duration,
    /// The outcome, such as `hit`.
    pub outcome: &'a str,
    /// The server of a forwarded request, with the time to the head of its response.
    pub upstream: Option<(SocketAddr, Duration)>,
}

/// The access log of the process. When it is dropped, pending lines are written, for two seconds at
/// most.
#[derive(Debug)]
pub(crate) struct AccessLog(LogWriter);

impl AccessLog {
    /// Opens the target and starts the writing thread; `None` if the log is off.
    ///
    /// # Errors
    /// The error of opening the file or starting the thread.
    pub(crate) fn open(
        target: &AccessTarget,
        loops: usize,
        metrics: &ProcessMetrics,
    ) -> io::Result<Option<Self>> {
        let output = open(target)?;
        output
            .map(|output| Self::start(output, loops, metrics))
            .transpose()
    }

    /// A handle that changes the target.
    pub(crate) fn switch(&self) -> AccessSwitch {
        AccessSwitch(self.0.switch())
    }

    /// Starts the thread that writes to `output`.
    ///
    /// # Errors
    /// The error of starting the thread.
    pub(crate) fn start(
        output: impl Write + Send + 'static,
        loops: usize,
        metrics: &ProcessMetrics,
    ) -> io::Result<Self> {
        let log = "access log";
        let dropped = Arc::clone(&metrics.access_log_dropped);
        let options = LogOptions {
            name: log,
            buffers: loops,
            gather: GATHER,
            observer: Losses { log, dropped },
        };
        LogWriter::start(output, options).map(Self)
    }

    /// The writer of one loop.
    ///
    /// # Panics
    /// If there is no such loop.
    pub(crate) fn of_loop(&self, index: usize) -> AccessWriter {
        AccessWriter(self.0.appender(index))
    }
}

/// Opens the target; `None` if the log is off.
fn open(target: &AccessTarget) -> io::Result<Option<Box<dyn Write + Send>>> {
    Ok(match target {
        AccessTarget::Off => None,
        AccessTarget::Stdout => Some(Box::new(io::stdout())),
        AccessTarget::File(path) => {
            let file = open_file(path)?;
            Some(Box::new(file))
        }
    })
}

/// Opens a file or a FIFO. A FIFO without a reader does not block: lines that are not read are
/// dropped and counted.
fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    options.custom_flags(OFlag::O_NONBLOCK.bits());
    let opened = options.open(path);
    match &opened {
        // The FIFO has no reader yet. Opened for reading as well, it needs none.
        Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => {
            options.read(true).open(path)
        }
        _ => opened,
    }
}

/// Changes the target of a running access log.
#[derive(Clone, Debug)]
pub(crate) struct AccessSwitch(LogSwitch);

impl AccessSwitch {
    /// Writes to `target` from now on. The target is reopened even if it is the same, for log
    /// rotation. `Off` changes nothing.
    ///
    /// # Errors
    /// The error of opening the file; the old target stays in use.
    pub(crate) fn switch_to(&self, target: &AccessTarget) -> io::Result<()> {
        if let Some(output) = open(target)? {
            self.0.switch_to(output);
        }
        Ok(())
    }
}

/// The writer of one loop.
#[derive(Clone, Debug)]
pub(crate) struct AccessWriter(LogAppender);

impl AccessWriter {
    /// Appends one line, which is written within 50 ms. If the loop's buffer is full, the line is
    /// dropped and counted.
    pub(crate) fn write(&self, line: &AccessLine<'_>) {
        self.0.append(|buffer| line.append_to(buffer));
    }
}

impl AccessLine<'_> {
    fn append_to(&self, out: &mut Vec<u8>) {
        let mut line = JsonLine::begin(out, self.time, "info", format_args!("request"));
        line.display("remote", format_args!("{}", self.remote));
        line.text("method", cut(self.method, METHOD_BYTES_MAX));
        line.text("target", cut(self.target, TARGET_BYTES_MAX));
        line.text("protocol", self.protocol);
        let RequestFields {
            host,
            user_agent,
            request_id,
            trace,
        } = self.fields;
        bytes(&mut line, "host", host);
        if let Some(route) = self.route {
            line.text("route", cut(route, TARGET_BYTES_MAX));
        }
        bytes(&mut line, "key", self.key);
        line.number("status", self.status.into());
        line.number("bytes", self.bytes);
        // 64 bits of microseconds last for half a million years.
        line.number("duration_us", self.duration.as_micros() as u64);
        line.text("outcome", self.outcome);
        if let Some((server, waited)) = self.upstream {
            line.display("upstream", format_args!("{server}"));
            line.number("upstream_us", waited.as_micros() as u64);
        }
        bytes(&mut line, "user_agent", user_agent);
        bytes(&mut line, "request_id", request_id);
        if let Some(trace) = &trace {
            line.display("trace_id", format_args!("{trace}"));
        }
        line.end();
    }
}

/// Adds a member of bytes that a client has sent, if they are there.
fn bytes(line: &mut JsonLine<'_>, name: &str, value: Option<&[u8]>) {
    if let Some(value) = value {
        let value = &value[..value.len().min(FIELD_BYTES_MAX)];
        line.text(name, &String::from_utf8_lossy(value));
    }
}

/// The beginning of a text, of whole characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev();
    let end = end.into_iter().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Bytes of a method in a line.
const METHOD_BYTES_MAX: usize = 64;

/// Bytes of a target, or of the prefix of a route, in a line.
const TARGET_BYTES_MAX: usize = 8 << 10;

/// Longest time that the writer waits for more lines once it has some.
const GATHER: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
