//! Applications that speak ASGI: the engine's loop within the loop of asyncio, on one thread.
//!
//! Source: ASGI 3, its HTTP and WebSocket message format 2.5.

mod awaitable;
mod face;
mod http;
mod message;
mod scope;
mod server;
mod shared;
mod web_socket;

use pyo3::prelude::*;

/// Adds what is here to the native module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<server::AsgiServer>()
}
