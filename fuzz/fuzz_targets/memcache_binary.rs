//! Any bytes, cut anywhere, give the same binary requests as in one piece, without a panic.
#![no_main]

use dwell_proto::memcache::RequestLimits;
use dwell_proto::memcache::binary::{Command, Progress, RequestDecoder};
use libfuzzer_sys::fuzz_target;

const ITEM_BYTES_MAX: usize = 512;

fuzz_target!(|data: &[u8]| {
    let Some((&size, input)) = data.split_first() else {
        return;
    };
    let whole = transcript(input, input.len().max(1));
    let pieces = transcript(input, usize::from(size).max(1));
    assert_eq!(whole, pieces);
});

fn transcript(input: &[u8], chunk_bytes: usize) -> Vec<String> {
    let mut decoder = RequestDecoder::new(RequestLimits {
        item_bytes_max: ITEM_BYTES_MAX,
        ..RequestLimits::default()
    });
    let mut seen = Vec::new();
    let mut start = 0;
    for end in (0..input.len())
        .step_by(chunk_bytes)
        .map(|at| (at + chunk_bytes).min(input.len()))
    {
        loop {
            let step = decoder.decode(&input[start..end]);
            start += step.consumed;
            match step.progress {
                Progress::Incomplete { needed } => {
                    assert!(needed > end - start, "asks for what it has");
                    break;
                }
                Progress::Close => {
                    seen.push("close".to_owned());
                    return seen;
                }
                progress => {
                    assert!(step.consumed > 0, "progress without a byte");
                    check(&progress);
                    seen.push(format!("{progress:?}"));
                }
            }
        }
    }
    seen
}

/// What the server relies on.
fn check(progress: &Progress<'_>) {
    let Progress::Request(request) = progress else {
        return;
    };
    match request.command {
        Command::Store { key, value, .. } => {
            assert!((1..=250).contains(&key.len()));
            assert!(key.len() + value.len() <= ITEM_BYTES_MAX);
        }
        Command::Get { key, .. } | Command::Touch { key, .. } | Command::Delete { key } => {
            assert!((1..=250).contains(&key.len()));
        }
        _ => {}
    }
}
