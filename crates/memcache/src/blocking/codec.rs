//! Values that are something else than bytes.

use std::borrow::Cow;

use super::value::{Exptime, StoreOptions, Value};
use super::{Client, Error};

#[cfg(any(feature = "zlib", feature = "zstd"))]
mod compress;
#[cfg(feature = "json")]
mod json;

#[cfg(any(feature = "zlib", feature = "zstd"))]
pub use compress::{Compressed, Compression};
#[cfg(feature = "json")]
pub use json::Json;

/// The reason why a value could not be encoded or decoded.
pub type CodecError = Box<dyn std::error::Error + Send + Sync>;

/// Turns values of a type into the data of items, and back.
///
/// Shape: the client flags tell later what was done to the data. A codec sets and reads only its
/// own bits, so that codecs can be nested.
///
/// ```no_run
/// use dwell_memcache::{Client, Codec, CodecError, Exptime};
/// use std::borrow::Cow;
///
/// /// Text in UTF-8.
/// struct Text;
///
/// impl Codec<String> for Text {
///     fn encode<'v>(&self, value: &'v String) -> Result<(Cow<'v, [u8]>, u32), CodecError> {
///         Ok((value.as_bytes().into(), 0))
///     }
///     fn decode(&self, data: Vec<u8>, _flags: u32) -> Result<String, CodecError> {
///         Ok(String::from_utf8(data)?)
///     }
/// }
///
/// let texts = Client::for_servers(&["127.0.0.1:11211"])?.with_codec(Text);
/// texts.set("greeting", &"hello".to_owned(), Exptime::Never)?;
/// assert_eq!(texts.get("greeting")?, Some("hello".to_owned()));
/// # Ok::<(), dwell_memcache::Error>(())
/// ```
pub trait Codec<T> {
    /// The data of a value, and the client flags to store with it.
    ///
    /// # Errors
    /// When the value cannot be said in this form.
    fn encode<'v>(&self, value: &'v T) -> Result<(Cow<'v, [u8]>, u32), CodecError>;

    /// The value of some data that was stored with these client flags.
    ///
    /// # Errors
    /// When the data is not what the flags say, or larger than it may be.
    fn decode(&self, data: Vec<u8>, flags: u32) -> Result<T, CodecError>;
}

/// Data as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes;

impl Codec<Vec<u8>> for Bytes {
    fn encode<'v>(&self, value: &'v Vec<u8>) -> Result<(Cow<'v, [u8]>, u32), CodecError> {
        Ok((value.into(), 0))
    }

    fn decode(&self, data: Vec<u8>, _: u32) -> Result<Vec<u8>, CodecError> {
        Ok(data)
    }
}

/// A client whose values go through a [`Codec`].
#[derive(Clone, Debug)]
pub struct TypedClient<C> {
    client: Client,
    codec: C,
}

impl Client {
    /// The same client, with values that go through `codec`.
    pub fn with_codec<C>(&self, codec: C) -> TypedClient<C> {
        TypedClient {
            client: self.clone(),
            codec,
        }
    }
}

impl<C> TypedClient<C> {
    /// The client underneath.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// As [`Client::get`], and [`Error::Codec`] when the data cannot be decoded.
    pub fn get<T>(&self, key: impl AsRef<[u8]>) -> Result<Option<T>, Error>
    where
        C: Codec<T>,
    {
        self.client
            .get(key)?
            .map(|value| self.decoded(value))
            .transpose()
    }

    /// The value of `key`, with its cas unique.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn gets<T>(&self, key: impl AsRef<[u8]>) -> Result<Option<(T, u64)>, Error>
    where
        C: Codec<T>,
    {
        let Some(value) = self.client.gets(key)? else {
            return Ok(None);
        };
        let cas_unique = value.cas_unique.unwrap_or(0);
        Ok(Some((self.decoded(value)?, cas_unique)))
    }

    /// Stores a value.
    ///
    /// # Errors
    /// As [`Client::set`], and [`Error::Codec`] when the value cannot be encoded.
    pub fn set<T>(
        &self,
        key: impl AsRef<[u8]>,
        value: &T,
        exptime: impl Into<Exptime>,
    ) -> Result<(), Error>
    where
        C: Codec<T>,
    {
        let (data, options) = self.encoded(value, exptime.into())?;
        self.client.set(key, data, options)
    }

    /// Stores a value if there is no such item; whether it did.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn add<T>(
        &self,
        key: impl AsRef<[u8]>,
        value: &T,
        exptime: impl Into<Exptime>,
    ) -> Result<bool, Error>
    where
        C: Codec<T>,
    {
        let (data, options) = self.encoded(value, exptime.into())?;
        self.client.add(key, data, options)
    }

    fn encoded<'v, T>(
        &self,
        value: &'v T,
        exptime: Exptime,
    ) -> Result<(Cow<'v, [u8]>, StoreOptions), Error>
    where
        C: Codec<T>,
    {
        let (data, flags) = self.codec.encode(value).map_err(Error::Codec)?;
        Ok((data, StoreOptions { flags, exptime }))
    }

    fn decoded<T>(&self, value: Value) -> Result<T, Error>
    where
        C: Codec<T>,
    {
        let Value { data, flags, .. } = value;
        self.codec.decode(data, flags).map_err(Error::Codec)
    }
}
