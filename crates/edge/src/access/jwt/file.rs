//! Files with keys.

use super::VerifyingKeys;
use super::key::VerifyingKey;
use jsonwebtoken::jwk::JwkSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Paths of the key files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyFiles {
    /// A shared secret; a line end after it is removed.
    pub(crate) secret: Option<PathBuf>,
    /// Public keys in PEM.
    pub(crate) public: Option<PathBuf>,
    /// A JWK set.
    pub(crate) jwks: Option<PathBuf>,
}

/// Fault in the keys.
#[derive(Debug)]
pub(crate) enum KeysError {
    /// A file cannot be read.
    Unreadable(io::Error),
    /// A secret is so short that it can be guessed.
    ShortSecret(usize),
    /// A key has an unknown form, or is weak.
    UnknownKey,
    /// A file is not PEM with public keys.
    Pem,
    /// A file is not a JWK set.
    Jwks,
    /// A file has no key.
    Empty,
    /// There are more keys than are kept.
    TooMany(usize),
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => error.fmt(f),
            Self::ShortSecret(bytes) => write!(f, "a secret has at least 32 bytes: {bytes}"),
            Self::UnknownKey => {
                f.write_str("not an RSA key of 2048 bits or more, an EC or an Ed25519 key")
            }
            Self::Pem => f.write_str("not PEM with a PUBLIC KEY"),
            Self::Jwks => f.write_str("not a JWK set"),
            Self::Empty => f.write_str("there is no key in it"),
            Self::TooMany(keys) => write!(f, "keys exceed {KEYS_MAX}: {keys}"),
        }
    }
}

impl std::error::Error for KeysError {}

impl KeyFiles {
    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.secret, &self.public, &self.jwks]
            .into_iter()
            .flatten()
    }

    /// Reads all files.
    ///
    /// # Errors
    /// The file and the fault.
    pub(crate) fn read(&self) -> Result<VerifyingKeys, (PathBuf, KeysError)> {
        let mut keys = Vec::new();
        if let Some(path) = &self.secret {
            let key = read(path).and_then(|text| VerifyingKey::secret(without_line_end(&text)));
            keys.push(key.map_err(|error| (path.clone(), error))?);
        }
        if let Some(path) = &self.public {
            let public = read(path).and_then(|text| pem(&text));
            keys.extend(public.map_err(|error| (path.clone(), error))?);
        }
        if let Some(path) = &self.jwks {
            let of_set = read(path).and_then(|text| jwks(&text));
            keys.extend(of_set.map_err(|error| (path.clone(), error))?);
        }
        Ok(VerifyingKeys(keys))
    }

    /// Times of the last change of each file; `None` where the system does not return one.
    pub(crate) fn changed_at(&self) -> Vec<Option<SystemTime>> {
        let changed = |path: &PathBuf| fs::metadata(path).and_then(|of| of.modified()).ok();
        self.all().map(changed).collect()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, KeysError> {
    fs::read(path).map_err(KeysError::Unreadable)
}

fn without_line_end(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.strip_suffix(b"\r").unwrap_or(text)
}

fn pem(text: &[u8]) -> Result<Vec<VerifyingKey>, KeysError> {
    let parts = pem::parse_many(text).map_err(|_| KeysError::Pem)?;
    // The parser skips a part without an end.
    let begun = text.windows(BEGIN.len()).filter(|at| *at == BEGIN).count();
    if begun != parts.len() {
        return Err(KeysError::Pem);
    }
    let mut keys = Vec::new();
    for part in parts {
        if !matches!(part.tag(), "PUBLIC KEY" | "RSA PUBLIC KEY") {
            return Err(KeysError::Pem);
        }
        keys.push(VerifyingKey::public(part.contents())?);
    }
    bounded(keys)
}

fn jwks(text: &[u8]) -> Result<Vec<VerifyingKey>, KeysError> {
    let set: JwkSet = serde_json::from_slice(text).map_err(|_| KeysError::Jwks)?;
    let keys = set
        .keys
        .iter()
        .filter_map(|jwk| VerifyingKey::jwk(jwk).transpose());
    bounded(keys.collect::<Result<_, _>>()?)
}

fn bounded(keys: Vec<VerifyingKey>) -> Result<Vec<VerifyingKey>, KeysError> {
    match keys.len() {
        0 => Err(KeysError::Empty),
        many if many > KEYS_MAX => Err(KeysError::TooMany(many)),
        _ => Ok(keys),
    }
}

const BEGIN: &[u8] = b"-----BEGIN ";
const KEYS_MAX: usize = 64;
