//! Tokens that are good, and all the ways in which they are not.

use super::*;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA512, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use std::fs;

const NOW: u64 = 1_300_819_000;
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A token signed by `sign`.
fn token(header: &str, claims: &str, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let signed = format!(
        "{}.{}",
        base64url(header.as_bytes()),
        base64url(claims.as_bytes())
    );
    let signature = sign(signed.as_bytes());
    format!("{signed}.{}", base64url(&signature))
}

fn with_secret(secret: &[u8]) -> impl FnOnce(&[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    move |signed| hmac::sign(&key, signed).as_ref().to_vec()
}

/// A token with these claims that is signed with `secret`.
pub(crate) fn signed(claims: &str, secret: &[u8]) -> String {
    token(r#"{"alg":"HS256"}"#, claims, with_secret(secret))
}

fn hs256(claims: &str) -> String {
    signed(claims, SECRET)
}

fn secret_keys() -> VerifyingKeys {
    VerifyingKeys(vec![VerifyingKey::secret(SECRET).unwrap()])
}

fn jwk(text: &str) -> VerifyingKeys {
    let jwk = serde_json::from_str(text).unwrap();
    VerifyingKeys(vec![VerifyingKey::jwk(&jwk).unwrap().unwrap()])
}

fn verify(keys: &VerifyingKeys, token: &str) -> Result<Claims, TokenError> {
    keys.verify(token.as_bytes(), &Expected::default(), NOW)
}

#[track_caller]
fn error(keys: &VerifyingKeys, token: &str) -> TokenError {
    verify(keys, token).unwrap_err()
}

#[test]
fn the_examples_of_the_standard_are_good() {
    // RFC 7515 appendices A.1 and A.3.
    let payload = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc\
                   19yb290Ijp0cnVlfQ";
    let secret = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr\
                  1Z9CAow";
    let hs256 = jwk(&format!(r#"{{"kty":"oct","k":"{secret}"}}"#));
    let token = format!(
        "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{payload}.\
         dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    );
    let claims = verify(&hs256, &token).unwrap();
    assert_eq!(claims.text("iss"), Some("joe"));
    assert_eq!(claims.text("http://example.com/is_root"), Some("true"));
    assert_eq!(claims.expires(), Some(1_300_819_380));
    let es256 = jwk(
        r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#,
    );
    let token = format!(
        "eyJhbGciOiJFUzI1NiJ9.{payload}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxL\
         a8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    );
    assert!(verify(&es256, &token).is_ok());
    assert_eq!(error(&hs256, &token), TokenError::NoKey);
    assert_eq!(
        error(&es256, &token.replace(".D", ".E")),
        TokenError::Signature
    );
}

#[test]
fn every_family_of_signatures_is_verified() {
    let random = SystemRandom::new();
    let claims = r#"{"sub":"alice"}"#;
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let public = rsa.public_key();
    let of_pem = VerifyingKeys(vec![
        VerifyingKey::public(AsDer::as_der(public).unwrap().as_ref()).unwrap(),
    ]);
    // Two numbers behind a header of four bytes, each behind one of its own.
    let der: &[u8] = public.as_ref();
    let (modulus, exponent) = (&der[9..265], &der[267..270]);
    let of_jwk = jwk(&format!(
        r#"{{"kty":"RSA","n":"{}","e":"{}"}}"#,
        base64url(modulus),
        base64url(exponent)
    ));
    for (name, padding) in [
        (
            "RS256",
            &RSA_PKCS1_SHA256 as &dyn aws_lc_rs::signature::RsaEncoding,
        ),
        ("PS512", &RSA_PSS_SHA512),
    ] {
        let token = token(&format!(r#"{{"alg":"{name}"}}"#), claims, |signed| {
            let mut signature = vec![0; rsa.public_modulus_len()];
            rsa.sign(padding, &random, signed, &mut signature).unwrap();
            signature
        });
        assert!(verify(&of_pem, &token).is_ok(), "{name}");
        assert!(verify(&of_jwk, &token).is_ok(), "{name}");
        assert_eq!(error(&secret_keys(), &token), TokenError::NoKey);
    }
    let curves: [(&str, &'static EcdsaSigningAlgorithm); 2] = [
        ("ES256", &ECDSA_P256_SHA256_FIXED_SIGNING),
        ("ES384", &ECDSA_P384_SHA384_FIXED_SIGNING),
    ];
    for (name, curve) in curves {
        let pair = EcdsaKeyPair::generate(curve).unwrap();
        let der = pair.public_key().as_der().unwrap();
        let keys = VerifyingKeys(vec![VerifyingKey::public(der.as_ref()).unwrap()]);
        let sign = |signed: &[u8]| pair.sign(&random, signed).unwrap().as_ref().to_vec();
        let token = token(&format!(r#"{{"alg":"{name}"}}"#), claims, sign);
        assert!(verify(&keys, &token).is_ok(), "{name}");
        // A key is for the algorithm of its own curve.
        let other = token.replace(
            &base64url(format!(r#"{{"alg":"{name}"}}"#).as_bytes()),
            &base64url(br#"{"alg":"RS256"}"#),
        );
        assert_eq!(error(&keys, &other), TokenError::NoKey);
    }
    let pair = Ed25519KeyPair::generate().unwrap();
    let keys = jwk(&format!(
        r#"{{"kty":"OKP","crv":"Ed25519","x":"{}"}}"#,
        base64url(pair.public_key().as_ref())
    ));
    let sign = |signed: &[u8]| pair.sign(signed).as_ref().to_vec();
    assert!(verify(&keys, &token(r#"{"alg":"EdDSA"}"#, claims, sign)).is_ok());
}

#[test]
fn an_unsigned_token_is_never_good() {
    for alg in ["none", "None", "NONE", "", "HS256 ", "hs256"] {
        let header = format!(r#"{{"alg":"{alg}"}}"#);
        let unsigned = token(&header, r#"{"sub":"alice"}"#, |_| Vec::new());
        assert_eq!(
            error(&secret_keys(), &unsigned),
            TokenError::Malformed,
            "{alg}"
        );
    }
    for header in ["{}", r#"{"alg":1}"#, r#"{"alg":null}"#] {
        let unsigned = token(header, "{}", |_| Vec::new());
        assert_eq!(
            error(&secret_keys(), &unsigned),
            TokenError::Malformed,
            "{header}"
        );
    }
    let empty = token(r#"{"alg":"HS256"}"#, "{}", |_| Vec::new());
    assert_eq!(error(&secret_keys(), &empty), TokenError::Signature);
}

#[test]
fn a_public_key_is_never_taken_for_a_secret() {
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let der = AsDer::as_der(rsa.public_key()).unwrap();
    let der: &[u8] = der.as_ref();
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        STANDARD.encode(der)
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pem");
    fs::write(&path, &pem).unwrap();
    let files = KeyFiles {
        public: Some(path),
        ..KeyFiles::default()
    };
    let keys = files.read().unwrap();
    for secret in [der, pem.as_bytes(), rsa.public_key().as_ref()] {
        let forged = token(r#"{"alg":"HS256"}"#, "{}", with_secret(secret));
        assert_eq!(error(&keys, &forged), TokenError::NoKey);
    }
}

#[test]
fn times_are_kept_with_their_leeway() {
    let at = |claims: &str, now: u64, leeway: u64| {
        let expected = Expected {
            leeway: Duration::from_secs(leeway),
            ..Expected::default()
        };
        secret_keys()
            .verify(hs256(claims).as_bytes(), &expected, now)
            .err()
    };
    assert_eq!(at(r#"{"exp":100}"#, 99, 0), None);
    assert_eq!(at(r#"{"exp":100}"#, 100, 0), Some(TokenError::Expired));
    assert_eq!(at(r#"{"exp":100}"#, 109, 10), None);
    assert_eq!(at(r#"{"exp":100}"#, 110, 10), Some(TokenError::Expired));
    assert_eq!(at(r#"{"exp":100.9}"#, 100, 0), Some(TokenError::Expired));
    assert_eq!(at(r#"{"nbf":100}"#, 99, 0), Some(TokenError::NotYet));
    assert_eq!(at(r#"{"nbf":100}"#, 99, 1), None);
    assert_eq!(at(r#"{"nbf":100}"#, 100, 0), None);
    assert_eq!(at("{}", NOW, 0), None);
    for senseless in ["\"100\"", "null", "1e400", "[]", "99999999999999999999999"] {
        let claims = format!(r#"{{"exp":{senseless}}}"#);
        let refused = at(&claims, 1, 0);
        assert!(
            matches!(refused, Some(TokenError::Expired | TokenError::Malformed)),
            "{senseless}: {refused:?}"
        );
    }
    assert_eq!(at(r#"{"exp":-1}"#, 0, 0), Some(TokenError::Expired));
    let far = format!(r#"{{"exp":{}}}"#, u64::MAX);
    assert_eq!(at(&far, NOW, u64::MAX), None);
}

#[test]
fn issuer_and_audience_are_those_expected() {
    let expected = Expected {
        issuers: vec!["https://id.example".to_owned(), "other".to_owned()],
        audiences: vec!["dwell".to_owned()],
        ..Expected::default()
    };
    let of = |claims: &str| {
        secret_keys()
            .verify(hs256(claims).as_bytes(), &expected, NOW)
            .err()
    };
    assert_eq!(of(r#"{"iss":"other","aud":"dwell"}"#), None);
    assert_eq!(of(r#"{"iss":"other","aud":["x","dwell"]}"#), None);
    assert_eq!(of(r#"{"aud":"dwell"}"#), Some(TokenError::Issuer));
    assert_eq!(
        of(r#"{"iss":["other"],"aud":"dwell"}"#),
        Some(TokenError::Issuer)
    );
    assert_eq!(of(r#"{"iss":"other"}"#), Some(TokenError::Audience));
    assert_eq!(
        of(r#"{"iss":"other","aud":"dwell2"}"#),
        Some(TokenError::Audience)
    );
    assert_eq!(
        of(r#"{"iss":"other","aud":[["dwell"]]}"#),
        Some(TokenError::Audience)
    );
}

#[test]
fn a_token_names_its_key() {
    let other = b"fedcba9876543210fedcba9876543210";
    let set = format!(
        r#"{{"keys":[
            {{"kty":"oct","kid":"old","k":"{}"}},
            {{"kty":"oct","kid":"new","alg":"HS256","k":"{}"}},
            {{"kty":"RSA","use":"enc","kid":"enc"}},
            {{"kty":"EC","crv":"secp256k1","kid":"odd"}}]}}"#,
        base64url(other),
        base64url(SECRET)
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    fs::write(&path, set).unwrap();
    let files = KeyFiles {
        jwks: Some(path),
        ..KeyFiles::default()
    };
    let keys = files.read().unwrap();
    assert_eq!(keys.len(), 2);
    let named = |kid: &str| {
        let header = format!(r#"{{"alg":"HS256","kid":{kid}}}"#);
        verify(&keys, &token(&header, "{}", with_secret(SECRET))).err()
    };
    assert_eq!(named("\"new\""), None);
    assert_eq!(named("\"old\""), Some(TokenError::Signature));
    assert_eq!(named("\"none\""), Some(TokenError::NoKey));
    assert_eq!(named("7"), Some(TokenError::Malformed));
    assert!(
        verify(&keys, &hs256("{}")).is_ok(),
        "without a name all are tried"
    );
    let hs384 = token(r#"{"alg":"HS384","kid":"new"}"#, "{}", with_secret(SECRET));
    assert_eq!(error(&keys, &hs384), TokenError::NoKey);
}

#[test]
fn what_is_no_token_is_refused() {
    let keys = secret_keys();
    let good = hs256(r#"{"sub":"alice"}"#);
    assert!(verify(&keys, &good).is_ok());
    for wrong in [
        "",
        ".",
        "..",
        "...",
        "a.b",
        "a.b.c",
        "e30.e30.",
        "e30.e30.e30.e30",
    ] {
        let error = error(&keys, wrong);
        assert!(
            matches!(error, TokenError::Malformed | TokenError::NoKey),
            "{wrong}"
        );
    }
    assert_eq!(error(&keys, &format!("{good}=")), TokenError::Malformed);
    assert_eq!(error(&keys, &format!(" {good}")), TokenError::Malformed);
    let crit = token(
        r#"{"alg":"HS256","crit":["b64"],"b64":false}"#,
        "{}",
        with_secret(SECRET),
    );
    assert_eq!(error(&keys, &crit), TokenError::Critical);
    let array = token(r#"{"alg":"HS256"}"#, "[]", with_secret(SECRET));
    assert_eq!(error(&keys, &array), TokenError::Malformed);
    let huge = hs256(&format!(r#"{{"sub":"{}"}}"#, "a".repeat(8 * 1024)));
    assert_eq!(error(&keys, &huge), TokenError::TooLong);
    let deep = hs256(&format!(
        "{{\"a\":{}1{}}}",
        "[".repeat(2000),
        "]".repeat(2000)
    ));
    assert_eq!(error(&keys, &deep), TokenError::Malformed);
}

#[test]
fn files_that_are_none_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let said = |files: KeyFiles, text: &str| {
        fs::write(&path, text).unwrap();
        files.read().unwrap_err().1.to_string()
    };
    let secret = || KeyFiles {
        secret: Some(path.clone()),
        ..KeyFiles::default()
    };
    let public = || KeyFiles {
        public: Some(path.clone()),
        ..KeyFiles::default()
    };
    let jwks = || KeyFiles {
        jwks: Some(path.clone()),
        ..KeyFiles::default()
    };
    assert_eq!(
        said(secret(), "short\n"),
        "a secret has at least 32 bytes: 5"
    );
    assert_eq!(said(public(), ""), "there is no key in it");
    let private = "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n";
    assert_eq!(said(public(), private), "not PEM with a PUBLIC KEY");
    let cut = "-----BEGIN PUBLIC KEY-----\nAA==\n";
    assert_eq!(said(public(), cut), "not PEM with a PUBLIC KEY");
    let odd = format!("{cut}-----END PUBLIC KEY-----\n");
    assert!(said(public(), &odd).starts_with("not an RSA key"));
    assert_eq!(said(jwks(), "[]"), "not a JWK set");
    assert_eq!(said(jwks(), r#"{"keys":[]}"#), "there is no key in it");
    let weak = format!(
        r#"{{"keys":[{{"kty":"oct","k":"{}"}}]}}"#,
        base64url(b"weak")
    );
    assert_eq!(said(jwks(), &weak), "a secret has at least 32 bytes: 4");
}

proptest! {
    #[test]
    fn no_bytes_panic(token in prop::collection::vec(any::<u8>(), 0..200)) {
        let result = secret_keys().verify(&token, &Expected::default(), NOW);
        prop_assert!(result.is_err());
    }

    #[test]
    fn no_claims_panic(claims in "[\\[\\]{}\":,a-e0-9. -]{0,40}") {
        let _ = verify(&secret_keys(), &hs256(&claims));
    }

    #[test]
    fn one_changed_character_spoils_a_token(place in 0..1000_usize, other in "[A-Za-z0-9_-]") {
        let good = hs256(r#"{"sub":"alice","exp":2000000000}"#);
        let place = place % good.len();
        let mut changed = good.clone();
        changed.replace_range(place..=place, &other);
        // The last digit of a part has bits to spare, and only one way to write them.
        prop_assert_eq!(verify(&secret_keys(), &changed).is_ok(), changed == good);
    }
}
