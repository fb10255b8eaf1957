//! The memcached client.

mod client;
mod errors;
mod options;

use pyo3::prelude::*;

/// Adds what is here to the native module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<client::MemcacheClient>()
}
