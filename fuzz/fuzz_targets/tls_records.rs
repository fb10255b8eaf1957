//! TLS records: whatever a peer protects, and whatever is sent unprotected, gives the same data and
//! the same fault however it is cut.
//!
//! The first byte says how the input is cut. Then a list: a byte that chooses what comes, its
//! length, and so many bytes. It is a record with them as its content, whose type is one of the
//! known ones or the first of them; or they are sent as they are.
#![no_main]

mod cuts;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use dwell_tls::{Keys, RECORD_BYTES_MAX, Secrets, Session, Suite};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| cuts::same_for_all_cuts(data, transcript));

/// The traffic secret of the peer.
const SECRET: [u8; 32] = [1; 32];

/// Opens the records cut so; returns the fault, the state, and the data if there was no fault: what
/// came in one piece with a fault is not handed out.
fn transcript(input: &[u8], size: u8) -> Vec<String> {
    let wire = wire(input);
    let mut keys = Keys::new(1);
    let secrets = Secrets::new(&SECRET, &[2; 32]);
    let mut session = Session::new(Suite::Aes128Gcm, secrets).expect("the secrets fit");
    let (mut rest, mut data, mut from) = (Vec::new(), Vec::new(), 0);
    let mut fault = String::new();
    cuts::each_cut(wire.len(), size, |end| {
        rest.extend_from_slice(&wire[from..end]);
        from = end;
        match session.open(&mut keys, &mut rest) {
            Ok(opened) => {
                assert!(opened.data <= opened.used);
                data.extend_from_slice(&rest[..opened.data]);
                rest.drain(..opened.used);
                assert!(rest.len() < RECORD_BYTES_MAX);
            }
            Err(error) => {
                let mut out = Vec::new();
                session
                    .abort(&mut keys, &error, &mut out)
                    .expect("it seals");
                assert_eq!(out.is_empty(), error.alert().is_none());
                fault = error.to_string();
                data.clear();
            }
        }
        fault.is_empty()
    });
    let state = format!("{} {}", session.owes(), session.is_ended());
    vec![fault, state, format!("{data:?}")]
}

/// What the peer sends.
fn wire(mut input: &[u8]) -> Vec<u8> {
    let mut peer = Peer::new(SECRET);
    let mut wire = Vec::new();
    while let [choice, length, rest @ ..] = input {
        let (part, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        input = rest;
        let padding = usize::from(choice >> 4);
        match choice % 6 {
            0 | 1 => peer.seal(23, part, padding, &mut wire),
            2 => {
                peer.seal(22, part, padding, &mut wire);
                if part.len() == 5 {
                    peer = Peer::new(peer.next);
                }
            }
            3 => peer.seal(21, part, padding, &mut wire),
            4 => wire.extend_from_slice(part),
            _ => {
                if let [kind, part @ ..] = part {
                    peer.seal(*kind, part, padding, &mut wire);
                }
            }
        }
    }
    wire
}

/// The keys of the peer, made without the code that is tested.
struct Peer {
    key: LessSafeKey,
    iv: [u8; 12],
    next: [u8; 32],
    sequence: u64,
}

impl Peer {
    fn new(secret: [u8; 32]) -> Self {
        let mut key = [0; 16];
        let (mut iv, mut next) = ([0; 12], [0; 32]);
        expand(&secret, b"\x00\x10\x09tls13 key\x00", &mut key);
        expand(&secret, b"\x00\x0c\x08tls13 iv\x00", &mut iv);
        expand(&secret, b"\x00\x20\x11tls13 traffic upd\x00", &mut next);
        let key = UnboundKey::new(&AES_128_GCM, &key).expect("the key fits");
        Self {
            key: LessSafeKey::new(key),
            iv,
            next,
            sequence: 0,
        }
    }

    fn seal(&mut self, kind: u8, content: &[u8], padding: usize, wire: &mut Vec<u8>) {
        let mut body = [content, &[kind], &vec![0; padding]].concat();
        let length = (body.len() + 16) as u16;
        let header = [&[23, 3, 3][..], &length.to_be_bytes()].concat();
        let mut nonce = self.iv;
        for (byte, part) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= part;
        }
        self.sequence += 1;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(&header), &mut body)
            .expect("it seals");
        wire.extend_from_slice(&header);
        wire.extend_from_slice(&body);
        wire.extend_from_slice(tag.as_ref());
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(secret: &[u8; 32], info: &[u8], out: &mut [u8]) {
    let info = [info];
    Prk::new_less_safe(HKDF_SHA256, secret)
        .expand(&info, Length(out.len()))
        .and_then(|expanded| expanded.fill(out))
        .expect("it expands");
}
