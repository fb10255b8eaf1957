//! Arguments that come in several types.

use super::act::Fields;
use super::errors::wrong_type;
use dwell_engine::PeerCertificates;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};
use std::borrow::Cow;
use std::net::SocketAddr;

/// The bytes of a `str`, which is sent as UTF-8, or of a bytes-like object.
pub(super) fn bytes_of<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Cow::Borrowed(text.to_str()?.as_bytes()));
    }
    buffer_of(value, "str or a bytes-like object").map(Cow::Owned)
}

/// The bytes of a bytes-like object, which a `str` is not.
pub(super) fn binary_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    buffer_of(value, "a bytes-like object")
}

/// Copies a buffer, because its owner may change it.
fn buffer_of(value: &Bound<'_, PyAny>, wanted: &str) -> PyResult<Vec<u8>> {
    let buffer: PyBuffer<u8> = PyBuffer::get(value).map_err(|_| wrong_type(wanted, value))?;
    buffer.to_vec(value.py())
}

/// Header fields: a mapping of names to values, or (name, value) pairs where one comes twice.
pub(super) fn fields_of(headers: Option<&Bound<'_, PyAny>>) -> PyResult<Fields> {
    let Some(headers) = headers.filter(|headers| !headers.is_none()) else {
        return Ok(Fields::new());
    };
    if let Ok(headers) = headers.cast::<PyDict>() {
        return headers
            .iter()
            .map(|(name, value)| field(&name, &value))
            .collect();
    }
    let pairs = if headers.hasattr("items")? {
        headers.call_method0("items")?
    } else {
        headers.clone()
    };
    pairs
        .try_iter()
        .map_err(|_| wrong_type("a dict or (name, value) pairs of headers", headers))?
        .map(|pair| {
            let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
            field(&name, &value)
        })
        .collect()
}

fn field(name: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<(String, Vec<u8>)> {
    let name_text = field_text(name, "Header name")?;
    let value_text = field_text(value, "Header value")?;
    let name_text = std::str::from_utf8(&name_text)
        .map_err(|_| PyValueError::new_err(illegal("name", name)))?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name_text.is_empty() || !name_text.bytes().all(is_token) {
        return Err(PyValueError::new_err(illegal("name", name)));
    }
    if value_text
        .iter()
        .any(|byte| matches!(byte, b'\r' | b'\n' | 0))
    {
        return Err(PyValueError::new_err(illegal("value", value)));
    }
    Ok((name_text.to_owned(), value_text.into_owned()))
}

fn illegal(part: &str, given: &Bound<'_, PyAny>) -> String {
    let given = given
        .repr()
        .map_or_else(|_| String::new(), |given| given.to_string());
    format!("Header {part} contains illegal character (CR, LF, or NUL): {given}")
}

fn field_text<'a>(value: &'a Bound<'_, PyAny>, what: &str) -> PyResult<Cow<'a, [u8]>> {
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
        bytes_of(value)
    } else {
        Err(wrong_type(&format!("{what}: str"), value))
    }
}

/// Text that came from a peer: what is not UTF-8 becomes surrogates, which give the bytes back.
pub(super) fn text_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyString>> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok(PyString::new(py, text));
    }
    let decoded = PyBytes::new(py, bytes).call_method1("decode", ("utf-8", "surrogateescape"))?;
    Ok(decoded.cast_into::<PyString>()?)
}

/// A truth as Python writes it.
pub(super) fn python_bool(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// An address as `(host, port, is_ipv6)`.
pub(super) fn address_of(address: SocketAddr) -> (String, u16, bool) {
    (address.ip().to_string(), address.port(), address.is_ipv6())
}

/// A status that an answer can have.
pub(super) fn status_of(status_code: i64) -> PyResult<u16> {
    let status = u16::try_from(status_code).ok();
    status
        .filter(|status| matches!(status, 101 | 200..=599))
        .ok_or_else(|| {
            PyValueError::new_err(format!("status code is not from 200 to 599: {status_code}"))
        })
}

/// The certificates that a client has shown, in DER.
pub(super) fn chain_of<'py>(
    py: Python<'py>,
    shown: Option<&PeerCertificates>,
) -> PyResult<Bound<'py, PyTuple>> {
    let chain = shown.iter().flat_map(|shown| shown.chain());
    PyTuple::new(
        py,
        chain.map(|each| PyBytes::new(py, each)).collect::<Vec<_>>(),
    )
}
