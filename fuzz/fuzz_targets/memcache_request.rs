//! Any bytes, cut anywhere, give the same requests as in one piece, without a panic.
#![no_main]

use dwell_proto::memcache::{Command, KeyScratch, Progress, RequestDecoder, RequestLimits};
use libfuzzer_sys::fuzz_target;

const LIMITS: RequestLimits = RequestLimits {
    line_bytes_max: 256,
    retrieval_line_bytes_max: 1024,
    item_bytes_max: 512,
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
    let mut decoder = RequestDecoder::new(LIMITS);
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
                Progress::Close(reason) => {
                    seen.push(format!("{reason:?}"));
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
    let key = match progress {
        Progress::Command(Command::MetaGet(get)) => get.key,
        Progress::Command(Command::MetaSet(set)) => set.key,
        Progress::Command(Command::MetaDebug { key }) | Progress::TooLarge { key, .. } => *key,
        _ => return,
    };
    let mut scratch = KeyScratch::new();
    assert!((1..=250).contains(&key.decode(&mut scratch).len()));
}
