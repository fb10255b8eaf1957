//! Errors, as the exceptions of Python.

use super::errand::PATIENCE;
use super::shared::Unavailable;
use dwell_engine::manager::{ConnError, ManagerError, WakeupError};
use pyo3::exceptions::{PyBlockingIOError, PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::fmt::Display;
use std::io;

/// Makes the exception of a call on a connection that is gone.
pub(super) fn closed() -> PyErr {
    PyRuntimeError::new_err("Connection has been closed")
}

/// Makes the exception of a call on a manager that is gone.
pub(super) fn freed() -> PyErr {
    PyRuntimeError::new_err("Manager has been freed")
}

pub(super) fn unavailable(why: Unavailable) -> PyErr {
    match why {
        Unavailable::Freed => freed(),
        Unavailable::Forked => PyRuntimeError::new_err(
            "Manager belongs to the process that made it; make a new one after os.fork()",
        ),
        Unavailable::Here => PyRuntimeError::new_err(
            "this cannot be done while a handler of the same Manager is running a call into it",
        ),
        Unavailable::Elsewhere => PyRuntimeError::new_err(
            "another thread is in poll(); this can be done by that thread only",
        ),
        Unavailable::Busy => PyRuntimeError::new_err(format!(
            "the thread in poll() has not answered within {} s; a handler of it may be waiting \
             for this thread",
            PATIENCE.as_secs()
        )),
    }
}

/// Makes the exception of a `poll` or `run` that cannot begin.
pub(super) fn not_reentrant(why: Unavailable) -> PyErr {
    match why {
        Unavailable::Here | Unavailable::Elsewhere => PyRuntimeError::new_err(
            "poll() is not reentrant and must not be called concurrently. \
             It runs already, in this thread or another one.",
        ),
        why => unavailable(why),
    }
}

pub(super) fn of_conn(error: &ConnError) -> PyErr {
    match error {
        ConnError::Closed => closed(),
        ConnError::Full { .. } => PyBlockingIOError::new_err((EAGAIN, error.to_string())),
        ConnError::Status(status) => {
            PyValueError::new_err(format!("status code is not from 200 to 599: {status}"))
        }
        ConnError::FieldName(_)
        | ConnError::FieldValue(_)
        | ConnError::Event(_)
        | ConnError::TooLong { .. }
        | ConnError::RequestLine => PyValueError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

pub(super) fn of_wakeup(error: WakeupError) -> PyErr {
    match error {
        WakeupError::Closed => freed(),
        _ => PyBlockingIOError::new_err((EAGAIN, error.to_string())),
    }
}

/// Makes the exception of a manager's error: `Failed to listen on 'URL': cause`, with the system's
/// error as the cause.
pub(super) fn of_manager(py: Python<'_>, error: ManagerError) -> PyErr {
    match error {
        ManagerError::Closed => freed(),
        ManagerError::Listen { url, cause } => failed(py, "listen on", &url, &cause),
        ManagerError::Connect { url, cause } => failed(py, "connect to", &url, &cause),
        ManagerError::Loop(cause) => of_io(&cause),
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

/// A URL that cannot be used raises what is both a `RuntimeError` and a `ValueError`.
pub(super) fn of_url(py: Python<'_>, verb: &str, url: &str, fault: &dyn Display) -> PyErr {
    let text = format!("Failed to {verb} '{url}': {fault}");
    match url_error(py) {
        Ok(class) => match class.call1((text,)) {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        },
        Err(error) => error,
    }
}

/// The class `dwell.UrlError`.
pub(super) fn url_error(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || {
        let events = py.import("dwell._events")?;
        events.getattr("UrlError").map(Bound::unbind)
    })?;
    Ok(class.bind(py).clone())
}

fn failed(py: Python<'_>, verb: &str, url: &str, cause: &io::Error) -> PyErr {
    let text = text_of(cause);
    let error = PyRuntimeError::new_err(format!("Failed to {verb} '{url}': {text}"));
    error.set_cause(py, Some(of_io(cause)));
    error
}

/// An `OSError` with its number, which gives it its class.
fn of_io(error: &io::Error) -> PyErr {
    match error.raw_os_error() {
        // Called with two arguments, `OSError` makes `FileNotFoundError` and the like by itself.
        Some(number) => PyOSError::new_err((number, text_of(error))),
        None => PyOSError::new_err(error.to_string()),
    }
}

/// Returns the system's message, without the number that Rust puts behind it.
fn text_of(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}

pub(super) fn wrong_type(wanted: &str, given: &Bound<'_, PyAny>) -> PyErr {
    let name = given.get_type().qualname();
    let name = name.map_or_else(|_| "object".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{wanted} is required, not '{name}'"))
}

/// The number of "try again" (`errno.EAGAIN`).
#[cfg(target_os = "macos")]
const EAGAIN: i32 = 35;
#[cfg(not(target_os = "macos"))]
const EAGAIN: i32 = 11;
