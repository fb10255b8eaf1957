//! Any bytes of a watch, cut anywhere, give the same lines as in one piece, without a panic.
#![no_main]

use dwell_proto::memcache::{KEY_BYTES_MAX, KeyScratch, WatchDecoder, WatchLine};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&size, input)) = data.split_first() else {
        return;
    };
    let whole = transcript(input, input.len().max(1));
    let pieces = transcript(input, usize::from(size).max(1));
    assert_eq!(whole, pieces);
});

fn transcript(input: &[u8], chunk_bytes: usize) -> Vec<String> {
    let mut decoder = WatchDecoder::default();
    let mut seen = Vec::new();
    let mut start = 0;
    for end in (0..input.len())
        .step_by(chunk_bytes)
        .map(|at| (at + chunk_bytes).min(input.len()))
    {
        loop {
            match decoder.decode(&input[start..end]) {
                Ok(Some((consumed, line))) => {
                    assert!(consumed > 0, "a line without a byte");
                    start += consumed;
                    if let WatchLine::Item { key, .. } = line {
                        assert!(key.decode(&mut KeyScratch::new()).len() <= KEY_BYTES_MAX);
                    }
                    seen.push(format!("{line:?}"));
                }
                Ok(None) => break,
                Err(_) => {
                    seen.push("error".to_owned());
                    return seen;
                }
            }
        }
    }
    seen
}
