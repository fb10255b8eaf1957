//! Any bytes, cut anywhere, give the same binary requests as in one piece, without a panic.
#![no_main]

mod cuts;

use dwell_proto::memcache::RequestLimits;
use dwell_proto::memcache::binary::{Command, Progress, RequestDecoder};
use libfuzzer_sys::fuzz_target;

const ITEM_BYTES_MAX: usize = 512;

fuzz_target!(|data: &[u8]| cuts::same_for_all_cuts(data, transcript));

fn transcript(input: &[u8], size: u8) -> Vec<String> {
    let mut decoder = RequestDecoder::new(RequestLimits {
        item_bytes_max: ITEM_BYTES_MAX,
        ..RequestLimits::default()
    });
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
                Progress::Close => {
                    seen.push("close".to_owned());
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
