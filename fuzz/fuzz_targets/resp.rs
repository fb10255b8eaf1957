//! Any bytes of a Redis server, cut anywhere, give the same messages as in one piece, without a
//! panic.
#![no_main]

use dwell_proto::resp::{Decoded, Decoder, Limits, PeerError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&size, input)) = data.split_first() else {
        return;
    };
    let whole = transcript(input, input.len().max(1));
    let pieces = transcript(input, usize::from(size).max(1));
    assert_eq!(whole, pieces);
});

/// Limits that short inputs reach.
const LIMITS: Limits = Limits {
    value_bytes_max: 64,
    aggregate_bytes_max: 512,
    line_bytes_max: 64,
    depth_max: 4,
};

fn transcript(input: &[u8], chunk_bytes: usize) -> Vec<String> {
    let mut decoder = Decoder::new(LIMITS);
    let (mut seen, mut start) = (Vec::new(), 0);
    for end in (0..input.len())
        .step_by(chunk_bytes)
        .map(|at| (at + chunk_bytes).min(input.len()))
    {
        loop {
            match decoder.decode(&input[start..end]) {
                Ok(Decoded::Message(used, message)) => {
                    assert!(used > 0, "a message without a byte");
                    start += used;
                    seen.push(format!("{message:?}"));
                }
                Ok(Decoded::Incomplete(used)) => {
                    start += used;
                    break;
                }
                // Its length is that of the bytes seen so far.
                Err(PeerError::LineTooLong { .. }) => {
                    seen.push("line too long".to_owned());
                    return seen;
                }
                Err(error) => {
                    seen.push(error.to_string());
                    return seen;
                }
            }
        }
    }
    seen
}
