//! permessage-deflate: hostile data is refused or stays within the bound, and what was compressed
//! is inflated to what it was.
//!
//! The first byte chooses the window and whether contexts are kept, the second the bound.
#![no_main]

use std::cell::RefCell;

use dwell_proto::websocket::{DeflateOptions, Deflater, Deflaters, Inflater};
use libfuzzer_sys::fuzz_target;

const OPTIONS: DeflateOptions = DeflateOptions {
    server_no_context_takeover: true,
    client_no_context_takeover: true,
    server_max_window_bits: 15,
    client_max_window_bits: 15,
    message_bytes_min: 0,
    level: 6,
};

thread_local! {
    /// Made once: making a compressor takes longer than using it.
    static DEFLATERS: RefCell<Deflaters> = RefCell::new(Deflaters::new(OPTIONS));
}

fuzz_target!(|input: &[u8]| {
    let [kind, bound, input @ ..] = input else {
        return;
    };
    let bytes_max = usize::from(*bound) * 64;
    let window_bits = 9 + kind % 7;
    let takeover = *kind >= 0xf0;

    let mut inflater = inflater(takeover);
    for payload in input.chunks(usize::from(kind / 7).max(1) * 8) {
        match inflater.inflate(payload, bytes_max) {
            Ok(output) => assert!(output.len() <= bytes_max),
            Err(_) => break,
        }
    }
    assert!(inflater.held_bytes() <= 2 * bytes_max + 8);

    if takeover {
        let mut deflater = Deflater::with_context_takeover(&OPTIONS, window_bits);
        let deflater = deflater.as_mut().expect("a window that DEFLATE can use");
        round_trip(deflater, takeover, input);
    } else {
        DEFLATERS.with_borrow_mut(|deflaters| {
            let deflater = deflaters.with_window(window_bits);
            round_trip(
                deflater.expect("a window that DEFLATE can use"),
                takeover,
                input,
            );
        });
    }
});

fn round_trip(deflater: &mut Deflater, takeover: bool, message: &[u8]) {
    let mut inflater = inflater(takeover);
    for _ in 0..2 {
        if let Some(payload) = deflater.deflate(message) {
            assert!(payload.len() < message.len());
            assert_eq!(inflater.inflate(payload, message.len()), Ok(message));
        }
    }
}

fn inflater(takeover: bool) -> Inflater {
    match takeover {
        true => Inflater::with_context_takeover(),
        false => Inflater::new(),
    }
}
