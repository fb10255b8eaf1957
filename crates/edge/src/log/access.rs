//! The access log: one JSON line per request.
//!
//! Each loop appends to a buffer of its own, and one thread writes the buffers out. A loop never
//! waits for the disk: when its buffer is full, lines are dropped and counted.

use super::time::write_rfc3339;
use crate::config::AccessTarget;
use crate::metrics::ProcessMetrics;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::mem;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

/// What is said of one request.
#[derive(Clone, Copy, Debug)]
pub struct AccessLine<'a> {
    /// When the answer was ready.
    pub time: SystemTime,
    /// The client.
    pub remote: SocketAddr,
    /// The method, or nothing where the request could not be read.
    pub method: &'a str,
    /// The request target, or nothing where the request could not be read.
    pub target: &'a str,
    /// Status of the answer.
    pub status: u16,
    /// Body of the answer. Units: bytes.
    pub bytes: u64,
    /// From the end of the header section to the answer, the time held included.
    pub duration: Duration,
    /// How it was answered, such as `hit`.
    pub outcome: &'a str,
}

/// The access log of the process; dropping it writes what is left.
#[derive(Debug)]
pub struct AccessLog {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Opens the target and starts the writing thread; `None` when the log is off.
    ///
    /// # Errors
    /// What opening the file or starting the thread failed with.
    pub fn open(
        target: &AccessTarget,
        loops: usize,
        metrics: Arc<ProcessMetrics>,
    ) -> io::Result<Option<Self>> {
        let output = open(target)?;
        output
            .map(|output| Self::start(output, loops, metrics))
            .transpose()
    }

    /// What tells it to write elsewhere.
    pub fn switch(&self) -> AccessSwitch {
        AccessSwitch(Arc::clone(&self.shared))
    }

    /// Starts the thread that writes to `output`.
    ///
    /// # Errors
    /// What starting the thread failed with.
    pub fn start(
        output: impl Write + Send + 'static,
        loops: usize,
        metrics: Arc<ProcessMetrics>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            buffers: (0..loops).map(|_| Mutex::default()).collect(),
            state: Mutex::default(),
            changed: Condvar::new(),
            metrics,
        });
        let of_writer = Arc::clone(&shared);
        let writer = thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || of_writer.write_until_stopped(Box::new(output)))?;
        Ok(Self {
            shared,
            writer: Some(writer),
        })
    }

    /// The end one loop writes to.
    ///
    /// # Panics
    /// When there is no such loop.
    pub fn of_loop(&self, index: usize) -> AccessWriter {
        assert!(index < self.shared.buffers.len(), "no loop {index}");
        AccessWriter {
            shared: Arc::clone(&self.shared),
            index,
        }
    }
}

/// What an access log writes to; `None` when it is off.
fn open(target: &AccessTarget) -> io::Result<Option<Box<dyn Write + Send>>> {
    Ok(match target {
        AccessTarget::Off => None,
        AccessTarget::Stdout => Some(Box::new(io::stdout())),
        AccessTarget::File(path) => {
            let file = OpenOptions::new().append(true).create(true).open(path)?;
            Some(Box::new(file))
        }
    })
}

/// Tells a running access log where to write.
#[derive(Clone, Debug)]
pub struct AccessSwitch(Arc<Shared>);

impl AccessSwitch {
    /// Writes to `target` from now on, which is opened anew even if it is the same: whoever moves
    /// log files away asks for that. Off changes nothing.
    ///
    /// # Errors
    /// What opening the file failed with; the lines go where they went before.
    pub fn switch_to(&self, target: &AccessTarget) -> io::Result<()> {
        if let Some(output) = open(target)? {
            lock(&self.0.state).next_output = Some(NextOutput(output));
            self.0.changed.notify_one();
        }
        Ok(())
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        lock(&self.shared.state).stop = true;
        self.shared.changed.notify_one();
        if let Some(writer) = self.writer.take() {
            // A panic of the writer has been reported by then, and nothing else depends on it.
            let _ = writer.join();
        }
    }
}

/// One loop's end of the access log.
#[derive(Clone, Debug)]
pub struct AccessWriter {
    shared: Arc<Shared>,
    index: usize,
}

impl AccessWriter {
    /// Appends one line, which is on its way to the disk within 50 ms; drops and counts it when
    /// the loop's buffer is full.
    pub fn write(&self, line: &AccessLine<'_>) {
        let mut buffer = lock(&self.shared.buffers[self.index]);
        if buffer.len() >= BUFFER_BYTES_MAX {
            self.shared.metrics.access_log_dropped.add(1);
            return;
        }
        let is_first = buffer.is_empty();
        line.append_to(&mut buffer);
        drop(buffer);
        // The writer is woken once for all lines until it takes the buffer.
        if is_first {
            lock(&self.shared.state).pending = true;
            self.shared.changed.notify_one();
        }
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

#[derive(Debug)]
struct Shared {
    /// One for each loop, touched by that loop and the writer.
    buffers: Box<[Mutex<Vec<u8>>]>,
    state: Mutex<State>,
    changed: Condvar,
    metrics: Arc<ProcessMetrics>,
}

#[derive(Debug, Default)]
struct State {
    pending: bool,
    stop: bool,
    /// Where the next lines go, if not where the last ones went.
    next_output: Option<NextOutput>,
}

struct NextOutput(Box<dyn Write + Send>);

impl fmt::Debug for NextOutput {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NextOutput")
    }
}

impl Shared {
    fn write_until_stopped(&self, mut output: Box<dyn Write + Send>) {
        let mut failing = false;
        let mut taken = Vec::new();
        loop {
            let stop = self.wait();
            if let Some(NextOutput(next)) = lock(&self.state).next_output.take() {
                output = next;
            }
            for buffer in &self.buffers {
                mem::swap(&mut *lock(buffer), &mut taken);
                if !taken.is_empty() {
                    let result = output.write_all(&taken);
                    self.count_failure(&result, &taken, &mut failing);
                    taken.clear();
                }
            }
            let _ = output.flush();
            if stop {
                return;
            }
        }
    }

    /// Sleeps until there are lines, then a moment for more of them; tells whether to stop.
    fn wait(&self) -> bool {
        let state = lock(&self.state);
        let waited = self.changed.wait_while(state, |state| {
            !state.pending && !state.stop && state.next_output.is_none()
        });
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        let gathered = self
            .changed
            .wait_timeout_while(state, GATHER, |state| !state.stop);
        let (mut state, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        state.pending = false;
        state.stop
    }

    /// Counts the lines of a failed write, and reports the first failure of a row.
    fn count_failure(&self, result: &io::Result<()>, lines: &[u8], failing: &mut bool) {
        match result {
            Ok(()) => *failing = false,
            Err(error) => {
                self.metrics.access_log_dropped.add(line_ends(lines));
                if !mem::replace(failing, true) {
                    tracing::warn!(%error, "the access log cannot be written");
                }
            }
        }
    }
}

/// Nothing is left half-done under these locks, so what a panicking thread leaves is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn line_ends(lines: &[u8]) -> u64 {
    lines.split(|byte| *byte == b'\n').count() as u64 - 1
}

/// Appends `text` as the inside of a JSON string. Source: RFC 8259 section 7.
fn escape(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    while let Some(place) = rest.iter().position(is_special) {
        out.extend_from_slice(&rest[..place]);
        // The special characters are ASCII, and so is what stands for them.
        let _ = write!(out, "\\u{:04x}", rest[place]);
        rest = &rest[place + 1..];
    }
    out.extend_from_slice(rest);
}

/// How long the writer waits for more lines once it has some.
const GATHER: Duration = Duration::from_millis(50);

/// What one loop may have waiting; about 5,000 lines.
const BUFFER_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
