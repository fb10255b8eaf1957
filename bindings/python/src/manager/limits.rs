//! The limits of a manager, as Python gives them.

use crate::web::options::{Bounds, seconds};
use dwell_engine::manager::ManagerOptions;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Reads the limits of a manager.
///
/// # Errors
/// `TypeError` for a name that is unknown or a value of another type, `ValueError` for one out of
/// range.
pub(super) fn options_of(given: Option<&Bound<'_, PyDict>>) -> PyResult<ManagerOptions> {
    let mut options = ManagerOptions::default();
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        let bounds = Bounds {
            limits: &mut options.http,
            socket: &mut options.websockets,
            body_bytes_max: &mut options.body_bytes_max,
        };
        match &*name {
            "answer_timeout" => options.answer_timeout = seconds(&name, &value)?,
            "connect_timeout" => options.streams.connect_timeout = seconds(&name, &value)?,
            "h2c" => options.h2c = value.extract()?,
            "http2" => options.http2 = value.extract()?,
            "close_timeout" => options.close_timeout = seconds(&name, &value)?,
            _ if bounds.set(&name, &value)? => {}
            _ => {
                let text = format!("Manager has no option {name:?}");
                return Err(PyTypeError::new_err(text));
            }
        }
    }
    options.streams.connections_max = options.http.connections_max;
    options.streams.write_timeout = options.http.write_timeout;
    Ok(options)
}
