//! TLS of connections that Python carries.

use super::exchange::MemcacheExchange;
use dwell_memcache::{SecureFault, Secured};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// TLS of one connection. After a fault it takes and gives nothing but the alert for it.
#[pyclass(module = "dwell._native")]
#[derive(Debug)]
pub(super) struct MemcacheSecured {
    secured: Option<Secured>,
    fault: Option<SecureFault>,
}

impl MemcacheSecured {
    pub(super) fn new(begun: Result<Secured, SecureFault>) -> Self {
        let (secured, fault) = match begun {
            Ok(secured) => (Some(secured), None),
            Err(fault) => (None, Some(fault)),
        };
        Self { secured, fault }
    }

    pub(super) fn fault(&self) -> Option<SecureFault> {
        self.fault.clone()
    }

    fn keep<T>(&mut self, result: Result<T, SecureFault>) -> Option<T> {
        result.map_err(|fault| self.fault = Some(fault)).ok()
    }
}

#[pymethods]
impl MemcacheSecured {
    #[getter]
    fn is_ready(&self) -> bool {
        self.secured.as_ref().is_some_and(Secured::is_ready)
    }

    #[getter]
    fn is_ended(&self) -> bool {
        self.secured.as_ref().is_some_and(Secured::is_ended)
    }

    /// Returns the bytes that are to be sent, once.
    fn transmit<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let output = self.secured.as_mut().map(Secured::transmit);
        PyBytes::new(py, &output.unwrap_or_default())
    }

    /// Takes what the server has sent; the data in it, or `None` after a fault.
    fn receive<'py>(&mut self, data: &Bound<'py, PyBytes>) -> Option<Bound<'py, PyBytes>> {
        let received = self.secured.as_mut()?.receive(data.as_bytes());
        let opened = self.keep(received)?;
        Some(PyBytes::new(data.py(), &opened))
    }

    /// Takes the request of an exchange; false after a fault.
    fn seal(&mut self, exchange: &MemcacheExchange) -> bool {
        let Some(secured) = &mut self.secured else {
            return false;
        };
        let sealed = secured.seal(exchange.to_send());
        self.keep(sealed).is_some()
    }

    /// Has the server told that nothing more is sent.
    fn close(&mut self) {
        if let Some(secured) = &mut self.secured {
            secured.close();
        }
    }
}
