//! `dwell.memcache.Client`: pymemcache's methods over the blocking client.

use super::conversion::{
    Conversion, Pair, cas_outcome, cas_unique, exptime, get_and_touch, only_reply,
};
use super::errors::exception;
use super::options;
use super::tls::Given;
use dwell_memcache::{Client, ClientOptions, Error, MetaItem, Value};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The client that Python's class inherits from.
#[pyclass(frozen, subclass, module = "dwell._native")]
#[derive(Debug)]
pub(super) struct MemcacheClient {
    pub(super) client: Client,
    pub(super) conversion: Arc<Conversion>,
}

#[pymethods]
impl MemcacheClient {
    #[new]
    #[pyo3(signature = (
        servers, *, timeout=0.5, connect_timeout=0.25, serde=None, key_prefix=None,
        default_noreply=false, ignore_exc=false, allow_unicode_keys=false, max_pool_size=8,
        max_value_bytes=1_048_576, distribution="ketama_weighted", failover=false,
        long_keys="refuse", tls=false, tls_ca=None, tls_server_name=None, tls_certificate=None,
        tls_key=None, tls_context=None
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
        tls: bool,
        tls_ca: Option<PathBuf>,
        tls_server_name: Option<String>,
        tls_certificate: Option<PathBuf>,
        tls_key: Option<PathBuf>,
        tls_context: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        if tls_context.is_some() {
            let text = "tls_context cannot be read here: use tls=True, with tls_ca, \
                        tls_server_name, tls_certificate and tls_key";
            return Err(PyTypeError::new_err(text));
        }
        let tls = Given {
            tls,
            ca: tls_ca,
            server_name: tls_server_name,
            certificate: tls_certificate,
            key: tls_key,
        };
        let mut given = ClientOptions {
            timeout: options::seconds("timeout", timeout)?,
            failover,
            idle_connections_max: max_pool_size,
            value_bytes_max: max_value_bytes,
            tls: tls.read()?,
            ..ClientOptions::default()
        };
        if let Some(time) = options::seconds("connect_timeout", Some(connect_timeout))? {
            given.connect_timeout = time;
        }
        options::named(&mut given, distribution, long_keys)?;
        let servers = options::servers(servers)?;
        let client = Client::new(&servers, given).map_err(|error| exception(py, &error))?;
        let prefix = key_prefix.map(options::prefix).transpose()?;
        let conversion = Conversion {
            prefix: prefix.unwrap_or_default(),
            serde,
            default_noreply,
            ignore_exc,
            allow_unicode_keys,
            addresses: servers.into_iter().map(|server| server.address).collect(),
        };
        Ok(Self {
            client,
            conversion: Arc::new(conversion),
        })
    }

    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let wire = self.conversion.key(key)?;
        let value = self.read(py, || self.client.get(&wire))?;
        self.conversion.value(key, value.as_ref(), default)
    }

    #[pyo3(signature = (key, default=None, cas_default=None))]
    fn gets<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        cas_default: Option<u64>,
    ) -> PyResult<Pair<'py>> {
        let py = key.py();
        let wire = self.conversion.key(key)?;
        let value = self.read(py, || self.client.gets(&wire))?;
        let conversion = &self.conversion;
        conversion.value_and_cas(key, value.as_ref(), default, cas_default)
    }

    #[pyo3(signature = (key, expire=0, default=None))]
    fn gat<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        expire: i64,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let wire = self.conversion.key(key)?;
        let exptime = exptime(expire);
        let value = self.read(py, || self.client.get_and_touch(&wire, exptime))?;
        self.conversion.value(key, value.as_ref(), default)
    }

    #[pyo3(signature = (key, expire=0, default=None, cas_default=None))]
    fn gats<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        expire: i64,
        default: Option<Bound<'py, PyAny>>,
        cas_default: Option<u64>,
    ) -> PyResult<Pair<'py>> {
        let py = key.py();
        let wire = self.conversion.key(key)?;
        let asked = get_and_touch(expire);
        let item = self.read(py, || self.client.meta_get(&wire, asked))?;
        let value = item.map(MetaItem::into_value);
        let conversion = &self.conversion;
        conversion.value_and_cas(key, value.as_ref(), default, cas_default)
    }

    fn get_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(keys.py());
        self.read_many(keys, false, |key, value| {
            found.set_item(key, self.conversion.load(key, &value.data, value.flags)?)
        })?;
        Ok(found)
    }

    fn gets_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(keys.py());
        self.read_many(keys, true, |key, value| {
            found.set_item(
                key,
                (
                    self.conversion.load(key, &value.data, value.flags)?,
                    value.cas_unique,
                ),
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
        let (wire, value, options) = self.conversion.to_store(key, value, expire, flags)?;
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
            items.push(self.conversion.to_store(&key, &value, expire, flags)?);
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
        let (wire, value, options) = self.conversion.to_store(key, value, expire, flags)?;
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
        let (wire, value, options) = self.conversion.to_store(key, value, expire, flags)?;
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
        let (wire, value, _) = self.conversion.to_store(key, value, expire, flags)?;
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
        let (wire, value, _) = self.conversion.to_store(key, value, expire, flags)?;
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
        let (wire, value, options) = self.conversion.to_store(key, value, expire, flags)?;
        let run = || self.client.cas(&wire, &value, cas_unique, options);
        let outcome = py.detach(run).map_err(|error| exception(py, &error))?;
        Ok(cas_outcome(outcome, noreply))
    }

    #[pyo3(signature = (key, noreply=None))]
    fn delete(&self, key: &Bound<'_, PyAny>, noreply: Option<bool>) -> PyResult<bool> {
        let wire = self.conversion.key(key)?;
        self.told(key.py(), noreply, || self.client.delete(&wire))
    }

    #[pyo3(signature = (keys, noreply=None))]
    fn delete_many(&self, keys: &Bound<'_, PyAny>, noreply: Option<bool>) -> PyResult<bool> {
        let py = keys.py();
        let _ = noreply;
        let (_, wires) = self.conversion.keys(keys)?;
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
        let wire = self.conversion.key(key)?;
        counted(key.py(), noreply, || self.client.incr(&wire, value))
    }

    #[pyo3(signature = (key, value, noreply=false))]
    fn decr(&self, key: &Bound<'_, PyAny>, value: u64, noreply: bool) -> PyResult<Option<u64>> {
        let wire = self.conversion.key(key)?;
        counted(key.py(), noreply, || self.client.decr(&wire, value))
    }

    #[pyo3(signature = (key, expire=0, noreply=None))]
    fn touch(&self, key: &Bound<'_, PyAny>, expire: i64, noreply: Option<bool>) -> PyResult<bool> {
        let wire = self.conversion.key(key)?;
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

    #[pyo3(signature = (command, end_tokens=None))]
    fn raw_command<'py>(
        &self,
        command: &Bound<'py, PyAny>,
        end_tokens: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let py = command.py();
        let (command, end_token) = self.conversion.raw(command, end_tokens)?;
        let replies = py.detach(|| self.client.raw_command(&command, &end_token));
        only_reply(py, replies.map_err(|error| exception(py, &error))?)
    }

    /// The server that has the place of a key, as its number in the list.
    fn server_of(&self, key: &Bound<'_, PyAny>) -> PyResult<usize> {
        Ok(self.client.server_of(self.conversion.key(key)?))
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
    /// Runs a read without the interpreter.
    fn read<T: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce() -> Result<Option<T>, Error> + Send,
    ) -> PyResult<Option<T>> {
        let read = self.conversion.missed(py.detach(read));
        read.map_err(|error| exception(py, &error))
    }

    /// Reads many keys, and hands over those that were found.
    fn read_many<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
        with_cas: bool,
        mut found: impl FnMut(&Bound<'py, PyAny>, &Value) -> PyResult<()>,
    ) -> PyResult<()> {
        let py = keys.py();
        let (keys, wires) = self.conversion.keys(keys)?;
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
                Err(_) if self.conversion.ignore_exc => {}
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
        Ok(self.conversion.told(done, noreply))
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
