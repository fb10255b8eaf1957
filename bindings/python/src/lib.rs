//! The native module of the Python package `dwell`: `dwell._native`.
//!
//! Each area registers what it has in a module of its own; the Python sources under
//! `python/dwell` give it its public names. Nothing here is for Rust programs.

#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod asgi;
mod manager;
mod memcache;
mod web;
mod wsgi;

use pyo3::prelude::*;

/// Everything of `dwell` that is made in Rust.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    manager::register(module)?;
    memcache::register(module)?;
    web::register(module)?;
    wsgi::register(module)?;
    asgi::register(module)
}
