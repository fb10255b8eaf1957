//! The operations of the asyncio client, prepared for `dwell._memcache_aio`.

use super::client::MemcacheClient;
use super::conversion::{Conversion, cas_outcome, cas_unique, exptime, get_and_touch, only_reply};
use super::errors::exception;
use super::exchange::MemcacheOperation;
use super::secured::MemcacheSecured;
use dwell_memcache::{
    ArithmeticMode, Carried, Client, Error, MetaItem, Operation, ServerAddress, StoreOutcome,
    StoreVerb, Value,
};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::sync::Arc;
use std::time::Duration;

/// A key or a value of Python, kept until the result is made.
type Kept = Py<PyAny>;

/// Prepares operations, and takes how servers fare.
#[pyclass(frozen, module = "dwell._native")]
#[derive(Debug)]
pub(super) struct MemcacheOperations {
    client: Client,
    conversion: Arc<Conversion>,
}

#[pymethods]
impl MemcacheOperations {
    #[new]
    fn new(client: &MemcacheClient) -> Self {
        Self {
            client: client.client.clone(),
            conversion: Arc::clone(&client.conversion),
        }
    }

    /// The addresses of the servers: a pair of host and port, or a path.
    fn addresses(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let addresses = self.conversion.addresses.iter();
        let address = |address: &ServerAddress| match address {
            ServerAddress::Tcp { host, port } => (host, *port).into_py_any(py),
            ServerAddress::Unix(path) => path.to_string_lossy().into_py_any(py),
        };
        addresses.map(address).collect()
    }

    /// Notes that a server could not be reached.
    fn could_not_connect(&self, server: usize) {
        Carried::of(&self.client).could_not_connect(server);
    }

    /// Begins TLS of a connection to a server; `None` for plaintext.
    fn secure(&self, server: usize) -> Option<MemcacheSecured> {
        let begun = Carried::of(&self.client).secure(server);
        begun.map(MemcacheSecured::new)
    }

    fn get(&self, key: &Bound<'_, PyAny>, default: Option<Kept>) -> PyResult<MemcacheOperation> {
        let wire = self.conversion.key(key)?;
        self.value(key, default, Carried::of(&self.client).value(&wire, false))
    }

    fn gets(
        &self,
        key: &Bound<'_, PyAny>,
        default: Option<Kept>,
        cas_default: Option<u64>,
    ) -> PyResult<MemcacheOperation> {
        let wire = self.conversion.key(key)?;
        let read = Carried::of(&self.client).value(&wire, true);
        self.value_and_cas(key, default, cas_default, read, |value| value)
    }

    fn gat(
        &self,
        key: &Bound<'_, PyAny>,
        expire: i64,
        default: Option<Kept>,
    ) -> PyResult<MemcacheOperation> {
        let wire = self.conversion.key(key)?;
        let carried = Carried::of(&self.client);
        self.value(key, default, carried.get_and_touch(&wire, exptime(expire)))
    }

    fn gats(
        &self,
        key: &Bound<'_, PyAny>,
        expire: i64,
        default: Option<Kept>,
        cas_default: Option<u64>,
    ) -> PyResult<MemcacheOperation> {
        let wire = self.conversion.key(key)?;
        let carried = Carried::of(&self.client);
        let read = carried.meta_get(&wire, get_and_touch(expire));
        self.value_and_cas(key, default, cas_default, read, MetaItem::into_value)
    }

    fn get_many(&self, keys: &Bound<'_, PyAny>, with_cas: bool) -> PyResult<MemcacheOperation> {
        let py = keys.py();
        let (keys, wires) = self.conversion.keys(keys)?;
        let keys: Vec<Kept> = keys.into_iter().map(Bound::unbind).collect();
        let wires: Vec<&[u8]> = wires.iter().map(Vec::as_slice).collect();
        let conversion = Arc::clone(&self.conversion);
        let operation = Carried::of(&self.client).values(&wires, with_cas);
        MemcacheOperation::new(py, operation, move |py, results| {
            let found = PyDict::new(py);
            for (key, result) in keys.iter().zip(results) {
                let key = key.bind(py);
                let value = match result {
                    Ok(Some(value)) => value,
                    Ok(None) => continue,
                    Err(_) if conversion.ignore_exc => continue,
                    Err(error) => return Err(exception(py, &error)),
                };
                let loaded = conversion.load(key, &value.data, value.flags)?;
                if with_cas {
                    found.set_item(key, (loaded, value.cas_unique))?;
                } else {
                    found.set_item(key, loaded)?;
                }
            }
            found.into_py_any(py)
        })
    }

    /// `set`, `add`, `replace`, `append` or `prepend`.
    fn store(
        &self,
        verb: &str,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        expire: i64,
        noreply: Option<bool>,
        flags: Option<u32>,
    ) -> PyResult<MemcacheOperation> {
        let verb = match verb {
            "set" => StoreVerb::Set,
            "add" => StoreVerb::Add,
            "replace" => StoreVerb::Replace,
            "append" => StoreVerb::Append,
            "prepend" => StoreVerb::Prepend,
            _ => return Err(PyValueError::new_err(format!("no way to store: {verb}"))),
        };
        let (wire, value, options) = self.conversion.to_store(key, value, expire, flags)?;
        let carried = Carried::of(&self.client);
        let stored = carried.store(verb, &wire, &value, options);
        let conversion = Arc::clone(&self.conversion);
        MemcacheOperation::one(key.py(), stored, move |py, stored| {
            let stored = stored.map_err(|error| exception(py, &error))?;
            let is_stored = stored == StoreOutcome::Stored;
            conversion.told(is_stored, noreply).into_py_any(py)
        })
    }

    fn cas(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        cas: &Bound<'_, PyAny>,
        expire: i64,
        noreply: bool,
        flags: Option<u32>,
    ) -> PyResult<MemcacheOperation> {
        let verb = StoreVerb::Cas(cas_unique(cas)?);
        let (wire, value, options) = self.conversion.to_store(key, value, expire, flags)?;
        let carried = Carried::of(&self.client);
        let stored = carried.store(verb, &wire, &value, options);
        MemcacheOperation::one(key.py(), stored, move |py, stored| {
            let stored = stored.map_err(|error| exception(py, &error))?;
            cas_outcome(stored, noreply).into_py_any(py)
        })
    }

    fn set_many(
        &self,
        values: &Bound<'_, PyDict>,
        expire: i64,
        flags: Option<u32>,
    ) -> PyResult<MemcacheOperation> {
        let mut keys: Vec<Kept> = Vec::with_capacity(values.len());
        let mut items = Vec::with_capacity(values.len());
        for (key, value) in values {
            items.push(self.conversion.to_store(&key, &value, expire, flags)?);
            keys.push(key.unbind());
        }
        let items: Vec<(&[u8], &[u8], _)> = items
            .iter()
            .map(|(wire, value, options)| (&wire[..], &value[..], *options))
            .collect();
        let operation = Carried::of(&self.client).set_many(&items);
        MemcacheOperation::new(values.py(), operation, move |py, results| {
            let failed = PyList::empty(py);
            for (key, result) in keys.into_iter().zip(results) {
                if result.is_err() {
                    failed.append(key)?;
                }
            }
            failed.into_py_any(py)
        })
    }

    fn delete(&self, key: &Bound<'_, PyAny>, noreply: Option<bool>) -> PyResult<MemcacheOperation> {
        let wire = self.conversion.key(key)?;
        self.told(key.py(), noreply, Carried::of(&self.client).delete(&wire))
    }

    fn delete_many(&self, keys: &Bound<'_, PyAny>) -> PyResult<MemcacheOperation> {
        let (_, wires) = self.conversion.keys(keys)?;
        let wires: Vec<&[u8]> = wires.iter().map(Vec::as_slice).collect();
        let operation = Carried::of(&self.client).delete_many(&wires);
        MemcacheOperation::new(keys.py(), operation, |py, results| {
            for result in results {
                result.map_err(|error| exception(py, &error))?;
            }
            true.into_py_any(py)
        })
    }

    fn count(
        &self,
        key: &Bound<'_, PyAny>,
        delta: u64,
        is_down: bool,
        noreply: bool,
    ) -> PyResult<MemcacheOperation> {
        let wire = self.conversion.key(key)?;
        let mode = if is_down {
            ArithmeticMode::Decrement
        } else {
            ArithmeticMode::Increment
        };
        let counted = Carried::of(&self.client).arithmetic(mode, &wire, delta);
        MemcacheOperation::one(key.py(), counted, move |py, number| {
            let number = number.map_err(|error| exception(py, &error))?;
            number.filter(|_| !noreply).into_py_any(py)
        })
    }

    fn touch(
        &self,
        key: &Bound<'_, PyAny>,
        expire: i64,
        noreply: Option<bool>,
    ) -> PyResult<MemcacheOperation> {
        let wire = self.conversion.key(key)?;
        let touched = Carried::of(&self.client).touch(&wire, exptime(expire));
        self.told(key.py(), noreply, touched)
    }

    fn stats_by_server(
        &self,
        py: Python<'_>,
        argument: Option<&str>,
    ) -> PyResult<MemcacheOperation> {
        let stats = Carried::of(&self.client).stats(argument);
        let operation = stats.map_err(|error| exception(py, &error))?;
        MemcacheOperation::new(py, operation, |py, answers| {
            let servers = PyDict::new(py);
            for (server, stats) in answers {
                let all = PyDict::new(py);
                for (name, value) in stats.map_err(|error| exception(py, &error))? {
                    all.set_item(name, value)?;
                }
                servers.set_item(&*server, all)?;
            }
            servers.into_py_any(py)
        })
    }

    fn version_by_server(&self, py: Python<'_>) -> PyResult<MemcacheOperation> {
        MemcacheOperation::new(py, Carried::of(&self.client).version(), |py, answers| {
            let servers = PyDict::new(py);
            for (server, version) in answers {
                let version = version.map_err(|error| exception(py, &error))?;
                servers.set_item(&*server, version)?;
            }
            servers.into_py_any(py)
        })
    }

    fn flush_all(&self, py: Python<'_>, delay: u64) -> PyResult<MemcacheOperation> {
        let operation = Carried::of(&self.client).flush_all(Duration::from_secs(delay));
        MemcacheOperation::new(py, operation, |py, answers| {
            for (_, done) in answers {
                done.map_err(|error| exception(py, &error))?;
            }
            true.into_py_any(py)
        })
    }

    fn raw_command(
        &self,
        command: &Bound<'_, PyAny>,
        end_tokens: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<MemcacheOperation> {
        let py = command.py();
        let (command, end_token) = self.conversion.raw(command, end_tokens)?;
        let prepared = Carried::of(&self.client).raw_command(&command, &end_token);
        let operation = prepared.map_err(|error| exception(py, &error))?;
        MemcacheOperation::new(py, operation, |py, replies| {
            only_reply(py, replies)?.into_py_any(py)
        })
    }
}

impl MemcacheOperations {
    /// Reads a value.
    fn value(
        &self,
        key: &Bound<'_, PyAny>,
        default: Option<Kept>,
        prepared: Result<Operation<Result<Option<Value>, Error>>, Error>,
    ) -> PyResult<MemcacheOperation> {
        let conversion = Arc::clone(&self.conversion);
        let kept = key.clone().unbind();
        MemcacheOperation::one(key.py(), prepared, move |py, read| {
            let value = conversion.missed(read);
            let value = value.map_err(|error| exception(py, &error))?;
            let default = default.map(|default| default.into_bound(py));
            let loaded = conversion.value(kept.bind(py), value.as_ref(), default)?;
            loaded.into_py_any(py)
        })
    }

    /// Reads an item, of which `value_of` makes a value with its cas unique.
    fn value_and_cas<T: 'static>(
        &self,
        key: &Bound<'_, PyAny>,
        default: Option<Kept>,
        cas_default: Option<u64>,
        prepared: Result<Operation<Result<Option<T>, Error>>, Error>,
        value_of: fn(T) -> Value,
    ) -> PyResult<MemcacheOperation> {
        let conversion = Arc::clone(&self.conversion);
        let kept = key.clone().unbind();
        MemcacheOperation::one(key.py(), prepared, move |py, read| {
            let item = conversion.missed(read);
            let value = item.map_err(|error| exception(py, &error))?.map(value_of);
            let default = default.map(|default| default.into_bound(py));
            let (key, value) = (kept.bind(py), value.as_ref());
            let pair = conversion.value_and_cas(key, value, default, cas_default)?;
            pair.into_py_any(py)
        })
    }

    /// Does what returns true or false.
    fn told(
        &self,
        py: Python<'_>,
        noreply: Option<bool>,
        prepared: Result<Operation<Result<bool, Error>>, Error>,
    ) -> PyResult<MemcacheOperation> {
        let conversion = Arc::clone(&self.conversion);
        MemcacheOperation::one(py, prepared, move |py, done| {
            let done = done.map_err(|error| exception(py, &error))?;
            conversion.told(done, noreply).into_py_any(py)
        })
    }
}
