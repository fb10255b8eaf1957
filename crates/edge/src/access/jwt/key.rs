//! One key, and the algorithms it is valid for.

use super::KeysError;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, VerificationAlgorithm,
};
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use std::fmt;

/// One key.
pub(super) struct VerifyingKey {
    /// Name of the key in a JWK set.
    kid: Option<String>,
    algorithms: Vec<Algorithm>,
    material: DecodingKey,
}

impl VerifyingKey {
    /// A secret that is shared with the issuer.
    ///
    /// # Errors
    /// [`KeysError::ShortSecret`] (RFC 7518 section 3.2).
    pub(super) fn secret(secret: &[u8]) -> Result<Self, KeysError> {
        if secret.len() < SECRET_BYTES_MIN {
            return Err(KeysError::ShortSecret(secret.len()));
        }
        let algorithms = AlgorithmFamily::Hmac.algorithms().to_vec();
        Ok(Self::new(algorithms, DecodingKey::from_secret(secret)))
    }

    /// A public key: `SubjectPublicKeyInfo` or `RSAPublicKey` in DER, or the form in which
    /// [`DecodingKey`] keeps keys of a JWK set.
    ///
    /// # Errors
    /// [`KeysError::UnknownKey`].
    pub(super) fn public(encoded: &[u8]) -> Result<Self, KeysError> {
        for (family, decoding_key) in [
            (
                AlgorithmFamily::Rsa,
                DecodingKey::from_rsa_der as fn(&[u8]) -> DecodingKey,
            ),
            (AlgorithmFamily::Ec, DecodingKey::from_ec_der),
            (AlgorithmFamily::Ed, DecodingKey::from_ed_der),
        ] {
            let algorithms = family.algorithms().iter().copied();
            let algorithms: Vec<_> = algorithms.filter(|of| is_key_of(encoded, *of)).collect();
            if !algorithms.is_empty() {
                return Ok(Self::new(algorithms, decoding_key(encoded)));
            }
        }
        Err(KeysError::UnknownKey)
    }

    fn new(algorithms: Vec<Algorithm>, material: DecodingKey) -> Self {
        Self {
            kid: None,
            algorithms,
            material,
        }
    }

    /// A key of a JWK set; `None` for one that is not for signatures, or of an unknown form.
    ///
    /// # Errors
    /// A fault in a key of a known form.
    ///
    /// Source: RFC 7517 section 4; RFC 7518 section 6; RFC 8037 section 2.
    pub(super) fn jwk(jwk: &Jwk) -> Result<Option<Self>, KeysError> {
        let is_for_signatures = matches!(
            jwk.common.public_key_use,
            None | Some(PublicKeyUse::Signature)
        );
        if !is_for_signatures || matches!(jwk.algorithm, AlgorithmParameters::Other(_)) {
            return Ok(None);
        }
        let material = DecodingKey::from_jwk(jwk).map_err(|_| KeysError::UnknownKey)?;
        let mut key = match material.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let components = RsaPublicKeyComponents {
                    n: without_leading_zeros(n),
                    e: without_leading_zeros(e),
                };
                let der = components.as_der().map_err(|_| KeysError::UnknownKey)?;
                Self::public(der.as_ref())?
            }
            DecodingKeyKind::SecretOrDer(bytes) => match material.family() {
                AlgorithmFamily::Hmac => Self::secret(bytes)?,
                _ => Self::public(bytes)?,
            },
        };
        if let Some(only) = jwk.common.key_algorithm {
            key.algorithms
                .retain(|algorithm| only == (*algorithm).into());
        }
        key.kid.clone_from(&jwk.common.key_id);
        Ok((!key.algorithms.is_empty()).then_some(key))
    }

    /// Returns true if the key is for this algorithm.
    pub(super) fn is_for(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
    }

    /// Returns true if a token that names its key `kid` may mean this one.
    pub(super) fn may_be_named(&self, kid: Option<&str>) -> bool {
        match (&self.kid, kid) {
            (Some(own), Some(named)) => own == named,
            _ => true,
        }
    }

    /// The material that verifies signatures.
    pub(super) fn material(&self) -> &DecodingKey {
        &self.material
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.kid)
    }
}

/// Returns true if these bytes are a public key for this algorithm.
fn is_key_of(encoded: &[u8], algorithm: Algorithm) -> bool {
    let verification: &'static dyn VerificationAlgorithm = match algorithm.family() {
        AlgorithmFamily::Rsa => &RSA_PKCS1_2048_8192_SHA256,
        AlgorithmFamily::Ec if algorithm == Algorithm::ES256 => &ECDSA_P256_SHA256_FIXED,
        AlgorithmFamily::Ec => &ECDSA_P384_SHA384_FIXED,
        AlgorithmFamily::Ed => &ED25519,
        AlgorithmFamily::Hmac => return false,
    };
    ParsedPublicKey::new(verification, encoded).is_ok()
}

/// Some implementations write numbers with a sign, though they should not (RFC 7518 section 2).
fn without_leading_zeros(number: &[u8]) -> &[u8] {
    let start = number.iter().position(|byte| *byte != 0);
    start.map_or(&[], |start| &number[start..])
}

/// The length of the shortest hash.
const SECRET_BYTES_MIN: usize = 32;
