//! `dwell.memcache.Client`: pymemcache's methods over the blocking client.

use super::errors::{exception, illegal_input};
use super::options;
use dwell_memcache::{
    Client, ClientOptions, Error, Exptime, MetaGet, StoreOptions, StoreOutcome, Value,
};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use std::time::Duration;

/// The client that Python's class inherits from.
#[pyclass(frozen, subclass, module = "dwell._native")]
#[derive(Debug)]
pub(super) struct MemcacheClient {
    client: Client,
    prefix: Vec<u8>,
    serde: Option<Py<PyAny>>,
    default_noreply: bool,
    ignore_exc: bool,
    allow_unicode_keys: bool,
}

/// A value as it is stored, and its flags.
struct Stored {
    data: PyBackedBytes,
    flags: u32,
}

/// Keys as they were given, and as they are sent.
type Keys<'py> = (Vec<Bound<'py, PyAny>>, Vec<Vec<u8>>);

/// The longest relative exptime; more is a date. Source: memcached `doc/protocol.txt`.
const RELATIVE_SECONDS_MAX: i64 = 30 * 24 * 3600;

#[pymethods]
impl MemcacheClient {
    #[new]
    #[pyo3(signature = (
        servers, *, timeout=0.5, connect_timeout=0.25, serde=None, key_prefix=None,
        default_noreply=false, ignore_exc=false, allow_unicode_keys=false, max_pool_size=8,
        max_value_bytes=1_048_576, distribution="ketama_weighted", failover=false,
        long_keys="refuse"
    ))]
    #[expect(
        clippy::fn_params_excessive_bools,
        clippy::too_many_arguments,
        reason = "each is a keyword of the constructor"
    )]
    fn new(
        py: Python<'_>,
        servers: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        connect_timeout: f64,
        serde: Option<Py<PyAny>>,
        key_prefix: Option<&Bound<'_, PyAny>>,
        default_noreply: bool,
        ignore_exc: bool,
        allow_unicode_keys: bool,
        max_pool_size: usize,
        max_value_bytes: usize,
        distribution: &str,
        failover: bool,
        long_keys: &str,
    ) -> PyResult<Self> {
        let mut given = ClientOptions {
            timeout: options::seconds("timeout", timeout)?,
            failover,
            idle_connections_max: max_pool_size,
            value_bytes_max: max_value_bytes,
            ..ClientOptions::default()
        };
        if let Some(time) = options::seconds("connect_timeout", Some(connect_timeout))? {
            given.connect_timeout = time;
        }
        options::named(&mut given, distribution, long_keys)?;
        let servers = options::servers(servers)?;
        let client = Client::new(&servers, given).map_err(|error| exception(py, &error))?;
        Ok(Self {
            client,
            prefix: key_prefix
                .map(options::prefix)
                .transpose()?
                .unwrap_or_default(),
            serde,
            default_noreply,
            ignore_exc,
            allow_unicode_keys,
        })
    }

    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let wire = self.key(key)?;
        match self.read(py, || self.client.get(&wire))? {
            Some(value) => self.load(key, &value.data, value.flags).map(Some),
            None => Ok(default),
        }
    }

    #[pyo3(signature = (key, default=None, cas_default=None))]
    fn gets<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        cas_default: Option<u64>,
    ) -> PyResult<(Option<Bound<'py, PyAny>>, Option<u64>)> {
        let py = key.py();
        let wire = self.key(key)?;
        match self.read(py, || self.client.gets(&wire))? {
            Some(value) => Ok((
                Some(self.load(key, &value.data, value.flags)?),
                value.cas_unique,
            )),
            None => Ok((default, cas_default)),
        }
    }

    #[pyo3(signature = (key, expire=0, default=None))]
    fn gat<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        expire: i64,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let wire = self.key(key)?;
        let exptime = exptime(expire);
        match self.read(py, || self.client.get_and_touch(&wire, exptime))? {
            Some(value) => self.load(key, &value.data, value.flags).map(Some),
            None => Ok(default),
        }
    }

    #[pyo3(signature = (key, expire=0, default=None, cas_default=None))]
    fn gats<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        expire: i64,
        default: Option<Bound<'py, PyAny>>,
        cas_default: Option<u64>,
    ) -> PyResult<(Option<Bound<'py, PyAny>>, Option<u64>)> {
        let py = key.py();
        let wire = self.key(key)?;
        let asked = MetaGet {
            cas_unique: true,
            exptime: Some(exptime(expire)),
            ..MetaGet::default()
        };
        match self.read(py, || self.client.meta_get(&wire, asked))? {
            Some(item) => {
                let data = item.data.unwrap_or_default();
                let value = self.load(key, &data, item.flags.unwrap_or_default())?;
                Ok((Some(value), item.cas_unique))
            }
            None => Ok((default, cas_default)),
        }
    }

    fn get_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(keys.py());
        self.read_many(keys, false, |key, value| {
            found.set_item(key, self.load(key, &value.data, value.flags)?)
        })?;
        Ok(found)
    }

    fn gets_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(keys.py());
        self.read_many(keys, true, |key, value| {
            found.set_item(
                key,
                (self.load(key, &value.data, value.flags)?, value.cas_unique),
            )
        })?;
        Ok(found)
    }

    #[pyo3(signature = (key, value, expire=0, noreply=None, flags=None))]
    fn set(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        expire: i64,
        noreply: Option<bool>,
        flags: Option<u32>,
    ) -> PyResult<bool> {
        let (wire, value, options) = self.to_store(key, value, expire, flags)?;
        let run = || self.client.set(&wire, &value, options);
        key.py()
            .detach(run)
            .map_err(|error| exception(key.py(), &error))?;
        let _ = noreply;
        Ok(true)
    }

    #[pyo3(signature = (values, expire=0, noreply=None, flags=None))]
    fn set_many<'py>(
        &self,
        values: &Bound<'py, PyDict>,
        expire: i64,
        noreply: Option<bool>,
        flags: Option<u32>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = values.py();
        let _ = noreply;
        let mut keys = Vec::with_capacity(values.len());
        let mut items = Vec::with_capacity(values.len());
        for (key, value) in values {
            items.push(self.to_store(&key, &value, expire, flags)?);
            keys.push(key);
        }
        let results = py.detach(|| {
            let mut pipeline = self.client.pipeline();
            for (wire, value, options) in &items {
                pipeline.set(wire, value, *options);
            }
            pipeline.run()
        });
        let failed = PyList::empty(py);
        for (key, result) in keys.iter().zip(results) {
            if result.is_err() {
                failed.append(key)?;
            }
        }
        Ok(failed)
    }

    #[pyo3(signature = (key, value, expire=0, noreply=None, flags=None))]
    fn add(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        expire: i64,
        noreply: Option<bool>,
        flags: Option<u32>,
    ) -> PyResult<bool> {
        let (wire, value, options) = self.to_store(key, value, expire, flags)?;
        self.told(key.py(), noreply, || {
            self.client.add(&wire, &value, options)
        })
    }

    #[pyo3(signature = (key, value, expire=0, noreply=None, flags=None))]
    fn replace(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        expire: i64,
        noreply: Option<bool>,
        flags: Option<u32>,
    ) -> PyResult<bool> {
        let (wire, value, options) = self.to_store(key, value, expire, flags)?;
        self.told(key.py(), noreply, || {
            self.client.replace(&wire, &value, options)
        })
    }

    #[pyo3(signature = (key, value, expire=0, noreply=None, flags=None))]
    fn append(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        expire: i64,
        noreply: Option<bool>,
        flags: Option<u32>,
    ) -> PyResult<bool> {
        let (wire, value, _) = self.to_store(key, value, expire, flags)?;
        self.told(key.py(), noreply, || self.client.append(&wire, &value))
    }

    #[pyo3(signature = (key, value, expire=0, noreply=None, flags=None))]
    fn prepend(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        expire: i64,
        noreply: Option<bool>,
        flags: Option<u32>,
    ) -> PyResult<bool> {
        let (wire, value, _) = self.to_store(key, value, expire, flags)?;
        self.told(key.py(), noreply, || self.client.prepend(&wire, &value))
    }

    #[pyo3(signature = (key, value, cas, expire=0, noreply=false, flags=None))]
    fn cas(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        cas: &Bound<'_, PyAny>,
        expire: i64,
        noreply: bool,
        flags: Option<u32>,
    ) -> PyResult<Option<bool>> {
        let py = key.py();
        let cas_unique = cas_unique(cas)?;
        let (wire, value, options) = self.to_store(key, value, expire, flags)?;
        let run = || self.client.cas(&wire, &value, cas_unique, options);
        let outcome = py.detach(run).map_err(|error| exception(py, &error))?;
        Ok(match outcome {
            _ if noreply => Some(true),
            StoreOutcome::Stored => Some(true),
            StoreOutcome::NotStored | StoreOutcome::Exists => Some(false),
            StoreOutcome::NotFound => None,
        })
    }

    #[pyo3(signature = (key, noreply=None))]
    fn delete(&self, key: &Bound<'_, PyAny>, noreply: Option<bool>) -> PyResult<bool> {
        let wire = self.key(key)?;
        self.told(key.py(), noreply, || self.client.delete(&wire))
    }

    #[pyo3(signature = (keys, noreply=None))]
    fn delete_many(&self, keys: &Bound<'_, PyAny>, noreply: Option<bool>) -> PyResult<bool> {
        let py = keys.py();
        let _ = noreply;
        let (_, wires) = self.keys(keys)?;
        let results = py.detach(|| {
            let mut pipeline = self.client.pipeline();
            for wire in &wires {
                pipeline.delete(wire);
            }
            pipeline.run()
        });
        for result in results {
            result.map_err(|error| exception(py, &error))?;
        }
        Ok(true)
    }

    #[pyo3(signature = (key, value, noreply=false))]
    fn incr(&self, key: &Bound<'_, PyAny>, value: u64, noreply: bool) -> PyResult<Option<u64>> {
        let wire = self.key(key)?;
        counted(key.py(), noreply, || self.client.incr(&wire, value))
    }

    #[pyo3(signature = (key, value, noreply=false))]
    fn decr(&self, key: &Bound<'_, PyAny>, value: u64, noreply: bool) -> PyResult<Option<u64>> {
        let wire = self.key(key)?;
        counted(key.py(), noreply, || self.client.decr(&wire, value))
    }

    #[pyo3(signature = (key, expire=0, noreply=None))]
    fn touch(&self, key: &Bound<'_, PyAny>, expire: i64, noreply: Option<bool>) -> PyResult<bool> {
        let wire = self.key(key)?;
        let exptime = exptime(expire);
        self.told(key.py(), noreply, || self.client.touch(&wire, exptime))
    }

    /// Statistics of each server, by its address.
    #[pyo3(signature = (argument=None))]
    fn stats_by_server<'py>(
        &self,
        py: Python<'py>,
        argument: Option<&str>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let answers = py.detach(|| self.client.stats(argument));
        let servers = PyDict::new(py);
        for (server, stats) in answers.map_err(|error| exception(py, &error))? {
            let all = PyDict::new(py);
            for (name, value) in stats.map_err(|error| exception(py, &error))? {
                all.set_item(name, value)?;
            }
            servers.set_item(&*server, all)?;
        }
        Ok(servers)
    }

    /// The version of each server, by its address.
    fn version_by_server<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let servers = PyDict::new(py);
        for (server, version) in py.detach(|| self.client.version()) {
            let version = version.map_err(|error| exception(py, &error))?;
            servers.set_item(&*server, version)?;
        }
        Ok(servers)
    }

    #[pyo3(signature = (delay=0, noreply=None))]
    fn flush_all(&self, py: Python<'_>, delay: u64, noreply: Option<bool>) -> PyResult<bool> {
        let _ = noreply;
        let delay = Duration::from_secs(delay);
        for (_, done) in py.detach(|| self.client.flush_all(delay)) {
            done.map_err(|error| exception(py, &error))?;
        }
        Ok(true)
    }

    /// The server that has the place of a key, as its number in the list.
    fn server_of(&self, key: &Bound<'_, PyAny>) -> PyResult<usize> {
        Ok(self.client.server_of(self.key(key)?))
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let value = self.get(key, None)?;
        value.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(key, value, 0, None, None).map(|_| ())
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.delete(key, None).map(|_| ())
    }
}

impl MemcacheClient {
    /// The bytes of a key, behind the prefix.
    fn key(&self, key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
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

    fn keys<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Keys<'py>> {
        let keys: Vec<_> = keys.try_iter()?.collect::<PyResult<_>>()?;
        let wires = keys
            .iter()
            .map(|key| self.key(key))
            .collect::<PyResult<_>>()?;
        Ok((keys, wires))
    }

    /// Runs a read without the interpreter.
    fn read<T: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce() -> Result<Option<T>, Error> + Send,
    ) -> PyResult<Option<T>> {
        match py.detach(read) {
            Ok(value) => Ok(value),
            Err(_) if self.ignore_exc => Ok(None),
            Err(error) => Err(exception(py, &error)),
        }
    }

    /// Reads many keys, and hands over those that were found.
    fn read_many<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
        with_cas: bool,
        mut found: impl FnMut(&Bound<'py, PyAny>, &Value) -> PyResult<()>,
    ) -> PyResult<()> {
        let py = keys.py();
        let (keys, wires) = self.keys(keys)?;
        let results = py.detach(|| {
            if with_cas {
                self.client.gets_multi(&wires)
            } else {
                self.client.get_multi(&wires)
            }
        });
        for (key, result) in keys.iter().zip(results) {
            match result {
                Ok(Some(value)) => found(key, &value)?,
                Ok(None) => {}
                Err(_) if self.ignore_exc => {}
                Err(error) => return Err(exception(py, &error)),
            }
        }
        Ok(())
    }

    /// Runs an operation that returns true or false. Without a reply the result is true; errors are
    /// raised all the same.
    fn told(
        &self,
        py: Python<'_>,
        noreply: Option<bool>,
        run: impl FnOnce() -> Result<bool, Error> + Send,
    ) -> PyResult<bool> {
        let done = py.detach(run).map_err(|error| exception(py, &error))?;
        Ok(done || noreply.unwrap_or(self.default_noreply))
    }

    /// A value from the server as Python's.
    fn load<'py>(
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
    fn to_store(
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
}

/// Changes a number. Returns the new one; `None` if there is none or no reply is wanted.
fn counted(
    py: Python<'_>,
    noreply: bool,
    run: impl FnOnce() -> Result<Option<u64>, Error> + Send,
) -> PyResult<Option<u64>> {
    let number = py.detach(run).map_err(|error| exception(py, &error))?;
    Ok(number.filter(|_| !noreply))
}

/// An exptime as the protocol has it: seconds from now, or a date.
fn exptime(expire: i64) -> Exptime {
    match u64::try_from(expire) {
        Err(_) => Exptime::Immediately,
        Ok(0) => Exptime::Never,
        Ok(seconds) if expire <= RELATIVE_SECONDS_MAX => Exptime::In(Duration::from_secs(seconds)),
        Ok(second) => Exptime::At(second),
    }
}

/// A cas unique as a number, or as the text of one.
fn cas_unique(cas: &Bound<'_, PyAny>) -> PyResult<u64> {
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
