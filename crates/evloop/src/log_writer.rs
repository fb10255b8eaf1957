//! The writing of a log: in a thread of its own, so that no loop waits for its reader.
//!
//! Everything that is logged goes to a buffer, and the thread writes the buffers out. If a disk is
//! slow, or a pipe is not read, a buffer fills: lines are dropped and counted then.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use std::{fmt, mem};

/// The options of one log.
#[derive(Debug)]
pub struct LogOptions<O> {
    /// Its name, and that of its thread.
    pub name: &'static str,
    /// Buffers of 1 MiB: one for each thread that writes to it and should not wait for another.
    pub buffers: usize,
    /// The time for which the thread waits for more lines once it has some.
    pub gather: Duration,
    /// Is called for lines that are lost; `()` for none.
    pub observer: O,
}

/// An observer of a log, for when its lines are lost.
pub trait LogObserver: fmt::Debug + Send + Sync + 'static {
    /// Reports a number of lines that found no room, or could not be written. Called on the thread
    /// that logs, or that of the log.
    fn lost(&self, lines: u64);

    /// A write has failed; those that follow fail in silence, until one does not. Told by the
    /// thread.
    fn failed(&self, error: &io::Error);

    /// Lines are written again, after so many were lost. Told by the thread.
    fn recovered(&self, lines: u64);
}

impl LogObserver for () {
    fn lost(&self, _: u64) {}

    fn failed(&self, _: &io::Error) {}

    fn recovered(&self, _: u64) {}
}

/// A log that a thread writes. Dropped, it writes what is left, for two seconds at most.
///
/// ```
/// use dwell_evloop::{LogOptions, LogWriter};
/// use std::io::{Read, pipe};
/// use std::time::Duration;
///
/// let (mut reader, writer) = pipe()?;
/// let options = LogOptions {
///     name: "access log",
///     buffers: 1,
///     gather: Duration::from_millis(50),
///     observer: (),
/// };
/// let log = LogWriter::start(writer, options)?;
/// // This never waits, whatever becomes of the reader.
/// log.appender(0).append(|lines| lines.extend_from_slice(b"a line\n"));
/// drop(log);
/// let mut text = String::new();
/// reader.read_to_string(&mut text)?;
/// assert_eq!(text, "a line\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct LogWriter(Arc<Shared>);

/// One end at which lines are put in.
#[derive(Clone, Debug)]
pub struct LogAppender {
    shared: Arc<Shared>,
    index: usize,
}

/// Changes the output of a running log.
#[derive(Clone, Debug)]
pub struct LogSwitch(Arc<Shared>);

/// The longest that the end of a log takes: lines that are not written by then are lost.
const END_TIMEOUT: Duration = Duration::from_secs(2);

impl LogWriter {
    /// Starts the thread that writes to `output`.
    ///
    /// # Errors
    /// The error with which starting the thread failed.
    pub fn start(
        output: impl Write + Send + 'static,
        options: LogOptions<impl LogObserver>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(options));
        let of_thread = Arc::clone(&shared);
        let name = shared.name.replace(' ', "-");
        let write = move || of_thread.write_until_stopped(Box::new(output));
        // It is not joined, as it may wait for its reader for ever.
        thread::Builder::new().name(name).spawn(write)?;
        Ok(Self(shared))
    }

    /// The end with the buffer of this number.
    ///
    /// # Panics
    /// When there is no such buffer.
    pub fn appender(&self, index: usize) -> LogAppender {
        let name = self.0.name;
        assert!(index < self.0.buffers.len(), "no buffer {index} of {name}");
        LogAppender {
            shared: Arc::clone(&self.0),
            index,
        }
    }

    /// Returns the switch by which its output is changed.
    pub fn switch(&self) -> LogSwitch {
        LogSwitch(Arc::clone(&self.0))
    }

    /// Waits until all lines so far are written, for at most `timeout`; returns false if some
    /// are not.
    pub fn flush(&self, timeout: Duration) -> bool {
        let mut state = lock(&self.0.state);
        state.asked += 1;
        let asked = state.asked;
        self.0.changed.notify_one();
        let is_owed = |state: &mut State| state.done < asked && !state.has_ended;
        let waited = self.0.written.wait_timeout_while(state, timeout, is_owed);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.done >= asked || state.has_ended
    }

    /// Writes the remaining lines, and ends the thread; returns false if `timeout` ended that.
    pub fn end(&self, timeout: Duration) -> bool {
        lock(&self.0.state).stop = true;
        self.flush(timeout)
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.end(END_TIMEOUT);
    }
}

impl LogAppender {
    /// Lets `write` append lines, which are on their way within moments; drops and counts them when
    /// the buffer is full.
    pub fn append(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut buffer = lock(&self.shared.buffers[self.index]);
        if buffer.lines.len() >= BUFFER_BYTES_MAX {
            buffer.dropped += 1;
            self.shared.observer.lost(1);
            return;
        }
        self.put(buffer, write);
    }

    /// Appends as [`append`](Self::append) does, for rare lines that must not be lost.
    pub fn append_always(&self, write: impl FnOnce(&mut Vec<u8>)) {
        self.put(lock(&self.shared.buffers[self.index]), write);
    }

    fn put(&self, mut buffer: MutexGuard<'_, Buffer>, write: impl FnOnce(&mut Vec<u8>)) {
        let is_first = buffer.lines.is_empty();
        write(&mut buffer.lines);
        drop(buffer);
        // The thread is woken once for all lines until it takes the buffer.
        if is_first {
            lock(&self.shared.state).pending = true;
            self.shared.changed.notify_one();
        }
    }
}

impl LogSwitch {
    /// Writes to `output` from now on.
    pub fn switch_to(&self, output: Box<dyn Write + Send>) {
        lock(&self.0.state).next_output = Some(NextOutput(output));
        self.0.changed.notify_one();
    }
}

#[derive(Debug)]
struct Shared {
    name: &'static str,
    gather: Duration,
    observer: Box<dyn LogObserver>,
    buffers: Box<[Mutex<Buffer>]>,
    state: Mutex<State>,
    /// Signalled when the thread has something to do.
    changed: Condvar,
    /// Signalled when the thread has written what was requested.
    written: Condvar,
}

#[derive(Debug, Default)]
struct Buffer {
    lines: Vec<u8>,
    /// Lines it had no room for since the thread has looked.
    dropped: u64,
}

#[derive(Debug, Default)]
struct State {
    pending: bool,
    stop: bool,
    has_ended: bool,
    /// The number of requests to write everything, and of those that were met.
    asked: u64,
    done: u64,
    /// The output of the next lines, if not that of the last ones.
    next_output: Option<NextOutput>,
}

struct NextOutput(Box<dyn Write + Send>);

impl fmt::Debug for NextOutput {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NextOutput")
    }
}

/// The next work of the thread.
struct Round {
    stop: bool,
    asked: u64,
    next_output: Option<NextOutput>,
}

/// The losses that the thread has not reported yet.
#[derive(Debug, Default)]
struct Losses {
    untold: u64,
    is_failing: bool,
}

impl Shared {
    fn new(options: LogOptions<impl LogObserver>) -> Self {
        Self {
            name: options.name,
            gather: options.gather,
            observer: Box::new(options.observer),
            buffers: (0..options.buffers).map(|_| Mutex::default()).collect(),
            state: Mutex::default(),
            changed: Condvar::new(),
            written: Condvar::new(),
        }
    }

    fn write_until_stopped(&self, mut output: Box<dyn Write + Send>) {
        let (mut losses, mut taken) = (Losses::default(), Vec::new());
        loop {
            let round = self.wait();
            if let Some(NextOutput(next)) = round.next_output {
                output = next;
            }
            // The last time once more: what was lost may have been told in this very log.
            for _ in 0..=usize::from(round.stop) {
                self.write_out(&mut *output, &mut taken, &mut losses);
            }
            let mut state = lock(&self.state);
            state.done = round.asked;
            state.has_ended = round.stop;
            drop(state);
            self.written.notify_all();
            if round.stop {
                return;
            }
        }
    }

    /// Sleeps until there are lines, then a moment for more of them.
    fn wait(&self) -> Round {
        let is_idle = |state: &mut State| {
            !state.pending
                && !state.stop
                && state.asked == state.done
                && state.next_output.is_none()
        };
        let waited = self.changed.wait_while(lock(&self.state), is_idle);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        let gather = self.gather;
        let gathers = |state: &mut State| !state.stop && state.asked == state.done;
        let gathered = self.changed.wait_timeout_while(state, gather, gathers);
        let (mut state, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        state.pending = false;
        Round {
            stop: state.stop,
            asked: state.asked,
            next_output: state.next_output.take(),
        }
    }

    fn write_out(&self, output: &mut dyn Write, taken: &mut Vec<u8>, losses: &mut Losses) {
        for buffer in &self.buffers {
            let mut buffer = lock(buffer);
            mem::swap(&mut buffer.lines, taken);
            losses.untold += mem::take(&mut buffer.dropped);
            drop(buffer);
            if taken.is_empty() {
                continue;
            }
            let result = write_all(output, taken).and_then(|()| output.flush());
            self.tell(&result, taken, losses);
            taken.clear();
            // One burst is no reason to keep its memory.
            taken.shrink_to(KEPT_BYTES_MAX);
        }
    }

    /// Counts the lines of a failed write, and reports the first failure of a row; reports the
    /// losses as soon as lines are written again.
    fn tell(&self, result: &io::Result<()>, lines: &[u8], losses: &mut Losses) {
        match result {
            Ok(()) => {
                losses.is_failing = false;
                let lines = mem::take(&mut losses.untold);
                if lines > 0 {
                    self.observer.recovered(lines);
                }
            }
            Err(error) => {
                let lost = line_ends(lines);
                losses.untold += lost;
                self.observer.lost(lost);
                if !mem::replace(&mut losses.is_failing, true) {
                    self.observer.failed(error);
                }
            }
        }
    }
}

/// Writes everything, also to a descriptor that another process has made non-blocking.
fn write_all(output: &mut dyn Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(RETRY_INTERVAL);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Nothing is left half-done under these locks, so what a panicking thread leaves is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn line_ends(lines: &[u8]) -> u64 {
    lines.split(|byte| *byte == b'\n').count() as u64 - 1
}

/// Bytes that may wait in one buffer; about 5,000 lines.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// Bytes that stay allocated for the next lines.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Between two attempts to write to what is full and does not block.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
