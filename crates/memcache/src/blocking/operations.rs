//! Operations on one key that every server supports.

use std::sync::Arc;

use dwell_proto::memcache::{ArithmeticMode, StoreVerb};

use super::request::{Request, Response};
use super::value::{Exptime, StoreOptions, Value};
use super::{Client, Error, multi_get};
use crate::StoreOutcome;

impl Client {
    /// The item of `key`.
    ///
    /// # Errors
    /// When it is not known whether there is one.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        self.value(key.as_ref(), Request::Get { with_cas: false })
    }

    /// The item of `key`, with its cas unique.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn gets(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        self.value(key.as_ref(), Request::Get { with_cas: true })
    }

    /// The items of many keys, from all their servers at the same time.
    ///
    /// Shape: one result per key, in their order. A server that fails takes only its own keys with
    /// it. All of it shares one timeout; give a large one more by [`Client::with_timeout`].
    pub fn get_multi(&self, keys: &[impl AsRef<[u8]>]) -> Vec<Result<Option<Value>, Arc<Error>>> {
        let keys: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        multi_get::run(self.cluster(), &keys, false, self.budget())
    }

    /// The same with cas uniques.
    pub fn gets_multi(&self, keys: &[impl AsRef<[u8]>]) -> Vec<Result<Option<Value>, Arc<Error>>> {
        let keys: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        multi_get::run(self.cluster(), &keys, true, self.budget())
    }

    /// Gets the item of `key` and sets its exptime.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_and_touch(
        &self,
        key: impl AsRef<[u8]>,
        exptime: impl Into<Exptime>,
    ) -> Result<Option<Value>, Error> {
        let request = Request::GetAndTouch {
            exptime: exptime.into().on_wire(),
            with_cas: false,
        };
        self.value(key.as_ref(), request)
    }

    /// Stores a value.
    ///
    /// # Errors
    /// When it is not stored, or not known to be. The previous item may be gone nevertheless: a
    /// server that finds a value too large deletes the old one.
    pub fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: impl Into<StoreOptions>,
    ) -> Result<(), Error> {
        let request = store(StoreVerb::Set, value.as_ref(), options.into());
        self.run(key.as_ref(), &request, |response| match response {
            Response::Stored(StoreOutcome::Stored) => Some(()),
            _ => None,
        })
    }

    /// Stores a value if there is no such item; whether it did.
    ///
    /// # Errors
    /// When that is not known.
    pub fn add(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: impl Into<StoreOptions>,
    ) -> Result<bool, Error> {
        self.store_if(key.as_ref(), StoreVerb::Add, value.as_ref(), options.into())
    }

    /// Stores a value if there is such an item; whether it did.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: impl Into<StoreOptions>,
    ) -> Result<bool, Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.store_if(key, StoreVerb::Replace, value, options.into())
    }

    /// Adds data behind an item's; whether there was one.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn append(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.store_if(key, StoreVerb::Append, value, StoreOptions::default())
    }

    /// Adds data before an item's; whether there was one.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn prepend(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.store_if(key, StoreVerb::Prepend, value, StoreOptions::default())
    }

    /// Stores a value if the item has not changed since [`gets`](Self::gets) read `cas_unique`.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn cas(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        cas_unique: u64,
        options: impl Into<StoreOptions>,
    ) -> Result<StoreOutcome, Error> {
        let verb = StoreVerb::Cas(cas_unique);
        let request = store(verb, value.as_ref(), options.into());
        self.run(key.as_ref(), &request, |response| match response {
            Response::Stored(outcome) => Some(outcome),
            _ => None,
        })
    }

    /// Deletes an item; whether there was one.
    ///
    /// # Errors
    /// When that is not known.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.run(key.as_ref(), &Request::Delete, |response| match response {
            Response::Deleted(deleted) => Some(deleted),
            _ => None,
        })
    }

    /// Counts an item up; the new number, or `None` if there is no such item.
    ///
    /// # Errors
    /// When neither is known, or the item is no number.
    pub fn incr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.count(key.as_ref(), ArithmeticMode::Increment, delta)
    }

    /// Counts an item down, not below 0; the new number, or `None` if there is no such item.
    ///
    /// # Errors
    /// As [`incr`](Self::incr).
    pub fn decr(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.count(key.as_ref(), ArithmeticMode::Decrement, delta)
    }

    /// Sets an item's exptime; returns false if there is no item.
    ///
    /// # Errors
    /// When that is not known.
    pub fn touch(&self, key: impl AsRef<[u8]>, exptime: impl Into<Exptime>) -> Result<bool, Error> {
        let exptime = exptime.into().on_wire();
        self.run(
            key.as_ref(),
            &Request::Touch { exptime },
            |response| match response {
                Response::Touched(touched) => Some(touched),
                _ => None,
            },
        )
    }

    fn value(&self, key: &[u8], request: Request<'_>) -> Result<Option<Value>, Error> {
        self.run(key, &request, |response| match response {
            Response::Value(value) => Some(value),
            _ => None,
        })
    }

    fn store_if(
        &self,
        key: &[u8],
        verb: StoreVerb,
        value: &[u8],
        options: StoreOptions,
    ) -> Result<bool, Error> {
        let request = store(verb, value, options);
        self.run(key, &request, |response| match response {
            Response::Stored(StoreOutcome::Stored) => Some(true),
            Response::Stored(StoreOutcome::NotStored | StoreOutcome::NotFound) => Some(false),
            _ => None,
        })
    }

    fn count(&self, key: &[u8], mode: ArithmeticMode, delta: u64) -> Result<Option<u64>, Error> {
        let request = Request::Arithmetic { mode, delta };
        self.run(key, &request, |response| match response {
            Response::Number(number) => Some(number),
            _ => None,
        })
    }
}

pub(super) fn store(verb: StoreVerb, value: &[u8], options: StoreOptions) -> Request<'_> {
    Request::Store {
        verb,
        value,
        flags: options.flags,
        exptime: options.exptime.on_wire(),
    }
}
