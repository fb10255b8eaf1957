//! Signals end a wait at once.
//!
//! A signal interrupts the wait of the thread that gets it, but one that comes just before the wait
//! begins would be noticed only when that ends. So the interpreter is made to write to a socket of
//! the loop when a signal comes, unless it writes to another socket already.

use dwell_engine::manager as engine;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread::ThreadId;

/// The changes that a manager has made so that signals wake it.
#[derive(Default)]
pub(super) struct SignalWakeup {
    /// The interpreter writes to it.
    socket: Option<UnixStream>,
    /// The thread that was checked last for hearing signals; each is checked once.
    asked: Option<ThreadId>,
}

impl SignalWakeup {
    /// Returns true if it is not known whether signals end the waits of this thread.
    pub(super) fn is_to_ask(&self) -> bool {
        self.socket.is_none() && self.asked != Some(std::thread::current().id())
    }

    /// Has signals wake `manager`, if this is the thread that hears them; true where they did not
    /// before: one that came earlier has woken nothing.
    ///
    /// # Errors
    /// The exception of a signal's handler that runs meanwhile.
    pub(super) fn ensure(
        &mut self,
        py: Python<'_>,
        manager: &mut engine::Manager,
    ) -> PyResult<bool> {
        let thread = std::thread::current().id();
        // Without it a signal still interrupts the wait, but for the moment before it.
        let mut socket = None;
        let may = exchange(py, |before| {
            if before != NONE {
                // Another manager's or an asyncio loop's, which hears of signals by it.
                return before;
            }
            socket = manager.interrupter().ok();
            socket.as_ref().map_or(NONE, UnixStream::as_raw_fd)
        })?;
        self.asked = Some(thread);
        if may {
            self.socket = socket;
        }
        Ok(self.socket.is_some())
    }

    /// Gives back what [`ensure`](Self::ensure) took.
    pub(super) fn release(&mut self, py: Python<'_>) {
        let Some(socket) = self.socket.take() else {
            return;
        };
        let ours = socket.as_raw_fd();
        let exchanged = exchange(py, |current| if current == ours { NONE } else { current });
        if !matches!(exchanged, Ok(true)) {
            // Only the main thread may do it. The interpreter goes on writing to the socket, so
            // its number must not become another one's.
            std::mem::forget(socket);
        }
    }
}

/// The descriptor that stands for none.
const NONE: i32 = -1;

/// Has the interpreter write to the descriptor that `choose` makes of the one before; false where
/// this is not the main thread, which alone may.
///
/// The one before is learned only by setting another one. So that no signal is lost meanwhile, that
/// is an end of ours, and what is written to it is passed on.
fn exchange(py: Python<'_>, choose: impl FnOnce(i32) -> i32) -> PyResult<bool> {
    // Without a descriptor to spare, a signal that comes meanwhile is not told.
    let meanwhile = nonblocking_pair().ok();
    let end = meanwhile.as_ref().map_or(NONE, |(_, end)| end.as_raw_fd());
    let before = match set_wakeup_fd(py, end) {
        Ok(before) => before,
        Err(error) if error.is_instance_of::<PyValueError>(py) => return Ok(false),
        Err(error) => return Err(error),
    };
    let next = choose(before);
    if let Err(error) = set_wakeup_fd(py, next) {
        // The number of our end is about to become another one's.
        set_wakeup_fd(py, NONE)?;
        return Err(error);
    }
    if let Some((heard, _)) = meanwhile
        && next != NONE
    {
        pass_on(py, heard, next);
    }
    Ok(true)
}

fn nonblocking_pair() -> io::Result<(UnixStream, UnixStream)> {
    let (heard, end) = UnixStream::pair()?;
    heard.set_nonblocking(true)?;
    end.set_nonblocking(true)?;
    Ok((heard, end))
}

/// Writes what was heard to another descriptor, up to the first error: the interpreter drops, too,
/// what a full one does not take.
fn pass_on(py: Python<'_>, mut heard: UnixStream, to: i32) {
    let mut bytes = [0; 64];
    while let Ok(count @ 1..) = heard.read(&mut bytes) {
        let written = py
            .import("os")
            .and_then(|os| os.call_method1("write", (to, PyBytes::new(py, &bytes[..count]))));
        if written.is_err() {
            break;
        }
    }
}

/// Calls `signal.set_wakeup_fd`, which only the main thread may.
fn set_wakeup_fd(py: Python<'_>, descriptor: i32) -> PyResult<i32> {
    let keywords = PyDict::new(py);
    keywords.set_item("warn_on_full_buffer", false)?;
    py.import("signal")?
        .call_method("set_wakeup_fd", (descriptor,), Some(&keywords))?
        .extract()
}

/// The handlers of SIGINT and SIGTERM while [`run`](super::Manager) runs.
pub(super) struct Handlers<'py> {
    signal: Bound<'py, PyModule>,
    before: Vec<(i32, Bound<'py, PyAny>)>,
}

/// The number of SIGINT on every Unix.
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

impl<'py> Handlers<'py> {
    /// Has `callback` called for both, where this is the main thread.
    pub(super) fn install(py: Python<'py>, callback: &Bound<'py, PyAny>) -> PyResult<Self> {
        let signal = py.import("signal")?;
        let mut handlers = Self {
            signal,
            before: Vec::new(),
        };
        let threading = py.import("threading")?;
        let main = threading.call_method0("main_thread")?;
        if threading.call_method0("current_thread")?.is(&main) {
            for number in [SIGINT, SIGTERM] {
                let before = handlers.signal.call_method1("signal", (number, callback))?;
                handlers.before.push((number, before));
            }
        }
        Ok(handlers)
    }

    /// Has them as they were before.
    pub(super) fn restore(self) -> PyResult<()> {
        for (number, before) in self.before {
            // One that was not installed from Python cannot be given back.
            if !before.is_none() {
                let arguments = PyTuple::new(
                    before.py(),
                    [number.into_pyobject(before.py())?.into_any(), before],
                )?;
                self.signal.call_method1("signal", arguments)?;
            }
        }
        Ok(())
    }
}
