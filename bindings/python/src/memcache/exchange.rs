//! Operations that Python carries out on connections of its own.

use super::secured::MemcacheSecured;
use dwell_memcache::{Error, Exchange, Interruption, Operation};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::fmt;
use std::io;

/// One request to one server, and the replies to it.
#[pyclass(module = "dwell._native")]
#[derive(Debug)]
pub(super) struct MemcacheExchange {
    /// It is given up when the operation takes its result.
    exchange: Option<Exchange>,
}

#[pymethods]
impl MemcacheExchange {
    /// The number of the server to be asked.
    #[getter]
    fn server(&self) -> usize {
        self.exchange.as_ref().map_or(0, Exchange::server)
    }

    /// The bytes of the request.
    #[getter]
    fn request<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.to_send())
    }

    #[getter]
    fn is_over(&self) -> bool {
        self.exchange.as_ref().is_none_or(Exchange::is_over)
    }

    #[getter]
    fn keeps_connection(&self) -> bool {
        self.exchange
            .as_ref()
            .is_some_and(Exchange::keeps_connection)
    }

    /// Takes what the server has sent; whether more is to come on this connection.
    fn receive(&mut self, data: &Bound<'_, PyBytes>) -> bool {
        let exchange = self.exchange.as_mut();
        exchange.is_some_and(|exchange| exchange.receive(data.as_bytes()))
    }

    /// Ends it because the time is over.
    fn time_out(&mut self, written: bool) {
        self.interrupt(Interruption::Timeout, written);
    }

    /// Takes that the connection has ended; `is_used` if it has carried another exchange before.
    fn close(&mut self, is_used: bool, written: bool) {
        self.interrupt(Interruption::Closed { is_used }, written);
    }

    /// Takes that no connection could be made.
    fn refuse(&mut self, reason: String, is_lookup: bool) {
        let interruption = if is_lookup {
            Interruption::Resolve(reason)
        } else {
            Interruption::Connect(io::Error::other(reason))
        };
        self.interrupt(interruption, false);
    }

    /// Takes that TLS of the connection has failed; `written` if it had carried the request.
    fn fail(&mut self, secured: &MemcacheSecured, written: bool) {
        if let Some(fault) = secured.fault() {
            self.interrupt(Interruption::Tls(fault), written);
        }
    }
}

impl MemcacheExchange {
    /// The bytes of the request.
    pub(super) fn to_send(&self) -> &[u8] {
        self.exchange.as_ref().map_or(&[], Exchange::request)
    }

    fn interrupt(&mut self, interruption: Interruption, written: bool) {
        if let Some(exchange) = &mut self.exchange {
            exchange.interrupt(interruption, written);
        }
    }
}

/// Makes a result of exchanges that are over.
type Done = Box<dyn FnOnce(Python<'_>, Vec<Exchange>) -> PyResult<Py<PyAny>> + Send + Sync>;

/// An operation: its exchanges, which may be carried out at the same time, and its result.
#[pyclass(module = "dwell._native")]
pub(super) struct MemcacheOperation {
    exchanges: Vec<Py<MemcacheExchange>>,
    done: Option<Done>,
}

impl fmt::Debug for MemcacheOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemcacheOperation")
            .field("exchanges", &self.exchanges.len())
            .finish_non_exhaustive()
    }
}

#[pymethods]
impl MemcacheOperation {
    #[getter]
    fn exchanges<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.exchanges)
    }

    /// Its result, once; every exchange that is not over has timed out.
    fn result(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let taken = self.exchanges.drain(..);
        let exchanges = taken
            .filter_map(|exchange| exchange.borrow_mut(py).exchange.take())
            .collect();
        let done = self.done.take();
        let done = done.ok_or_else(|| PyRuntimeError::new_err("the result was taken before"))?;
        done(py, exchanges)
    }
}

impl MemcacheOperation {
    /// Makes one of a prepared operation; `convert` makes its result, or an exception.
    pub(super) fn new<R: 'static>(
        py: Python<'_>,
        operation: Operation<R>,
        convert: impl FnOnce(Python<'_>, R) -> PyResult<Py<PyAny>> + Send + Sync + 'static,
    ) -> PyResult<Self> {
        let (exchanges, finish) = operation.into_parts();
        let own = |exchange| {
            let exchange = Some(exchange);
            Py::new(py, MemcacheExchange { exchange })
        };
        Ok(Self {
            exchanges: exchanges.into_iter().map(own).collect::<PyResult<_>>()?,
            done: Some(Box::new(move |py, exchanges| {
                convert(py, finish(exchanges))
            })),
        })
    }

    /// Makes one of an operation that may have failed before anything was sent.
    pub(super) fn one<T: 'static>(
        py: Python<'_>,
        prepared: Result<Operation<Result<T, Error>>, Error>,
        convert: impl FnOnce(Python<'_>, Result<T, Error>) -> PyResult<Py<PyAny>>
        + Send
        + Sync
        + 'static,
    ) -> PyResult<Self> {
        match prepared {
            Ok(operation) => Self::new(py, operation, convert),
            Err(error) => Ok(Self {
                exchanges: Vec::new(),
                done: Some(Box::new(move |py, _| convert(py, Err(error)))),
            }),
        }
    }
}
