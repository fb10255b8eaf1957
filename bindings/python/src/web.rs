//! Parts that the servers of WSGI and ASGI share: request heads, listeners, limits, addresses, the
//! log, certificates.

pub(crate) mod access_log;
pub(crate) mod address;
pub(crate) mod answer;
pub(crate) mod head;
pub(crate) mod listen;
pub(crate) mod log_format;
pub(crate) mod mount;
pub(crate) mod options;
pub(crate) mod tls;
pub(crate) mod wear;

use pyo3::prelude::*;

/// Adds what is here to the native module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<tls::Tls>()
}
