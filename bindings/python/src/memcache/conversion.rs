//! Keys, values and options between Python and the wire, for both clients.

use super::errors::{exception, illegal_input};
use dwell_memcache::{
    Error, Exptime, MetaGet, PerServer, ServerAddress, StoreOptions, StoreOutcome, Value,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyString};
use std::time::Duration;

/// Conversions of keys and values on their way.
#[derive(Debug)]
pub(super) struct Conversion {
    pub(super) prefix: Vec<u8>,
    pub(super) serde: Option<Py<PyAny>>,
    pub(super) default_noreply: bool,
    pub(super) ignore_exc: bool,
    pub(super) allow_unicode_keys: bool,
    /// The addresses of the servers, in the order in which they were given.
    pub(super) addresses: Vec<ServerAddress>,
}

/// A value as it is stored, and its flags.
struct Stored {
    data: PyBackedBytes,
    flags: u32,
}

/// Keys as they were given, and as they are sent.
pub(super) type Keys<'py> = (Vec<Bound<'py, PyAny>>, Vec<Vec<u8>>);

/// The longest relative exptime; more is a date. Source: memcached `doc/protocol.txt`.
const RELATIVE_SECONDS_MAX: i64 = 30 * 24 * 3600;

impl Conversion {
    /// The bytes of a key, behind the prefix.
    pub(super) fn key(&self, key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        let mut wire = Vec::with_capacity(self.prefix.len() + 64);
        wire.extend_from_slice(&self.prefix);
        if let Ok(text) = key.cast::<PyString>() {
            let text = text.to_cow()?;
            if !self.allow_unicode_keys && !text.is_ascii() {
                let text = format!("key is not in ASCII: {text:?}");
                return Err(illegal_input(key.py(), &text));
            }
            wire.extend_from_slice(text.as_bytes());
        } else if let Ok(bytes) = key.cast::<PyBytes>() {
            wire.extend_from_slice(bytes.as_bytes());
        } else {
            return Err(PyTypeError::new_err(format!(
                "a key is str or bytes: {key:?}"
            )));
        }
        Ok(wire)
    }

    pub(super) fn keys<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Keys<'py>> {
        let keys: Vec<_> = keys.try_iter()?.collect::<PyResult<_>>()?;
        let wires = keys
            .iter()
            .map(|key| self.key(key))
            .collect::<PyResult<_>>()?;
        Ok((keys, wires))
    }

    /// A value from the server as Python's.
    pub(super) fn load<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        data: &[u8],
        flags: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        let data = PyBytes::new(py, data).into_any();
        match &self.serde {
            None => Ok(data),
            Some(serde) => serde
                .bind(py)
                .call_method1(intern!(py, "deserialize"), (key, data, flags)),
        }
    }

    /// A key and a value as they are stored.
    pub(super) fn to_store(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        expire: i64,
        flags: Option<u32>,
    ) -> PyResult<(Vec<u8>, PyBackedBytes, StoreOptions)> {
        let stored = self.stored(key, value)?;
        let options = StoreOptions {
            flags: flags.unwrap_or(stored.flags),
            exptime: exptime(expire),
        };
        Ok((self.key(key)?, stored.data, options))
    }

    fn stored(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<Stored> {
        let py = key.py();
        let (value, flags) = match &self.serde {
            None => (value.clone(), 0),
            Some(serde) => serde
                .bind(py)
                .call_method1(intern!(py, "serialize"), (key, value))?
                .extract::<(Bound<'_, PyAny>, u32)>()?,
        };
        if let Ok(bytes) = value.cast::<PyBytes>() {
            let data = bytes.clone().into();
            return Ok(Stored { data, flags });
        }
        let text = value.str()?;
        let text = text.to_cow()?;
        if !text.is_ascii() {
            let text = format!("value is neither bytes nor in ASCII: {text:?}");
            return Err(illegal_input(py, &text));
        }
        let data = PyBytes::new(py, text.as_bytes()).into();
        Ok(Stored { data, flags })
    }

    /// The item of a key that was read, or `default`.
    pub(super) fn value<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        value: Option<&Value>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match value {
            Some(value) => self.load(key, &value.data, value.flags).map(Some),
            None => Ok(default),
        }
    }

    /// The same with its cas unique.
    pub(super) fn value_and_cas<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        value: Option<&Value>,
        default: Option<Bound<'py, PyAny>>,
        cas_default: Option<u64>,
    ) -> PyResult<Pair<'py>> {
        let cas_unique = match value {
            Some(value) => value.cas_unique,
            None => cas_default,
        };
        Ok((self.value(key, value, default)?, cas_unique))
    }

    /// The outcome of what returns true or false. Without a reply it is true; errors are raised all
    /// the same.
    pub(super) fn told(&self, done: bool, noreply: Option<bool>) -> bool {
        done || noreply.unwrap_or(self.default_noreply)
    }

    /// An error of a read, which may count as a miss.
    pub(super) fn missed<T>(&self, read: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
        match read {
            Err(_) if self.ignore_exc => Ok(None),
            read => read,
        }
    }

    /// A command and an end token in bytes.
    pub(super) fn raw(
        &self,
        command: &Bound<'_, PyAny>,
        end_tokens: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(Vec<u8>, Vec<u8>)> {
        if self.addresses.len() != 1 {
            let text = format!(
                "raw_command is for one server, and this client has {}",
                self.addresses.len()
            );
            return Err(illegal_input(command.py(), &text));
        }
        let end_token = end_tokens.map(|token| self.text(token)).transpose()?;
        let end_token = end_token.unwrap_or_else(|| b"\r\n".to_vec());
        Ok((self.text(command)?, end_token))
    }

    fn text(&self, given: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(bytes.as_bytes().to_vec());
        }
        let Ok(text) = given.cast::<PyString>() else {
            let text = format!("a command is str or bytes: {given:?}");
            return Err(PyTypeError::new_err(text));
        };
        let text = text.to_cow()?;
        if !self.allow_unicode_keys && !text.is_ascii() {
            let text = format!("command is not in ASCII: {text:?}");
            return Err(illegal_input(given.py(), &text));
        }
        Ok(text.as_bytes().to_vec())
    }
}

/// A value and its cas unique.
pub(super) type Pair<'py> = (Option<Bound<'py, PyAny>>, Option<u64>);

/// The meta command that gets an item with its cas unique and sets its exptime.
pub(super) fn get_and_touch(expire: i64) -> MetaGet {
    MetaGet {
        cas_unique: true,
        exptime: Some(exptime(expire)),
        ..MetaGet::default()
    }
}

/// The reply of the only server.
pub(super) fn only_reply(
    py: Python<'_>,
    replies: PerServer<Vec<u8>>,
) -> PyResult<Bound<'_, PyBytes>> {
    let reply = replies.into_iter().next().map(|(_, reply)| reply);
    match reply {
        Some(Ok(reply)) => Ok(PyBytes::new(py, &reply)),
        Some(Err(error)) => Err(exception(py, &error)),
        None => Err(illegal_input(py, "there is no server")),
    }
}

/// The outcome of a `cas`: `None` where there is no such item.
pub(super) fn cas_outcome(outcome: StoreOutcome, noreply: bool) -> Option<bool> {
    match outcome {
        _ if noreply => Some(true),
        StoreOutcome::Stored => Some(true),
        StoreOutcome::NotStored | StoreOutcome::Exists => Some(false),
        StoreOutcome::NotFound => None,
    }
}

/// An exptime as the protocol has it: seconds from now, or a date.
pub(super) fn exptime(expire: i64) -> Exptime {
    match u64::try_from(expire) {
        Err(_) => Exptime::Immediately,
        Ok(0) => Exptime::Never,
        Ok(seconds) if expire <= RELATIVE_SECONDS_MAX => Exptime::In(Duration::from_secs(seconds)),
        Ok(second) => Exptime::At(second),
    }
}

/// A cas unique as a number, or as the text of one.
pub(super) fn cas_unique(cas: &Bound<'_, PyAny>) -> PyResult<u64> {
    let text = if let Ok(number) = cas.extract::<u64>() {
        return Ok(number);
    } else if let Ok(bytes) = cas.cast::<PyBytes>() {
        String::from_utf8_lossy(bytes.as_bytes()).into_owned()
    } else {
        cas.str()?.to_cow()?.into_owned()
    };
    text.parse()
        .map_err(|_| PyValueError::new_err(format!("cas is no number of 64 bits: {cas:?}")))
}
