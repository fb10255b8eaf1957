//! The access log: a line on standard output for each answer.

use super::address::Origin;
use dwell_engine::ExchangeId;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Instant, SystemTime};

/// Lines that wait for the end of the turn, and the requests that are under way.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    is_on: bool,
    open: HashMap<ExchangeId, Record>,
    lines: String,
}

#[derive(Debug)]
struct Record {
    started: Instant,
    client: String,
    request: String,
    status: u16,
    bytes: u64,
}

impl AccessLog {
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            ..Self::default()
        }
    }

    /// A request has come.
    pub(crate) fn begin(
        &mut self,
        exchange: ExchangeId,
        now: Instant,
        method: &[u8],
        target: &[u8],
        origin: &Origin,
    ) {
        if !self.is_on {
            return;
        }
        let client = match origin.client {
            Some((address, _)) => address.to_string(),
            None => "unix".to_owned(),
        };
        let request = format!("{} {}", method.escape_ascii(), target.escape_ascii());
        let record = Record {
            started: now,
            client,
            request,
            status: 0,
            bytes: 0,
        };
        self.open.insert(exchange, record);
    }

    /// Its answer has begun.
    pub(crate) fn status(&mut self, exchange: ExchangeId, status: u16) {
        if self.is_on
            && let Some(record) = self.open.get_mut(&exchange)
        {
            record.status = status;
        }
    }

    /// So much of its body was given to the engine.
    pub(crate) fn bytes(&mut self, exchange: ExchangeId, bytes: u64) {
        if self.is_on
            && let Some(record) = self.open.get_mut(&exchange)
        {
            record.bytes += bytes;
        }
    }

    /// Its answer is complete, or nobody waits for it any more.
    pub(crate) fn end(&mut self, exchange: ExchangeId, wall: SystemTime, complete: bool) {
        if !self.is_on {
            return;
        }
        let Some(record) = self.open.remove(&exchange) else {
            return;
        };
        let elapsed = record.started.elapsed();
        let milliseconds = elapsed.as_secs_f64() * 1000.0;
        let time = httpdate::fmt_http_date(wall);
        let cut = if complete { "" } else { " (client left)" };
        // Writing to a string does not fail.
        let _ = writeln!(
            self.lines,
            "{time}  {}  {}  {}  {} B  {milliseconds:.1} ms{cut}",
            record.client, record.request, record.status, record.bytes,
        );
    }

    /// Writes what the turn has collected.
    pub(crate) fn flush(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        // Nobody can be told that the log cannot be written.
        let _ = std::io::stdout().write_all(self.lines.as_bytes());
        let _ = std::io::stdout().flush();
        self.lines.clear();
    }
}
