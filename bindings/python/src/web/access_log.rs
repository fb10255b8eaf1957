//! The access log: a line on standard output for each answer.

use super::address::Origin;
use super::log_format::{Answered, LogFormat};
use dwell_engine::Request;
use dwell_evloop::{LogAppender, LogOptions, LogWriter};
use std::io::{self, Write as _};
use std::time::{Duration, Instant, SystemTime};
use std::{mem, process};

/// Lines that wait for the end of the turn.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    /// The form of its lines, if it is on.
    format: Option<LogFormat>,
    lines: String,
    /// Absent until there are lines: a process that forks does so before it serves.
    output: Option<Output>,
}

/// The thread that writes the lines, so that the loop does not wait for their reader.
#[derive(Debug)]
struct Output {
    appender: LogAppender,
    /// Dropped, it writes what is left.
    writer: Option<LogWriter>,
    /// The process whose thread writes.
    process: u32,
}

/// The entry of a request that is under way.
#[derive(Debug)]
pub(crate) struct Record {
    started: Instant,
    client: String,
    /// Parts of the request that the form asks for.
    request: Vec<String>,
    pub(crate) status: u16,
    /// Bytes of the answer's body that were given to the engine.
    pub(crate) bytes: u64,
}

impl AccessLog {
    pub(crate) fn new(format: Option<LogFormat>) -> Self {
        Self {
            format,
            ..Self::default()
        }
    }

    /// Begins the entry of a request that has come.
    pub(crate) fn begin(
        &self,
        request: &Request<'_>,
        now: Instant,
        origin: &Origin,
    ) -> Option<Box<Record>> {
        let format = self.format.as_ref()?;
        let client = match origin.client {
            Some((address, _)) => address.to_string(),
            None => "unix".to_owned(),
        };
        Some(Box::new(Record {
            started: now,
            client,
            request: format.capture(request.head),
            status: 0,
            bytes: 0,
        }))
    }

    /// Ends an entry: its response, of this status if it is not noted, is complete, or the client
    /// has left.
    pub(crate) fn end(
        &mut self,
        record: Option<Box<Record>>,
        status: Option<u16>,
        wall: SystemTime,
        complete: bool,
    ) {
        let (Some(format), Some(record)) = (&self.format, record) else {
            return;
        };
        let answered = Answered {
            request: &record.request,
            client: &record.client,
            status: status.unwrap_or(record.status),
            bytes: record.bytes,
            wall,
            elapsed: record.started.elapsed(),
            is_complete: complete,
        };
        format.write(&mut self.lines, &answered);
    }

    /// Hands the lines of the turn to the thread that writes them. There is no place to report that
    /// the log cannot be written, so lines without a reader are dropped.
    pub(crate) fn flush(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        if self.output.is_none() {
            self.output = Output::start().ok();
        }
        if let Some(Output { appender, .. }) = &self.output {
            for line in self.lines.split_inclusive('\n') {
                appender.append(|lines| lines.extend_from_slice(line.as_bytes()));
            }
        } else {
            // No thread is left.
            let _ = io::stdout().write_all(self.lines.as_bytes());
        }
        self.lines.clear();
    }
}

impl Output {
    fn start() -> io::Result<Self> {
        let options = LogOptions {
            name: "dwell-access-log",
            buffers: 1,
            gather: GATHER,
            observer: (),
        };
        let writer = LogWriter::start(io::stdout(), options)?;
        Ok(Self {
            appender: writer.appender(0),
            writer: Some(writer),
            process: process::id(),
        })
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.process != process::id() {
            // A child that was forked off has neither the thread nor anything to write.
            mem::forget(self.writer.take());
        }
    }
}

/// The time in which lines wait for others, so that they are written together.
const GATHER: Duration = Duration::from_millis(20);
