//! The meta commands on one key, and what is made of them.

use super::meta::{
    Lease, Leased, MetaArithmetic, MetaCounted, MetaDelete, MetaDeleted, MetaGet, MetaItem,
    MetaSet, MetaStored,
};
use super::request::{Request, Response};
use super::value::StoreOptions;
use super::{Client, Error};
use crate::StoreOutcome;

impl Client {
    /// `mg`: gets the item of `key`, with the attributes of `options`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn meta_get(
        &self,
        key: impl AsRef<[u8]>,
        options: MetaGet,
    ) -> Result<Option<MetaItem>, Error> {
        self.run(
            key.as_ref(),
            &Request::MetaGet(options),
            |response| match response {
                Response::MetaItem(item) => Some(item),
                _ => None,
            },
        )
    }

    /// `ms`: stores a value by `options`.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn meta_set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: MetaSet,
    ) -> Result<MetaStored, Error> {
        let value = value.as_ref();
        self.run(
            key.as_ref(),
            &Request::MetaSet { value, options },
            |response| match response {
                Response::MetaStored(stored) => Some(stored),
                _ => None,
            },
        )
    }

    /// `md`: deletes an item, or marks it stale.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    pub fn meta_delete(
        &self,
        key: impl AsRef<[u8]>,
        options: MetaDelete,
    ) -> Result<MetaDeleted, Error> {
        self.run(
            key.as_ref(),
            &Request::MetaDelete(options),
            |response| match response {
                Response::MetaDeleted(deleted) => Some(deleted),
                _ => None,
            },
        )
    }

    /// `ma`: counts an item up or down.
    ///
    /// # Errors
    /// As [`incr`](Self::incr).
    pub fn meta_arithmetic(
        &self,
        key: impl AsRef<[u8]>,
        options: MetaArithmetic,
    ) -> Result<MetaCounted, Error> {
        self.run(
            key.as_ref(),
            &Request::MetaArithmetic(options),
            |response| match response {
                Response::MetaCounted(counted) => Some(counted),
                _ => None,
            },
        )
    }

    /// `me`: returns the attributes of an item, by name, without counting as a read.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn meta_debug(
        &self,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<(String, String)>>, Error> {
        self.run(
            key.as_ref(),
            &Request::MetaDebug,
            |response| match response {
                Response::MetaDebug(attributes) => Some(attributes),
                _ => None,
            },
        )
    }

    /// Gets the item of `key`; of all clients that miss it, one wins the right to make it.
    ///
    /// Shape: a missing item, one that was marked stale
    /// ([`MetaDelete::invalidate`]) and one near its end are each won by one client, which stores
    /// what it makes by [`fulfil`](Self::fulfil). The others go on with what there is.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn lease(&self, key: impl AsRef<[u8]>, lease: Lease) -> Result<Leased, Error> {
        let request = Request::MetaGet(lease.request());
        self.run(key.as_ref(), &request, |response| match response {
            Response::MetaItem(item) => item.and_then(Leased::of),
            _ => None,
        })
    }

    /// Stores what a lease was won for; `false` if the item has changed since.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn fulfil(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        cas_unique: u64,
        options: impl Into<StoreOptions>,
    ) -> Result<bool, Error> {
        let StoreOptions { flags, exptime } = options.into();
        let options = MetaSet {
            flags,
            exptime,
            cas_unique: Some(cas_unique),
            ..MetaSet::default()
        };
        let stored = self.meta_set(key, value, options)?;
        Ok(stored.outcome == StoreOutcome::Stored)
    }
}
