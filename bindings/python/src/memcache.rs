//! The memcached client.

use pyo3::prelude::*;

/// Adds what is here to the native module.
#[expect(clippy::unnecessary_wraps, reason = "as in every area")]
pub(crate) fn register(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
