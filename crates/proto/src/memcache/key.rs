//! Keys: what a client may send, and what a meta command may carry in base64.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// The longest key of the protocol.
///
/// Units: bytes.
///
/// Source: memcached `doc/protocol.txt`, "Keys".
pub const KEY_BYTES_MAX: usize = 250;

/// A key that is safe to put on a request line.
///
/// Shape: borrows 1 to 250 bytes without space or control characters; every request encoder takes
/// this type, so a key can never smuggle a second command into a line.
///
/// ```
/// use dwell_proto::memcache::{Key, KeyError};
///
/// assert_eq!(Key::new(b"/poll/alice").unwrap().as_bytes(), b"/poll/alice");
/// assert_eq!(Key::new(b"a\r\nflush_all"), Err(KeyError::ForbiddenByte { byte: 13, position: 1 }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key<'k>(&'k [u8]);

impl<'k> Key<'k> {
    /// Checks `bytes` and wraps them.
    ///
    /// # Errors
    /// [`KeyError`] names the limit or the byte that is not allowed; nothing is kept.
    pub fn new(bytes: &'k [u8]) -> Result<Self, KeyError> {
        if bytes.is_empty() {
            return Err(KeyError::Empty);
        }
        if bytes.len() > KEY_BYTES_MAX {
            return Err(KeyError::TooLong {
                length: bytes.len(),
            });
        }
        match bytes.iter().position(|&byte| byte <= b' ' || byte == 0x7f) {
            Some(position) => Err(KeyError::ForbiddenByte {
                byte: bytes[position],
                position,
            }),
            None => Ok(Self(bytes)),
        }
    }

    /// The key's bytes.
    pub fn as_bytes(self) -> &'k [u8] {
        self.0
    }
}

/// Reasons why bytes cannot be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// A key has at least one byte.
    Empty,
    /// The key is longer than [`KEY_BYTES_MAX`].
    TooLong {
        /// Length of the refused key in bytes.
        length: usize,
    },
    /// A space or control character, which would end the key or the line.
    ForbiddenByte {
        /// The byte.
        byte: u8,
        /// Its index.
        position: usize,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("key is empty"),
            Self::TooLong { length } => write!(f, "key exceeds {KEY_BYTES_MAX} bytes: {length}"),
            Self::ForbiddenByte { byte, position } => {
                write!(f, "key holds the byte 0x{byte:02x} at {position}")
            }
        }
    }
}

impl std::error::Error for KeyError {}

/// Room for one decoded key; lives on the caller's stack.
#[derive(Debug)]
pub struct KeyScratch([u8; KEY_BYTES_MAX]);

impl KeyScratch {
    /// Fresh room.
    pub fn new() -> Self {
        Self([0; KEY_BYTES_MAX])
    }

    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Default for KeyScratch {
    fn default() -> Self {
        Self::new()
    }
}

/// The key of a meta command as it stood on the line.
///
/// Shape: borrows the line. With flag `b` the bytes on the line are base64 and the key itself may
/// be any bytes; [`MetaKey::decode`] yields it without allocating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaKey<'b> {
    /// The token on the line, still encoded if `base64` is set.
    pub token: &'b [u8],
    /// True if flag `b` was given.
    pub base64: bool,
}

impl<'b> MetaKey<'b> {
    /// A key that is its own token.
    pub fn plain(token: &'b [u8]) -> Self {
        Self {
            token,
            base64: false,
        }
    }

    /// Returns the key itself, decoded into `scratch` if flag `b` is set.
    ///
    /// Shape: empty when the base64 is malformed, which a [`RequestDecoder`] never lets through.
    ///
    /// [`RequestDecoder`]: super::RequestDecoder
    pub fn decode<'k>(&self, scratch: &'k mut KeyScratch) -> &'k [u8]
    where
        'b: 'k,
    {
        if !self.base64 {
            return self.token;
        }
        match BASE64.decode_slice(self.token, &mut scratch.0) {
            Ok(length) => &scratch.0[..length],
            Err(_) => &[],
        }
    }

    /// Returns the length of the decoded key.
    pub(super) fn decoded_len(&self) -> usize {
        if !self.base64 {
            return self.token.len();
        }
        let padding = self
            .token
            .iter()
            .rev()
            .take_while(|&&byte| byte == b'=')
            .count();
        (self.token.len() / 4 * 3).saturating_sub(padding)
    }

    /// Returns true if the token decodes to at least one byte.
    pub(super) fn is_valid(&self) -> bool {
        !self.decode(&mut KeyScratch::new()).is_empty()
    }
}

/// Writes `key` as the base64 that flag `b` announces.
pub(super) fn base64_key(out: &mut Vec<u8>, key: &[u8]) {
    let start = out.len();
    out.resize(start + key.len().div_ceil(3) * 4, 0);
    // Room for every whole or padded group was just made, so encoding cannot run out of it.
    let written = BASE64.encode_slice(key, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_between_1_and_250_visible_bytes() {
        assert_eq!(Key::new(b""), Err(KeyError::Empty));
        assert!(Key::new(&[b'k'; 250]).is_ok());
        assert_eq!(
            Key::new(&[b'k'; 251]),
            Err(KeyError::TooLong { length: 251 })
        );
        assert!(Key::new("clé".as_bytes()).is_ok());
        for byte in [0, b'\r', b'\n', b' ', 0x7f] {
            let error = Key::new(&[b'a', byte]).unwrap_err();
            assert_eq!(error, KeyError::ForbiddenByte { byte, position: 1 });
        }
        assert_eq!(
            Key::new(&[b'k'; 300]).unwrap_err().to_string(),
            "key exceeds 250 bytes: 300"
        );
    }

    #[test]
    fn base64_keys_round_trip() {
        for length in 1..=187 {
            let key: Vec<u8> = (0..length).map(|n: u8| n.wrapping_mul(7)).collect();
            let mut token = Vec::new();
            base64_key(&mut token, &key);
            assert!(token.len() <= KEY_BYTES_MAX + 2);
            let meta = MetaKey {
                token: &token,
                base64: true,
            };
            assert_eq!(meta.decode(&mut KeyScratch::new()), &key[..]);
            assert_eq!(meta.decoded_len(), key.len());
        }
    }

    #[test]
    fn malformed_base64_is_seen() {
        for token in [&b"Zm9"[..], b"!!!!", b"Zm9v="] {
            assert!(
                !MetaKey {
                    token,
                    base64: true
                }
                .is_valid(),
                "{token:?}"
            );
        }
        assert!(
            MetaKey {
                token: b"Zm9v",
                base64: true
            }
            .is_valid()
        );
        assert!(MetaKey::plain(b"!!!!").is_valid());
    }
}
