//! The access log: one JSON line per request.
//!
//! Each loop appends to a buffer of its own, which the [writer](LogWriter) writes out. A loop
//! never waits for the disk.

use super::losses::Losses;
use super::time::write_rfc3339;
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
    /// The method; empty if the request could not be parsed.
    pub method: &'a str,
    /// The request target; empty if the request could not be parsed.
    pub target: &'a str,
    /// The protocol, such as `HTTP/2`.
    pub protocol: &'a str,
    /// Status of the response.
    pub status: u16,
    /// Body of the response. Units: bytes.
    pub bytes: u64,
    /// Time from the end of the header section to the response, including time held.
    pub duration: Duration,
    /// The outcome, such as `hit`.
    pub outcome: &'a str,
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
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(b"{\"time\":\"");
        write_rfc3339(out, self.time);
        // Writing to a Vec cannot fail.
        let _ = write!(out, "\",\"remote\":\"{}\",\"method\":\"", self.remote);
        escape(out, self.method);
        out.extend_from_slice(b"\",\"target\":\"");
        escape(out, self.target);
        out.extend_from_slice(b"\",\"protocol\":\"");
        out.extend_from_slice(self.protocol.as_bytes());
        out.extend_from_slice(b"\",\"status\":");
        out.extend_from_slice(number.format(self.status).as_bytes());
        out.extend_from_slice(b",\"bytes\":");
        out.extend_from_slice(number.format(self.bytes).as_bytes());
        out.extend_from_slice(b",\"duration_us\":");
        out.extend_from_slice(number.format(self.duration.as_micros()).as_bytes());
        out.extend_from_slice(b",\"outcome\":\"");
        escape(out, self.outcome);
        out.extend_from_slice(b"\"}\n");
    }
}

/// Appends `text` as the inside of a JSON string. Source: RFC 8259 section 7.
fn escape(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    while let Some(place) = rest.iter().position(is_special) {
        out.extend_from_slice(&rest[..place]);
        // The special characters are ASCII, and so are their replacements.
        let _ = write!(out, "\\u{:04x}", rest[place]);
        rest = &rest[place + 1..];
    }
    out.extend_from_slice(rest);
}

/// Longest time that the writer waits for more lines once it has some.
const GATHER: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
