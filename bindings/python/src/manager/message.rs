//! `HttpMessage` and `WsMessage`: views that are empty when their handler has returned.

use super::frame::with_view;
use super::values::text_of;
use super::view::View;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use std::sync::atomic::{AtomicU64, Ordering};

/// Values of `query_var` may have this many bytes.
const QUERY_VALUE_BYTES_MAX: usize = 2048;

/// A message that a handler is shown: the number of its loan, 0 for none.
#[derive(Default)]
pub(super) struct Loan(AtomicU64);

impl Loan {
    pub(super) fn set(&self, serial: u64) {
        self.0.store(serial, Ordering::Relaxed);
    }

    /// Reads the message; the default where it is no more.
    fn read<R: Default>(&self, read: impl FnOnce(&View<'_>) -> R) -> R {
        with_view(self.0.load(Ordering::Relaxed), read).unwrap_or_default()
    }

    pub(super) fn serial(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An HTTP request, or on a client a response.
#[pyclass(frozen, module = "dwell", name = "HttpMessage")]
#[derive(Default)]
pub(crate) struct HttpMessage {
    pub(super) loan: Loan,
}

#[pymethods]
impl HttpMessage {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// The method; empty for a response.
    #[getter]
    fn method<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        self.text(py, |view| match view.method() {
            "GET" => pyo3::intern!(py, "GET").clone(),
            "POST" => pyo3::intern!(py, "POST").clone(),
            other => PyString::new(py, other),
        })
    }

    /// The path, as it came.
    #[getter]
    fn uri<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        self.text(py, |view| PyString::new(py, view.path()))
    }

    /// The part after the `?`, as it came.
    #[getter]
    fn query<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        self.text(py, |view| PyString::new(py, view.query()))
    }

    /// `HTTP/1.1` or `HTTP/1.0`.
    #[getter]
    fn proto<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        self.text(py, |view| PyString::intern(py, view.version()))
    }

    /// The body.
    #[getter]
    fn body_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.loan
            .read(|view| Some(PyBytes::new(py, view.body())))
            .unwrap_or_else(|| PyBytes::new(py, b""))
    }

    /// The body as UTF-8; what is not becomes surrogates, as `surrogateescape` does.
    #[getter]
    fn body_text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        self.loan
            .read(|view| Some(text_of(py, view.body())))
            .unwrap_or_else(|| Ok(PyString::new(py, "")))
    }

    /// The value of the first header of that name, in any case.
    #[pyo3(signature = (name, default=None))]
    fn header<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self
            .loan
            .read(|view| view.field(name).map(|value| text_of(py, value)));
        match value {
            Some(value) => Ok(Some(value?.into_any())),
            None => Ok(default),
        }
    }

    /// Every header as (name, value), in the order they came.
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut fields = Vec::new();
        self.loan.read(|view| {
            view.for_each_field(|name, value| {
                let name = PyString::new(py, name);
                fields.push(text_of(py, value).map(|value| (name, value)));
            });
        });
        let fields = fields.into_iter().collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, fields)
    }

    /// The decoded value of a query variable; nothing where it is not there or empty.
    fn query_var(&self, name: &str) -> PyResult<Option<String>> {
        let value = self.loan.read(|view| match view {
            View::Http(message) => message.query_parameter(name),
            _ => None,
        });
        match value {
            Some(value) if value.len() > QUERY_VALUE_BYTES_MAX => {
                Err(PyValueError::new_err(format!(
                    "value of query variable '{name}' exceeds {QUERY_VALUE_BYTES_MAX} bytes: {}",
                    value.len()
                )))
            }
            value => Ok(value.filter(|value| !value.is_empty())),
        }
    }

    /// The status of a response; 0 of a request.
    fn status(&self) -> Option<u16> {
        self.loan.read(|view| Some(view.status().unwrap_or(0)))
    }

    /// A parameter of a header's value, such as `charset` of `Content-Type`.
    fn header_var(&self, header_name: &str, var_name: &str) -> Option<String> {
        self.loan.read(|view| {
            let value = std::str::from_utf8(view.field(header_name)?).ok()?;
            parameter(value, var_name).map(str::to_owned)
        })
    }

    fn __bool__(&self) -> bool {
        self.loan.read(|view| !matches!(view, View::None))
    }

    fn __repr__(&self) -> String {
        self.loan
            .read(|view| {
                Some(match view.status() {
                    Some(status) => format!("<HttpMessage {status}>"),
                    None => format!("<HttpMessage {} {}>", view.method(), view.path()),
                })
            })
            .unwrap_or_else(|| "<HttpMessage (no longer valid)>".to_owned())
    }
}

impl HttpMessage {
    fn text<'py>(
        &self,
        py: Python<'py>,
        read: impl FnOnce(&View<'_>) -> Bound<'py, PyString>,
    ) -> Bound<'py, PyString> {
        self.loan
            .read(|view| Some(read(view)))
            .unwrap_or_else(|| pyo3::intern!(py, "").clone())
    }
}

/// The value of a parameter of a field's value: of `charset` in `text/html; charset="utf-8"`.
fn parameter<'v>(value: &'v str, name: &str) -> Option<&'v str> {
    let parameters = value.split([';', ',', ' ']);
    parameters
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(known, _)| known.trim().eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim().trim_matches('"'))
}

/// A WebSocket message, or a control frame.
#[pyclass(frozen, module = "dwell", name = "WsMessage")]
#[derive(Default)]
pub(crate) struct WsMessage {
    pub(super) loan: Loan,
}

#[pymethods]
impl WsMessage {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// The payload.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.loan
            .read(|view| match view {
                View::WebSocket { data, .. } => Some(PyBytes::new(py, data)),
                _ => None,
            })
            .unwrap_or_else(|| PyBytes::new(py, b""))
    }

    /// The payload as UTF-8; what is not becomes surrogates.
    #[getter]
    fn text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        self.loan
            .read(|view| match view {
                View::WebSocket { data, .. } => Some(text_of(py, data)),
                _ => None,
            })
            .unwrap_or_else(|| Ok(PyString::new(py, "")))
    }

    /// The first byte of a frame that carries it whole: `flags & 15` is the opcode.
    #[getter]
    fn flags(&self) -> u8 {
        self.loan.read(|view| match view {
            View::WebSocket { flags, .. } => *flags,
            _ => 0,
        })
    }

    fn __bool__(&self) -> bool {
        self.loan
            .read(|view| matches!(view, View::WebSocket { .. }))
    }

    fn __repr__(&self) -> String {
        let told = self.loan.read(|view| match view {
            View::WebSocket { flags, data } => Some((*flags, data.len())),
            _ => None,
        });
        match told {
            Some((flags, bytes)) => format!("<WsMessage flags={flags:#04x} bytes={bytes}>"),
            None => "<WsMessage (no longer valid)>".to_owned(),
        }
    }
}
