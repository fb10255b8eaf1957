//! Any bytes, cut anywhere, give the same requests as in one piece, without a panic.
#![no_main]

mod cuts;

use dwell_proto::memcache::{Command, KeyScratch, Progress, RequestDecoder, RequestLimits};
use libfuzzer_sys::fuzz_target;

const LIMITS: RequestLimits = RequestLimits {
    line_bytes_max: 256,
    retrieval_line_bytes_max: 1024,
    item_bytes_max: 512,
};

fuzz_target!(|data: &[u8]| cuts::same_for_all_cuts(data, transcript));

fn transcript(input: &[u8], size: u8) -> Vec<String> {
    let mut decoder = RequestDecoder::new(LIMITS);
    let mut seen = Vec::new();
    let mut start = 0;
    cuts::each_cut(input.len(), size, |end| {
        loop {
            let step = decoder.decode(&input[start..end]);
            start += step.consumed;
            match step.progress {
                Progress::Incomplete { needed } => {
                    assert!(needed > end - start, "asks for what it has");
                    return true;
                }
                Progress::Close(reason) => {
                    seen.push(format!("{reason:?}"));
                    return false;
                }
                progress => {
                    assert!(step.consumed > 0, "progress without a byte");
                    check(&progress);
                    seen.push(format!("{progress:?}"));
                }
            }
        }
    });
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
