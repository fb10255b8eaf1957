//! Options of a client.

use dwell_memcache::{ClientOptions, KeyPolicy, ServerOptions};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use std::time::Duration;

/// Reads the servers: one or a list, each `"host:port"`, `"host:port=weight"`, a path, or a tuple
/// of host and port.
pub(super) fn servers(given: &Bound<'_, PyAny>) -> PyResult<Vec<ServerOptions>> {
    match given.cast::<PyList>() {
        Ok(list) => list.iter().map(|server| one(&server)).collect(),
        Err(_) => Ok(vec![one(given)?]),
    }
}

fn one(server: &Bound<'_, PyAny>) -> PyResult<ServerOptions> {
    let text = if let Ok(text) = server.cast::<PyString>() {
        text.to_cow()?.into_owned()
    } else if let Ok(pair) = server.cast::<PyTuple>() {
        let (host, port): (String, u16) = pair.extract()?;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    } else {
        let text = format!("a server is a str or a tuple of host and port: {server:?}");
        return Err(PyTypeError::new_err(text));
    };
    let text = text.strip_prefix("unix:").unwrap_or(&text);
    text.parse()
        .map_err(|error: dwell_memcache::AddressError| PyValueError::new_err(error.to_string()))
}

/// A time in seconds; `None` for no bound.
pub(super) fn seconds(name: &str, value: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = value else {
        return Ok(None);
    };
    let time = Duration::try_from_secs_f64(seconds).ok();
    let time = time.filter(|time| !time.is_zero());
    let wrong = || PyValueError::new_err(format!("{name} is out of range: {seconds}"));
    time.map(Some).ok_or_else(wrong)
}

/// Reads the options that have names.
pub(super) fn named(
    options: &mut ClientOptions,
    distribution: &str,
    long_keys: &str,
) -> PyResult<()> {
    options.distribution = distribution.parse().map_err(|_| {
        let names: Vec<_> = dwell_memcache::Distribution::names().collect();
        let names = names.join(", ");
        PyValueError::new_err(format!("distribution is one of {names}: {distribution:?}"))
    })?;
    options.keys = match long_keys {
        "refuse" => KeyPolicy::Refuse,
        "hash" => KeyPolicy::Hash,
        _ => {
            let text = format!("long_keys is 'refuse' or 'hash': {long_keys:?}");
            return Err(PyValueError::new_err(text));
        }
    };
    Ok(())
}

/// The bytes of a prefix.
pub(super) fn prefix(given: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(text.to_cow()?.as_bytes().to_vec());
    }
    let text = format!("key_prefix is bytes or str: {given:?}");
    Err(PyTypeError::new_err(text))
}
