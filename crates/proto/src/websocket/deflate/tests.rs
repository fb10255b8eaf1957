use super::*;
use crate::websocket::{Inflater, PeerError};
use proptest::prelude::*;

const LIMIT: usize = 1 << 20;

fn options() -> DeflateOptions {
    DeflateOptions {
        message_bytes_min: 0,
        ..DeflateOptions::default()
    }
}

fn inflated(payload: &[u8]) -> Result<Vec<u8>, PeerError> {
    Inflater::new().inflate(payload, LIMIT).map(<[u8]>::to_vec)
}

#[test]
fn the_examples_of_the_standard_are_inflated() {
    // RFC 7692 section 7.2.3, in its order: one block, no compression, a final block, two blocks.
    for payload in [
        &b"\xf2\x48\xcd\xc9\xc9\x07\x00"[..],
        b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00",
        b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00",
        b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00",
    ] {
        assert_eq!(inflated(payload), Ok(b"Hello".to_vec()), "{payload:x?}");
    }
    assert_eq!(inflated(b"\x00"), Ok(Vec::new()));
    assert_eq!(inflated(b""), Ok(Vec::new()));
}

#[test]
fn a_message_that_ends_within_a_block_is_refused() {
    // A stored block of 65,535 bytes of which one is there, and "Hello" without its last byte.
    for payload in [&b"\x00\xff\xff\x00\x00a"[..], b"\xf2\x48\xcd\xc9\xc9"] {
        assert_eq!(inflated(payload), Err(PeerError::Deflate), "{payload:x?}");
    }
}

#[test]
fn a_context_is_kept_where_it_was_agreed_on_and_only_there() {
    // RFC 7692 section 7.2.3.2: the second message refers to the first.
    let (first, second) = (b"\xf2\x48\xcd\xc9\xc9\x07\x00", b"\xf2\x00\x11\x00\x00");
    let mut keeping = Inflater::with_context_takeover();
    assert_eq!(keeping.inflate(first, LIMIT), Ok(&b"Hello"[..]));
    assert_eq!(keeping.inflate(second, LIMIT), Ok(&b"Hello"[..]));
    let mut afresh = Inflater::new();
    assert_eq!(afresh.inflate(first, LIMIT), Ok(&b"Hello"[..]));
    assert_eq!(afresh.inflate(second, LIMIT), Err(PeerError::Deflate));
    assert_eq!(afresh.inflate(first, LIMIT), Ok(&b"Hello"[..]));
}

#[test]
fn a_bomb_is_refused_before_it_goes_off() {
    let options = DeflateOptions {
        level: 9,
        ..options()
    };
    let mut deflater = Deflater::new(&options, 15).unwrap();
    let bomb = deflater.deflate(&vec![0; 10_000_000]).unwrap().to_vec();
    assert!(bomb.len() < 12_000);
    for limit in [0, 1, 1_000, 100_000] {
        let mut inflater = Inflater::new();
        let result = inflater.inflate(&bomb, limit).unwrap_err();
        let PeerError::MessageTooBig {
            limit: named,
            length,
        } = result
        else {
            panic!("{result}");
        };
        assert_eq!((named, result.close_code().number()), (limit, 1009));
        assert_eq!(length, limit as u64 + 1);
        assert!(inflater.held_bytes() <= 2 * limit + 8);
    }
    let mut inflater = Inflater::new();
    let exact = deflater.deflate(&[0; 1_000]).unwrap().to_vec();
    assert_eq!(inflater.inflate(&exact, 1_000).map(<[u8]>::len), Ok(1_000));
    assert!(inflater.inflate(&exact, 999).is_err());
}

#[test]
fn what_would_not_become_shorter_is_sent_as_it_is() {
    let mut deflater = Deflater::new(&options(), 15).unwrap();
    assert_eq!(deflater.deflate(b""), None);
    assert_eq!(deflater.deflate(b"x"), None);
    let mut deflater = Deflater::new(&DeflateOptions::default(), 15).unwrap();
    assert_eq!(deflater.deflate(&[b'a'; 255]), None);
    assert!(deflater.deflate(&[b'a'; 256]).is_some());
}

#[test]
fn a_window_of_eight_bits_is_agreed_on_but_not_used() {
    assert!(Deflater::new(&options(), 8).is_none());
    assert!(Deflater::new(&options(), 16).is_none());
    let mut deflaters = Deflaters::new(options());
    for bits in 9..=15 {
        assert!(deflaters.with_window(bits).is_some());
    }
    assert!(deflaters.with_window(0).is_none() && deflaters.with_window(16).is_none());
}

#[test]
fn a_repeated_message_shrinks_with_the_context_of_the_first() {
    let text = b"a poll that waits for the quick brown fox waits for the fox";
    let mut keeping = Deflater::with_context_takeover(&options(), 15).unwrap();
    let first = keeping.deflate(text).unwrap().to_vec();
    let second = keeping.deflate(text).unwrap().to_vec();
    assert!(second.len() * 2 < first.len());
    let mut inflater = Inflater::with_context_takeover();
    assert_eq!(inflater.inflate(&first, LIMIT), Ok(&text[..]));
    assert_eq!(inflater.inflate(&second, LIMIT), Ok(&text[..]));
}

#[test]
fn large_buffers_are_let_go() {
    let noise: Vec<u8> = (0..600_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let mut deflater = Deflater::new(&options(), 15).unwrap();
    let mut inflater = Inflater::new();
    let text = [noise, vec![0; 400_000]].concat();
    let payload = deflater.deflate(&text).unwrap().to_vec();
    assert_eq!(inflater.inflate(&payload, LIMIT), Ok(&text[..]));
    let small = deflater.deflate(&[0; 100]).unwrap().to_vec();
    inflater.inflate(&small, LIMIT).unwrap();
    assert!(deflater.output.capacity() <= OUTPUT_BYTES_KEPT);
    assert!(inflater.held_bytes() <= OUTPUT_BYTES_KEPT);
}

fn messages() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let words = proptest::collection::vec("[a-d]{1,6} ", 0..400);
    let text = words.prop_map(|words| words.concat().into_bytes());
    let noise = proptest::collection::vec(any::<u8>(), 0..5_000);
    proptest::collection::vec(prop_oneof![text, noise], 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_compressed_is_inflated_in_every_window(
        messages in messages(),
        bits in 9_u8..=15,
        level in 0_u32..=9,
        takeover: bool,
    ) {
        let options = DeflateOptions { level, ..options() };
        let (deflater, mut inflater) = if takeover {
            let deflater = Deflater::with_context_takeover(&options, bits);
            (deflater, Inflater::with_context_takeover())
        } else {
            (Deflater::new(&options, bits), Inflater::new())
        };
        let mut deflater = deflater.unwrap();
        for message in messages {
            if let Some(payload) = deflater.deflate(&message) {
                prop_assert!(payload.len() < message.len());
                prop_assert_eq!(inflater.inflate(payload, LIMIT), Ok(&message[..]));
            }
        }
    }

    #[test]
    fn hostile_data_is_bounded(
        payload in proptest::collection::vec(any::<u8>(), 0..600),
        limit in 0_usize..2_000,
    ) {
        let mut inflater = Inflater::with_context_takeover();
        for _ in 0..2 {
            if let Ok(output) = inflater.inflate(&payload, limit) {
                prop_assert!(output.len() <= limit);
            }
            prop_assert!(inflater.held_bytes() <= 4_096);
        }
    }
}
