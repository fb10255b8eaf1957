//! Values compressed.

use std::borrow::Cow;
use std::io::Read;

use super::{Codec, CodecError};

/// Compression algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// The format of zlib; client flag 8, which pylibmc and python-memcached use for the same.
    #[cfg(feature = "zlib")]
    Zlib,
    /// The format of zstd; client flag 16.
    #[cfg(feature = "zstd")]
    Zstd,
}

/// The values of another codec, compressed where it pays.
///
/// Shape: data from `min_bytes` on is compressed, and stored so if that made it shorter. Values
/// compressed in either way are read, independent of `compression`. No value becomes longer than
/// `value_bytes_max` by being read: some bytes of a hostile peer could stand for any number.
///
#[cfg_attr(feature = "zlib", doc = "```")]
#[cfg_attr(not(feature = "zlib"), doc = "```ignore")]
/// use dwell_memcache::{Bytes, Codec, Compressed, Compression};
///
/// let codec = Compressed::new(Bytes, Compression::Zlib);
/// let value = vec![b'x'; 10_000];
/// let (data, flags) = codec.encode(&value)?;
/// assert!(data.len() < 100 && flags == 8);
/// assert_eq!(codec.decode(data.into_owned(), flags)?, value);
/// # Ok::<(), dwell_memcache::CodecError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressed<C> {
    /// The codec that makes the data.
    pub inner: C,
    /// The compression of the data.
    pub compression: Compression,
    /// Shorter data is left alone. Default: 1024.
    pub min_bytes: usize,
    /// The longest data to come out of a compressed value. Default: 16 MiB.
    pub value_bytes_max: usize,
}

impl<C> Compressed<C> {
    /// Compresses what `inner` makes.
    pub const fn new(inner: C, compression: Compression) -> Self {
        Self {
            inner,
            compression,
            min_bytes: 1024,
            value_bytes_max: 16 << 20,
        }
    }
}

impl<T, C: Codec<T>> Codec<T> for Compressed<C> {
    fn encode<'v>(&self, value: &'v T) -> Result<(Cow<'v, [u8]>, u32), CodecError> {
        let (data, flags) = self.inner.encode(value)?;
        if data.len() < self.min_bytes {
            return Ok((data, flags));
        }
        let compressed = self.compression.compress(&data)?;
        if compressed.len() >= data.len() {
            return Ok((data, flags));
        }
        Ok((compressed.into(), flags | self.compression.flag()))
    }

    fn decode(&self, data: Vec<u8>, flags: u32) -> Result<T, CodecError> {
        let found = Compression::ALL
            .iter()
            .find(|compression| flags & compression.flag() != 0);
        let Some(compression) = found else {
            return self.inner.decode(data, flags);
        };
        let data = compression.decompress(&data, self.value_bytes_max)?;
        self.inner.decode(data, flags & !compression.flag())
    }
}

impl Compression {
    const ALL: &[Self] = &[
        #[cfg(feature = "zlib")]
        Self::Zlib,
        #[cfg(feature = "zstd")]
        Self::Zstd,
    ];

    const fn flag(self) -> u32 {
        match self {
            #[cfg(feature = "zlib")]
            Self::Zlib => 1 << 3,
            #[cfg(feature = "zstd")]
            Self::Zstd => 1 << 4,
        }
    }

    fn compress(self, data: &[u8]) -> Result<Vec<u8>, CodecError> {
        match self {
            #[cfg(feature = "zlib")]
            Self::Zlib => {
                let level = flate2::Compression::default();
                let mut encoder = flate2::bufread::ZlibEncoder::new(data, level);
                let mut compressed = Vec::new();
                encoder.read_to_end(&mut compressed)?;
                Ok(compressed)
            }
            #[cfg(feature = "zstd")]
            Self::Zstd => Ok(zstd::bulk::compress(data, zstd::DEFAULT_COMPRESSION_LEVEL)?),
        }
    }

    fn decompress(self, data: &[u8], limit: usize) -> Result<Vec<u8>, CodecError> {
        match self {
            #[cfg(feature = "zlib")]
            Self::Zlib => read_at_most(flate2::bufread::ZlibDecoder::new(data), limit),
            #[cfg(feature = "zstd")]
            Self::Zstd => read_at_most(zstd::stream::read::Decoder::with_buffer(data)?, limit),
        }
    }
}

fn read_at_most(reader: impl Read, limit: usize) -> Result<Vec<u8>, CodecError> {
    let mut data = Vec::new();
    reader.take(limit as u64 + 1).read_to_end(&mut data)?;
    if data.len() > limit {
        return Err(format!("decompressed value exceeds {limit} bytes").into());
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::super::Bytes;
    use super::*;

    #[test]
    fn what_is_compressed_comes_back() {
        for compression in Compression::ALL {
            let codec = Compressed::new(Bytes, *compression);
            for length in [0, 1, 1023, 1024, 100_000] {
                let value = vec![b'v'; length];
                let (data, flags) = codec.encode(&value).unwrap();
                assert_eq!(flags != 0, length >= 1024, "{compression:?} {length}");
                assert_eq!(codec.decode(data.into_owned(), flags).unwrap(), value);
            }
        }
    }

    #[test]
    fn what_would_become_longer_is_left_alone() {
        let value: Vec<u8> = (0..5000_u64)
            .map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
            .collect();
        for compression in Compression::ALL {
            let mut twice = compression.compress(&value).unwrap();
            twice = compression.compress(&twice).unwrap();
            let codec = Compressed::new(Bytes, *compression);
            let (data, flags) = codec.encode(&twice).unwrap();
            assert_eq!((&*data, flags), (&*twice, 0));
        }
    }

    #[test]
    fn a_bomb_and_a_lie_are_refused() {
        for compression in Compression::ALL {
            let mut codec = Compressed::new(Bytes, *compression);
            let value = vec![0; 1 << 20];
            let (data, flags) = codec.encode(&value).unwrap();
            codec.value_bytes_max = (1 << 20) - 1;
            let error = codec.decode(data.into_owned(), flags).unwrap_err();
            assert_eq!(
                error.to_string(),
                "decompressed value exceeds 1048575 bytes"
            );
            assert!(codec.decode(b"no such thing".to_vec(), flags).is_err());
        }
    }
}
