//! The memcached clients.

mod client;
mod conversion;
mod errors;
mod exchange;
mod operations;
mod options;
mod secured;
mod tls;

use pyo3::prelude::*;

/// Adds what is here to the native module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<client::MemcacheClient>()?;
    module.add_class::<exchange::MemcacheExchange>()?;
    module.add_class::<exchange::MemcacheOperation>()?;
    module.add_class::<secured::MemcacheSecured>()?;
    module.add_class::<operations::MemcacheOperations>()
}
