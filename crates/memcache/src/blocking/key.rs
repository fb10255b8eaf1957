//! Keys as they go on the wire.

use std::borrow::Cow;

use dwell_proto::memcache::encode::request::base64_key;
use dwell_proto::memcache::{Key, KeyError};
use sha2::{Digest, Sha256};

use super::options::KeyPolicy;

/// A key that can be sent.
#[derive(Clone, Debug)]
pub(crate) enum WireKey<'k> {
    /// The key of the caller.
    Plain(Key<'k>),
    /// Another token in its place.
    Encoded { token: Vec<u8>, base64: bool },
}

impl<'k> WireKey<'k> {
    /// Returns the form in which `key` is sent; `is_meta` if by a meta command.
    pub(crate) fn new(key: &'k [u8], policy: KeyPolicy, is_meta: bool) -> Result<Self, KeyError> {
        let error = match (Key::new(key), policy) {
            (Ok(key), _) => return Ok(Self::Plain(key)),
            (Err(KeyError::Empty), _) => KeyError::Empty,
            (Err(_), KeyPolicy::Base64) if is_meta => {
                let mut token = Vec::new();
                base64_key(&mut token, key)?;
                return Ok(Self::Encoded {
                    token,
                    base64: true,
                });
            }
            (Err(_), KeyPolicy::Hash) => {
                return Ok(Self::Encoded {
                    token: hashed(key),
                    base64: false,
                });
            }
            (Err(error), _) => error,
        };
        Err(error)
    }

    /// The bytes on the line.
    pub(crate) fn token(&self) -> Result<Key<'_>, KeyError> {
        match self {
            Self::Plain(key) => Ok(*key),
            Self::Encoded { token, .. } => Key::new(token),
        }
    }

    /// The same key with bytes of its own.
    pub(crate) fn into_owned(self) -> WireKey<'static> {
        match self {
            Self::Plain(key) => WireKey::Encoded {
                token: key.as_bytes().to_vec(),
                base64: false,
            },
            Self::Encoded { token, base64 } => WireKey::Encoded { token, base64 },
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Plain(key) => key.as_bytes(),
            Self::Encoded { token, .. } => token,
        }
    }

    /// Returns the bytes that a ring hashes: the key as the server stores it. `key` is the one that
    /// the caller gave.
    pub(crate) fn ring_key<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        match self {
            Self::Encoded {
                token,
                base64: false,
            } => Cow::Owned(token.clone()),
            _ => Cow::Borrowed(key),
        }
    }

    pub(crate) const fn is_base64(&self) -> bool {
        matches!(self, Self::Encoded { base64: true, .. })
    }
}

fn hashed(key: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut token = b"sha256:".to_vec();
    for byte in Sha256::digest(key) {
        token.push(DIGITS[usize::from(byte >> 4)]);
        token.push(DIGITS[usize::from(byte & 15)]);
    }
    token
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS_OF_ABC_DEF: &str =
        "010971ea0013a09d91df437de2cd6f66df4dbdf78974926175d8421055ad1f62";

    fn sent(key: &[u8], policy: KeyPolicy, is_meta: bool) -> Result<Vec<u8>, KeyError> {
        WireKey::new(key, policy, is_meta).map(|key| key.as_bytes().to_vec())
    }

    #[test]
    fn an_ordinary_key_is_left_alone() {
        for policy in [KeyPolicy::Refuse, KeyPolicy::Base64, KeyPolicy::Hash] {
            assert_eq!(sent(b"a", policy, true), Ok(b"a".to_vec()));
            assert_eq!(sent(b"", policy, true), Err(KeyError::Empty));
        }
    }

    #[test]
    fn any_other_is_refused_encoded_or_hashed() {
        let key = b"a b";
        assert!(sent(key, KeyPolicy::Refuse, true).is_err());
        assert!(sent(key, KeyPolicy::Base64, false).is_err());
        assert_eq!(sent(key, KeyPolicy::Base64, true), Ok(b"YSBi".to_vec()));
        assert!(sent(&[b'k'; 188], KeyPolicy::Base64, true).is_ok());
        assert!(sent(&[b' '; 188], KeyPolicy::Base64, true).is_err());
        // As `printf 'abc def' | sha256sum` says.
        let hashed = sent(b"abc def", KeyPolicy::Hash, false).unwrap();
        assert_eq!(hashed, format!("sha256:{DIGITS_OF_ABC_DEF}").into_bytes());
    }
}
