//! One key, and the algorithms it is for.

use super::KeysError;
use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519,
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, VerificationAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use std::fmt;

/// An algorithm of RFC 7518 section 3.1 or RFC 8037.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
    EdDsa,
}

impl Algorithm {
    const ALL: &'static [(&'static str, Self)] = &[
        ("HS256", Self::Hs256),
        ("HS384", Self::Hs384),
        ("HS512", Self::Hs512),
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("ES512", Self::Es512),
        ("EdDSA", Self::EdDsa),
        ("Ed25519", Self::EdDsa),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, algorithm)| *algorithm)
    }
}

/// Which algorithms the forms of public keys are for.
const PUBLIC: &[(Form, Algorithm, &dyn VerificationAlgorithm)] = &[
    (Form::Rsa, Algorithm::Rs256, &RSA_PKCS1_2048_8192_SHA256),
    (Form::Rsa, Algorithm::Rs384, &RSA_PKCS1_2048_8192_SHA384),
    (Form::Rsa, Algorithm::Rs512, &RSA_PKCS1_2048_8192_SHA512),
    (Form::Rsa, Algorithm::Ps256, &RSA_PSS_2048_8192_SHA256),
    (Form::Rsa, Algorithm::Ps384, &RSA_PSS_2048_8192_SHA384),
    (Form::Rsa, Algorithm::Ps512, &RSA_PSS_2048_8192_SHA512),
    (Form::P256, Algorithm::Es256, &ECDSA_P256_SHA256_FIXED),
    (Form::P384, Algorithm::Es384, &ECDSA_P384_SHA384_FIXED),
    (Form::P521, Algorithm::Es512, &ECDSA_P521_SHA512_FIXED),
    (Form::Ed25519, Algorithm::EdDsa, &ED25519),
];

/// What a public key is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Rsa,
    P256,
    P384,
    P521,
    Ed25519,
}

/// One key.
pub(super) struct Key {
    /// Its name in a set of keys.
    kid: Option<String>,
    material: Material,
}

enum Material {
    Secret(Vec<(Algorithm, hmac::Key)>),
    Public(Vec<(Algorithm, ParsedPublicKey)>),
}

impl Key {
    /// A secret that is shared with whoever signs.
    ///
    /// # Errors
    /// When it is so short that it can be guessed (RFC 7518 section 3.2).
    pub(super) fn secret(secret: &[u8]) -> Result<Self, KeysError> {
        Self::secret_for(None, secret, |_| true)
    }

    fn secret_for(
        kid: Option<String>,
        secret: &[u8],
        is_for: impl Fn(Algorithm) -> bool,
    ) -> Result<Self, KeysError> {
        if secret.len() < SECRET_BYTES_MIN {
            return Err(KeysError::ShortSecret(secret.len()));
        }
        let algorithms = [
            (Algorithm::Hs256, hmac::HMAC_SHA256),
            (Algorithm::Hs384, hmac::HMAC_SHA384),
            (Algorithm::Hs512, hmac::HMAC_SHA512),
        ];
        let keys = algorithms
            .into_iter()
            .filter(|(algorithm, _)| is_for(*algorithm))
            .map(|(algorithm, hash)| (algorithm, hmac::Key::new(hash, secret)))
            .collect();
        let material = Material::Secret(keys);
        Ok(Self { kid, material })
    }

    /// A public key as PEM files have it: `SubjectPublicKeyInfo` or `RSAPublicKey`, in DER.
    ///
    /// # Errors
    /// When it is of no form that is known, or is too weak.
    pub(super) fn public(der: &[u8]) -> Result<Self, KeysError> {
        let parsed = PUBLIC.iter().filter_map(|(_, algorithm, verification)| {
            let key = ParsedPublicKey::new(*verification, der).ok()?;
            Some((*algorithm, key))
        });
        Self::of_parsed(None, parsed.collect())
    }

    fn of_parsed(
        kid: Option<String>,
        parsed: Vec<(Algorithm, ParsedPublicKey)>,
    ) -> Result<Self, KeysError> {
        if parsed.is_empty() {
            return Err(KeysError::UnknownKey);
        }
        let material = Material::Public(parsed);
        Ok(Self { kid, material })
    }

    /// A key of a JWK set; `None` for one that is not for signatures, or of a form not known.
    ///
    /// # Errors
    /// When it is of a known form and not right.
    ///
    /// Source: RFC 7517 section 4; RFC 7518 section 6; RFC 8037 section 2.
    pub(super) fn jwk(jwk: &Map<String, Value>) -> Result<Option<Self>, KeysError> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return Ok(None);
        }
        let kid = text("kid").map(str::to_owned);
        let only = text("alg");
        let is_for = |algorithm| only.is_none_or(|name| Algorithm::named(name) == Some(algorithm));
        let bytes = |name: &str| {
            let decoded = text(name).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
            decoded.ok_or(KeysError::UnknownKey)
        };
        let (form, encoded) = match (text("kty"), text("crv")) {
            (Some("oct"), _) => return Self::secret_for(kid, &bytes("k")?, is_for).map(Some),
            (Some("RSA"), _) => (Form::Rsa, rsa_public_key(&bytes("n")?, &bytes("e")?)),
            (Some("EC"), Some(curve)) => {
                let (form, length) = match curve {
                    "P-256" => (Form::P256, 32),
                    "P-384" => (Form::P384, 48),
                    "P-521" => (Form::P521, 66),
                    _ => return Ok(None),
                };
                (form, point(&bytes("x")?, &bytes("y")?, length)?)
            }
            (Some("OKP"), Some("Ed25519")) => (Form::Ed25519, bytes("x")?),
            _ => return Ok(None),
        };
        let parsed = PUBLIC
            .iter()
            .filter(|(of, algorithm, _)| *of == form && is_for(*algorithm))
            .map(|(_, algorithm, verification)| {
                let key = ParsedPublicKey::new(*verification, &encoded);
                let key = key.map_err(|_| KeysError::UnknownKey)?;
                Ok((*algorithm, key))
            })
            .collect::<Result<Vec<_>, KeysError>>()?;
        if parsed.is_empty() {
            return Ok(None);
        }
        Self::of_parsed(kid, parsed).map(Some)
    }

    /// Whether tokens of this algorithm may be signed with it.
    pub(super) fn is_for(&self, algorithm: Algorithm) -> bool {
        match &self.material {
            Material::Secret(keys) => keys.iter().any(|(of, _)| *of == algorithm),
            Material::Public(keys) => keys.iter().any(|(of, _)| *of == algorithm),
        }
    }

    /// Whether a token that names its key so may mean this one.
    pub(super) fn may_be_named(&self, kid: Option<&str>) -> bool {
        match (&self.kid, kid) {
            (Some(own), Some(named)) => own == named,
            _ => true,
        }
    }

    /// Whether it has signed these bytes.
    pub(super) fn has_signed(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Secret(keys) => keys
                .iter()
                .any(|(of, key)| *of == algorithm && hmac::verify(key, signed, signature).is_ok()),
            Material::Public(keys) => keys
                .iter()
                .any(|(of, key)| *of == algorithm && key.verify_sig(signed, signature).is_ok()),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.kid)
    }
}

/// `RSAPublicKey` of RFC 8017 appendix A.1.1 in DER.
fn rsa_public_key(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let mut numbers = Vec::with_capacity(modulus.len() + exponent.len() + 16);
    for number in [modulus, exponent] {
        let start = number.iter().position(|byte| *byte != 0);
        let number = start.map_or(&[][..], |start| &number[start..]);
        // A first bit of 1 would make it negative.
        let sign = number.first().is_none_or(|byte| *byte >= 0x80);
        numbers.push(0x02);
        der_length(&mut numbers, number.len() + usize::from(sign));
        numbers.extend(sign.then_some(0));
        numbers.extend_from_slice(number);
    }
    let mut key = vec![0x30];
    der_length(&mut key, numbers.len());
    key.extend_from_slice(&numbers);
    key
}

fn der_length(out: &mut Vec<u8>, length: usize) {
    let bytes = length.to_be_bytes();
    let start = bytes.iter().position(|byte| *byte != 0);
    let start = start.unwrap_or(bytes.len() - 1);
    if length >= 0x80 {
        // At most eight bytes of length.
        out.push(0x80 | (bytes.len() - start) as u8);
    }
    out.extend_from_slice(&bytes[start..]);
}

/// An uncompressed point of SEC 1 section 2.3.3.
fn point(x: &[u8], y: &[u8], length: usize) -> Result<Vec<u8>, KeysError> {
    if x.len() != length || y.len() != length {
        return Err(KeysError::UnknownKey);
    }
    Ok([&[4], x, y].concat())
}

/// As long as the shortest hash.
const SECRET_BYTES_MIN: usize = 32;
