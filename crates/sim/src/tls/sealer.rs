//! Records of TLS 1.3 as no usual client writes them: of any length, with padding, between key
//! updates, and broken ones.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{self, KeyType, Prk};
use rustls::CipherSuite;

/// The content types of records.
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const DATA: u8 = 23;

/// Seals what the client of one connection sends.
///
/// Source: RFC 8446 sections 5 and 7.
pub(crate) struct Sealer {
    hash: hkdf::Algorithm,
    cipher: &'static aead::Algorithm,
    secret: Vec<u8>,
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

impl Sealer {
    /// Begins where the handshake has ended; `None` for a suite that is none of TLS 1.3.
    pub(crate) fn new(suite: CipherSuite, secret: Vec<u8>) -> Option<Self> {
        let (hash, cipher) = match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => (hkdf::HKDF_SHA256, &aead::AES_128_GCM),
            CipherSuite::TLS13_AES_256_GCM_SHA384 => (hkdf::HKDF_SHA384, &aead::AES_256_GCM),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => {
                (hkdf::HKDF_SHA256, &aead::CHACHA20_POLY1305)
            }
            _ => return None,
        };
        let (key, iv) = keys(hash, cipher, &secret)?;
        Some(Self {
            hash,
            cipher,
            secret,
            key,
            iv,
            sequence: 0,
        })
    }

    /// Appends a record with this content and so many bytes of padding.
    pub(crate) fn seal(&mut self, kind: u8, content: &[u8], padding: usize, out: &mut Vec<u8>) {
        let mut inner = content.to_vec();
        inner.push(kind);
        inner.resize(inner.len() + padding, 0);
        self.seal_inner(inner, out);
    }

    /// Appends a record whose content, type and padding are these.
    pub(crate) fn seal_inner(&mut self, mut inner: Vec<u8>, out: &mut Vec<u8>) {
        let [high, low] = ((inner.len() + self.cipher.tag_len()) as u16).to_be_bytes();
        let header = [DATA, 3, 3, high, low];
        let mut nonce = self.iv;
        let sequence = self.sequence.to_be_bytes();
        for (byte, part) in nonce[NONCE_LEN - 8..].iter_mut().zip(sequence) {
            *byte ^= part;
        }
        self.sequence += 1;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self
            .key
            .seal_in_place_append_tag(nonce, Aad::from(header), &mut inner);
        sealed.expect("a record is short");
        out.extend_from_slice(&header);
        out.extend_from_slice(&inner);
    }

    /// Appends a key update, and changes the keys.
    pub(crate) fn update(&mut self, asks: bool, out: &mut Vec<u8>) {
        self.seal(HANDSHAKE, &[24, 0, 0, 1, u8::from(asks)], 0, out);
        let next = expand(self.hash, &self.secret, b"traffic upd", self.secret.len());
        self.secret = next.expect("a secret has the length of its hash");
        let derived = keys(self.hash, self.cipher, &self.secret);
        (self.key, self.iv) = derived.expect("the next secret is like the first");
        self.sequence = 0;
    }
}

fn keys(
    hash: hkdf::Algorithm,
    cipher: &'static aead::Algorithm,
    secret: &[u8],
) -> Option<(LessSafeKey, [u8; NONCE_LEN])> {
    let key = expand(hash, secret, b"key", cipher.key_len())?;
    let iv = expand(hash, secret, b"iv", NONCE_LEN)?;
    let key = UnboundKey::new(cipher, &key).ok()?;
    Some((LessSafeKey::new(key), iv.try_into().ok()?))
}

/// HKDF-Expand-Label with an empty context.
fn expand(hash: hkdf::Algorithm, secret: &[u8], label: &[u8], length: usize) -> Option<Vec<u8>> {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut info = vec![0, length as u8, 6 + label.len() as u8];
    info.extend_from_slice(b"tls13 ");
    info.extend_from_slice(label);
    info.push(0);
    let mut out = vec![0; length];
    let secret = Prk::new_less_safe(hash, secret);
    let info = [&*info];
    secret
        .expand(&info, Length(length))
        .ok()?
        .fill(&mut out)
        .ok()?;
    Some(out)
}
