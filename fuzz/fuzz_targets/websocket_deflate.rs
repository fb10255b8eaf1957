//! permessage-deflate: hostile data is refused or stays within the bound, and what was compressed
//! is inflated to what it was.
//!
//! The first byte chooses the window and whether contexts are kept, the second the bound.
#![no_main]

use dwell_proto::websocket::{DeflateOptions, Deflater, Inflater};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [kind, bound, input @ ..] = input else { return };
    let bytes_max = usize::from(*bound) * 64;
    let window_bits = 9 + kind % 7;
    let takeover = kind & 0x80 != 0;

    let mut inflater = inflater(takeover);
    for payload in input.chunks(usize::from(kind / 7).max(1) * 8) {
        match inflater.inflate(payload, bytes_max) {
            Ok(output) => assert!(output.len() <= bytes_max),
            Err(_) => break,
        }
    }
    assert!(inflater.held_bytes() <= 2 * bytes_max + 8);

    let options = DeflateOptions {
        message_bytes_min: 0,
        level: u32::from(kind % 10),
        ..DeflateOptions::default()
    };
    let deflater = match takeover {
        true => Deflater::with_context_takeover(&options, window_bits),
        false => Deflater::new(&options, window_bits),
    };
    let mut deflater = deflater.expect("a window that DEFLATE can use");
    let mut inflater = self::inflater(takeover);
    for message in [input, &input.repeat(3), input] {
        if let Some(payload) = deflater.deflate(message) {
            assert!(payload.len() < message.len());
            assert_eq!(inflater.inflate(payload, message.len()), Ok(message));
        }
    }
});

fn inflater(takeover: bool) -> Inflater {
    match takeover {
        true => Inflater::with_context_takeover(),
        false => Inflater::new(),
    }
}
