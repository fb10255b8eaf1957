//! The messages between the server and an app: their parts, and what is wrong with them.

use crate::web::answer::{AnswerHead, add_field};
use pyo3::exceptions::{PyConnectionResetError, PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyDict, PyString};

/// A message to the app.
pub(super) fn event(
    py: Python<'_>,
    kind: &Bound<'_, PyString>,
    fill: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>,
) -> PyResult<Option<Py<PyAny>>> {
    let event = PyDict::new(py);
    event.set_item(intern!(py, "type"), kind)?;
    fill(&event)?;
    Ok(Some(event.into_any().unbind()))
}

/// The `type` of a message.
pub(super) fn kind_of(message: &Bound<'_, PyDict>) -> PyResult<PyBackedStr> {
    message
        .get_item(intern!(message.py(), "type"))?
        .ok_or_else(|| PyValueError::new_err("message without a type"))?
        .extract()
}

/// Status and fields of a message that begins an answer.
pub(super) fn start_of(message: &Bound<'_, PyDict>) -> PyResult<AnswerHead> {
    let py = message.py();
    let status: u16 = message
        .get_item(intern!(py, "status"))?
        .ok_or_else(|| PyValueError::new_err("message without a status"))?
        .extract()?;
    if !(200..=599).contains(&status) {
        return Err(PyValueError::new_err(format!(
            "status is out of range: {status}"
        )));
    }
    let mut head = AnswerHead::new(status);
    fields_of(message, &mut head)?;
    Ok(head)
}

/// Adds the headers of a message to `head`.
pub(super) fn fields_of(message: &Bound<'_, PyDict>, head: &mut AnswerHead) -> PyResult<()> {
    let py = message.py();
    if let Some(headers) = message.get_item(intern!(py, "headers"))? {
        for field in headers.try_iter()? {
            add_field(head, &field?)?;
        }
    }
    Ok(())
}

/// The links of an early hint.
pub(super) fn links_of(message: &Bound<'_, PyDict>) -> PyResult<Vec<PyBackedBytes>> {
    message
        .get_item(intern!(message.py(), "links"))?
        .ok_or_else(|| PyValueError::new_err("message without links"))?
        .try_iter()?
        .map(|link| link?.extract().map_err(Into::into))
        .collect()
}

/// Bytes of a message, if there are any.
pub(super) fn bytes_of(
    message: &Bound<'_, PyDict>,
    name: &Bound<'_, PyString>,
) -> PyResult<Option<PyBackedBytes>> {
    match message.get_item(name)? {
        Some(data) if !data.is_none() => {
            let data: PyBackedBytes = data.extract()?;
            Ok((!data.is_empty()).then_some(data))
        }
        _ => Ok(None),
    }
}

/// Returns the flag `name` of a message; false without one.
pub(super) fn flag(message: &Bound<'_, PyDict>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    match message.get_item(name)? {
        Some(value) => value.is_truthy(),
        None => Ok(false),
    }
}

/// Makes the error for a message of an unknown type.
pub(super) fn unknown(kind: &str) -> PyErr {
    PyValueError::new_err(format!("unknown message: {kind:?}"))
}

/// Makes the error for a message out of turn.
pub(super) fn unexpected(kind: &str) -> PyErr {
    PyRuntimeError::new_err(format!("{kind} is not expected now"))
}

/// Makes the error for a message to a client that has left.
pub(super) fn left() -> PyErr {
    PyConnectionResetError::new_err("the client has left")
}

/// The answer to a piece of a body that goes beyond the announced length.
pub(super) fn too_long(limit: u64, length: u64) -> PyErr {
    PyRuntimeError::new_err(format!(
        "the body is longer than its Content-Length: {limit} bytes are left, {length} were given"
    ))
}
