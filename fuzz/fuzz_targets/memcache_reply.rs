//! Any bytes, cut anywhere, give the same replies as in one piece, without a panic.
#![no_main]

use dwell_proto::memcache::{ReplyLimits, ResponseDecoder};
use libfuzzer_sys::fuzz_target;

const LIMITS: ReplyLimits = ReplyLimits {
    line_bytes_max: 256,
    value_bytes_max: 512,
};

fuzz_target!(|data: &[u8]| {
    let Some((&size, input)) = data.split_first() else {
        return;
    };
    let whole = transcript(input, input.len().max(1));
    let pieces = transcript(input, usize::from(size).max(1));
    assert_eq!(whole, pieces);
});

fn transcript(input: &[u8], chunk_bytes: usize) -> Vec<String> {
    let mut decoder = ResponseDecoder::new(LIMITS);
    let mut seen = Vec::new();
    let mut start = 0;
    for end in (0..input.len())
        .step_by(chunk_bytes)
        .map(|at| (at + chunk_bytes).min(input.len()))
    {
        loop {
            match decoder.decode(&input[start..end]) {
                Ok(Some((consumed, reply))) => {
                    assert!(consumed > 0, "a reply without a byte");
                    start += consumed;
                    seen.push(format!("{reply:?}"));
                }
                Ok(None) => break,
                Err(_) => {
                    // Which bound is met first may depend on the cuts; that one is met may not.
                    seen.push("error".to_owned());
                    return seen;
                }
            }
        }
    }
    seen
}
