//! Results of `receive` and `send`: the smallest awaitable objects.

use super::server::{AsgiServer, resolve};
use pyo3::exceptions::PyStopIteration;
use pyo3::intern;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something that may have to be waited for.
pub(super) trait Wait: Send + Sync {
    /// Takes the result for the awaiting code, if it is here.
    ///
    /// # Errors
    /// What the awaiting code gets instead.
    fn poll(&self, py: Python<'_>, server: &Bound<'_, AsgiServer>) -> PyResult<Option<Py<PyAny>>>;

    /// Keeps the future that is to be resolved when polling is worth it again.
    fn park(&self, future: &Bound<'_, PyAny>);
}

/// An awaitable, and all that makes a coroutine of it: tasks can be made of it too.
#[pyclass(frozen, module = "dwell._native")]
pub(super) struct Waiting {
    server: Py<AsgiServer>,
    wait: Box<dyn Wait>,
}

impl Waiting {
    pub(super) fn new(server: Py<AsgiServer>, wait: impl Wait + 'static) -> Self {
        Self {
            server,
            wait: Box::new(wait),
        }
    }

    /// The object that Python awaits.
    pub(super) fn into_bound(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, self)?.into_any())
    }
}

#[expect(
    clippy::unused_self,
    clippy::needless_pass_by_value,
    reason = "these are the methods of every coroutine"
)]
#[pymethods]
impl Waiting {
    fn __await__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let server = self.server.bind(py);
        if let Some(value) = self.wait.poll(py, server)? {
            if value.is_none(py) {
                return Ok(None);
            }
            return Err(PyStopIteration::new_err((value,)));
        }
        // A future that is yielded to its task says with this that it is meant to be.
        let future = server.get().future(py)?;
        future.setattr(intern!(py, "_asyncio_future_blocking"), true)?;
        self.wait.park(&future);
        Ok(Some(future.unbind()))
    }

    fn send(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<Option<Py<PyAny>>> {
        let _ = value;
        match self.__next__(py)? {
            None => Err(PyStopIteration::new_err(())),
            yielded => Ok(yielded),
        }
    }

    #[pyo3(signature = (kind, value=None, trace=None, /))]
    fn throw(
        &self,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        trace: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = trace;
        Err(thrown(kind, value))
    }

    fn close(&self) {}
}

/// Waits until the loop has come round once.
#[derive(Debug, Default)]
pub(super) struct Pause {
    is_over: AtomicBool,
}

impl Wait for Pause {
    fn poll(&self, py: Python<'_>, _: &Bound<'_, AsgiServer>) -> PyResult<Option<Py<PyAny>>> {
        let is_over = self.is_over.swap(true, Ordering::Relaxed);
        Ok(is_over.then(|| py.None()))
    }

    fn park(&self, future: &Bound<'_, PyAny>) {
        // A task waits for its loop even where the future is resolved already.
        if let Err(error) = resolve(future) {
            error.write_unraisable(future.py(), Some(future));
        }
    }
}

/// An awaitable that is ready at once, with the value `None`.
#[pyclass(frozen, module = "dwell._native")]
pub(super) struct Done;

#[expect(
    clippy::unused_self,
    clippy::needless_pass_by_value,
    reason = "these are the methods of every coroutine"
)]
#[pymethods]
impl Done {
    fn __await__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self) -> Option<Py<PyAny>> {
        None
    }

    fn send(&self, value: Py<PyAny>) -> PyResult<()> {
        let _ = value;
        Err(PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (kind, value=None, trace=None, /))]
    fn throw(
        &self,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        trace: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = trace;
        Err(thrown(kind, value))
    }

    fn close(&self) {}
}

/// The exception that `throw` raises: its value, or what stands in the place of its type.
fn thrown<'py>(kind: Bound<'py, PyAny>, value: Option<Bound<'py, PyAny>>) -> PyErr {
    let value = value.filter(|value| !value.is_none());
    PyErr::from_value(value.unwrap_or(kind))
}
