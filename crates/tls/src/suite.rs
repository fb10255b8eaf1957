//! Cipher suites, and the keys that follow from a secret.

use crate::TlsError;
use aws_lc_rs::aead::{self, LessSafeKey, NONCE_LEN, UnboundKey};
use aws_lc_rs::hkdf::{self, KeyType, Prk};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// A cipher suite of TLS 1.3.
///
/// Source: RFC 8446 appendix B.4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suite {
    /// `TLS_AES_128_GCM_SHA256`.
    Aes128Gcm,
    /// `TLS_AES_256_GCM_SHA384`.
    Aes256Gcm,
    /// `TLS_CHACHA20_POLY1305_SHA256`.
    ChaCha20Poly1305,
}

impl Suite {
    /// Bytes of a traffic secret: those of the suite's hash.
    pub fn secret_bytes(self) -> usize {
        match self {
            Self::Aes256Gcm => 48,
            Self::Aes128Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// The number of the suite in the registry of cipher suites.
    pub fn number(self) -> u16 {
        match self {
            Self::Aes128Gcm => 0x1301,
            Self::Aes256Gcm => 0x1302,
            Self::ChaCha20Poly1305 => 0x1303,
        }
    }

    /// The suite with this [`number`](Self::number).
    pub(crate) fn numbered(number: u16) -> Option<Self> {
        let all = [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];
        all.into_iter().find(|suite| suite.number() == number)
    }

    fn hash(self) -> hkdf::Algorithm {
        match self {
            Self::Aes256Gcm => hkdf::HKDF_SHA384,
            Self::Aes128Gcm | Self::ChaCha20Poly1305 => hkdf::HKDF_SHA256,
        }
    }

    fn cipher(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::AES_128_GCM,
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

/// A traffic secret; a shorter one than the longest is followed by zeros.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(crate) struct Secret([u8; SECRET_BYTES_MAX]);

const SECRET_BYTES_MAX: usize = 48;
const KEY_BYTES_MAX: usize = 32;

/// The key and the initialisation vector of one direction.
pub(crate) struct Key {
    pub(crate) aead: LessSafeKey,
    iv: Zeroizing<[u8; NONCE_LEN]>,
}

impl Secret {
    /// Copies a secret, which has to have the length that the suite wants.
    pub(crate) fn new(suite: Suite, bytes: &[u8]) -> Result<Self, TlsError> {
        if bytes.len() != suite.secret_bytes() {
            return Err(TlsError::Keys);
        }
        let mut secret = Self([0; SECRET_BYTES_MAX]);
        secret.0[..bytes.len()].copy_from_slice(bytes);
        Ok(secret)
    }

    /// The bytes of a secret of this suite.
    pub(crate) fn bytes(&self, suite: Suite) -> &[u8] {
        &self.0[..suite.secret_bytes()]
    }

    /// The secret after a key update (RFC 8446 section 7.2).
    pub(crate) fn next(&self, suite: Suite) -> Result<Self, TlsError> {
        let mut next = Self([0; SECRET_BYTES_MAX]);
        self.expand(suite, b"traffic upd", &mut next.0[..suite.secret_bytes()])?;
        Ok(next)
    }

    /// The key that follows from it (RFC 8446 section 7.3).
    pub(crate) fn key(&self, suite: Suite) -> Result<Key, TlsError> {
        let mut key = Zeroizing::new([0; KEY_BYTES_MAX]);
        let mut iv = Zeroizing::new([0; NONCE_LEN]);
        let cipher = suite.cipher();
        let key = &mut key[..cipher.key_len()];
        self.expand(suite, b"key", key)?;
        self.expand(suite, b"iv", &mut iv[..])?;
        let aead = UnboundKey::new(cipher, key).map_err(|_| TlsError::Keys)?;
        let aead = LessSafeKey::new(aead);
        Ok(Key { aead, iv })
    }

    /// HKDF-Expand-Label with an empty context (RFC 8446 section 7.1).
    fn expand(&self, suite: Suite, label: &[u8], out: &mut [u8]) -> Result<(), TlsError> {
        const PREFIX: &[u8] = b"tls13 ";
        let length = [0, out.len() as u8];
        let label_length = [(PREFIX.len() + label.len()) as u8];
        let info: [&[u8]; 5] = [&length, &label_length, PREFIX, label, &[0]];
        let secret = Prk::new_less_safe(suite.hash(), self.bytes(suite));
        let expanded = secret.expand(&info, Length(out.len()));
        expanded
            .and_then(|expanded| expanded.fill(out))
            .map_err(|_| TlsError::Keys)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Key {
    /// The nonce of a record (RFC 8446 section 5.3).
    pub(crate) fn nonce(&self, sequence: u64) -> aead::Nonce {
        let mut nonce = *self.iv;
        for (byte, part) in nonce[NONCE_LEN - 8..]
            .iter_mut()
            .zip(sequence.to_be_bytes())
        {
            *byte ^= part;
        }
        aead::Nonce::assume_unique_for_key(nonce)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// The length that HKDF is asked for.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_the_length_of_its_suite_and_is_not_printed() {
        assert_eq!(
            Secret::new(Suite::Aes256Gcm, &[1; 32]).unwrap_err(),
            TlsError::Keys
        );
        let secret = Secret::new(Suite::Aes256Gcm, &[7; 48]).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
        let key = secret.key(Suite::Aes256Gcm).unwrap();
        assert_eq!(format!("{key:?}"), "Key");
    }
}
