//! Values in JSON.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Codec, CodecError};

/// Values in JSON, for whatever serde can write and read.
///
/// ```
/// use dwell_memcache::{Codec, Json};
///
/// let value = vec![1, 2];
/// let (data, flags) = Json.encode(&value)?;
/// assert_eq!(&*data, b"[1,2]");
/// let back: Vec<i32> = Json.decode(data.into_owned(), flags)?;
/// assert_eq!(back, [1, 2]);
/// # Ok::<(), dwell_memcache::CodecError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json;

impl<T: Serialize + DeserializeOwned> Codec<T> for Json {
    fn encode<'v>(&self, value: &'v T) -> Result<(Cow<'v, [u8]>, u32), CodecError> {
        Ok((serde_json::to_vec(value)?.into(), 0))
    }

    fn decode(&self, data: Vec<u8>, _: u32) -> Result<T, CodecError> {
        Ok(serde_json::from_slice(&data)?)
    }
}
