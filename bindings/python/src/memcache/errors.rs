//! Errors of the client as Python's exceptions.

use dwell_memcache::{Error, ErrorKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// The exceptions' module; it is written in Python.
const MODULE: &str = "dwell._memcache_errors";

static CLASSES: PyOnceLock<Vec<(&'static str, Py<PyType>)>> = PyOnceLock::new();

/// The name of the exception for an error.
fn class_of(error: &Error) -> &'static str {
    match error {
        Error::Key(_) | Error::ValueTooLarge { .. } | Error::EmptyCommand => {
            "MemcacheIllegalInputError"
        }
        Error::Timeout { .. } => "MemcacheTimeoutError",
        Error::Resolve { .. }
        | Error::Connect { .. }
        | Error::Certificate { .. }
        | Error::Tls { written: false, .. }
        | Error::System { .. }
        | Error::TooManyConnections { .. }
        | Error::Unavailable { .. } => "MemcacheConnectError",
        Error::Closed { .. } | Error::Tls { .. } => "MemcacheUnexpectedCloseError",
        Error::ErrorLine { kind, .. } => match kind {
            ErrorKind::Error => "MemcacheUnknownCommandError",
            ErrorKind::ClientError => "MemcacheClientError",
            ErrorKind::ServerError => "MemcacheServerError",
        },
        _ => "MemcacheUnknownError",
    }
}

/// The exception for an error of an operation, or of making a client.
pub(super) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let is_of_options = matches!(
        error,
        Error::Address(_)
            | Error::NoServers
            | Error::ZeroWeight { .. }
            | Error::ZeroOption { .. }
            | Error::ServerName { .. }
    );
    if is_of_options {
        return PyValueError::new_err(error.to_string());
    }
    make(py, error).unwrap_or_else(|failed| failed)
}

/// The exception for something that cannot be sent.
pub(super) fn illegal_input(py: Python<'_>, text: &str) -> PyErr {
    let raise = || class(py, "MemcacheIllegalInputError")?.call1((text,));
    raise().map_or_else(|failed| failed, PyErr::from_value)
}

fn make(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let raised = class(py, class_of(error))?.call1((text_of(error),))?;
    raised.setattr("is_ambiguous", error.is_ambiguous())?;
    if let Some(place) = error.place() {
        raised.setattr("server", &*place.server)?;
        raised.setattr("operation", place.operation)?;
        raised.setattr("elapsed", place.elapsed.as_secs_f64())?;
    }
    Ok(PyErr::from_value(raised))
}

/// The error with its causes.
fn text_of(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    const NAMES: [&str; 7] = [
        "MemcacheIllegalInputError",
        "MemcacheTimeoutError",
        "MemcacheConnectError",
        "MemcacheUnexpectedCloseError",
        "MemcacheUnknownCommandError",
        "MemcacheClientError",
        "MemcacheServerError",
    ];
    let classes = CLASSES.get_or_try_init(py, || {
        let module = py.import(MODULE)?;
        let find = |name: &'static str| {
            let class = module.getattr(name)?.cast_into::<PyType>()?;
            Ok((name, class.unbind()))
        };
        NAMES
            .into_iter()
            .chain(["MemcacheUnknownError"])
            .map(find)
            .collect::<PyResult<Vec<_>>>()
    })?;
    let found = classes.iter().find(|(known, _)| *known == name);
    found
        .map(|(_, class)| class.bind(py).clone())
        .ok_or_else(|| PyValueError::new_err(format!("no exception {name}")))
}
