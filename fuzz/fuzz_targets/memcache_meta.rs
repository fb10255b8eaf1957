//! Meta commands made of any bytes, cut anywhere: the typed flags are those on the line, and what
//! is refused takes its data with it.
#![no_main]

mod cuts;

use dwell_proto::memcache::{Command, MetaFlags, Progress, RequestDecoder};
use libfuzzer_sys::fuzz_target;

const COMMANDS: [&[u8]; 5] = [b"mg", b"ms", b"md", b"ma", b"me"];
/// Letters that a line is made of, so that most of them are flags.
const ALPHABET: &[u8; 32] = b"bqvuITNRCEFDJMOkstcflhxSA-0159= ";

fuzz_target!(|data: &[u8]| {
    cuts::same_for_all_cuts(data, transcript);
});

/// The lines that the bytes stand for: each byte is a letter, the high ones end a line.
fn lines(input: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for line in input.split(|byte| *byte >= 0xf0) {
        let Some((&first, rest)) = line.split_first() else {
            continue;
        };
        let name = COMMANDS[usize::from(first) % COMMANDS.len()];
        lines.extend_from_slice(name);
        lines.extend_from_slice(b" key");
        if name == b"ms" {
            lines.extend_from_slice(b" 2");
        }
        lines.push(b' ');
        lines.extend(rest.iter().map(|byte| ALPHABET[usize::from(*byte % 32)]));
        lines.extend_from_slice(b"\r\n");
        if name == b"ms" {
            lines.extend_from_slice(b"xy\r\n");
        }
        // What is out of step is seen by a command that is none.
        lines.extend_from_slice(b"mn\r\n");
    }
    lines
}

fn transcript(input: &[u8], size: u8) -> Vec<String> {
    let input = lines(input);
    let mut decoder = RequestDecoder::default();
    let mut seen = Vec::new();
    let mut start = 0;
    cuts::each_cut(input.len(), size, |end| {
        loop {
            let step = decoder.decode(&input[start..end]);
            start += step.consumed;
            match step.progress {
                Progress::Incomplete { .. } => return true,
                Progress::Close(reason) => {
                    seen.push(format!("{reason:?}"));
                    return false;
                }
                progress => {
                    check(&progress);
                    seen.push(format!("{progress:?}"));
                }
            }
        }
    });
    // Every line is followed by one no-op, and every one of both is answered once.
    let is_closed = seen.last().is_some_and(|last| last == "LineTooLong");
    let noops = seen.iter().filter(|what| what.contains("MetaNoop")).count();
    assert!(is_closed || noops * 2 == seen.len(), "out of step");
    seen
}

/// The typed flags say what the line says.
fn check(progress: &Progress<'_>) {
    let Progress::Command(command) = progress else {
        return;
    };
    let flags: &MetaFlags<'_> = match command {
        Command::MetaGet(get) => &get.flags,
        Command::MetaSet(set) => {
            assert_eq!(set.value, b"xy");
            &set.flags
        }
        Command::MetaDelete(delete) => &delete.flags,
        Command::MetaArithmetic(arithmetic) => &arithmetic.flags,
        _ => return,
    };
    let all = flags.all;
    assert_eq!(flags.quiet, all.find(b'q').is_some());
    assert_eq!(flags.value, all.find(b'v').is_some());
    assert_eq!(flags.invalidate, all.find(b'I').is_some());
    assert_eq!(flags.exptime.is_some(), all.find(b'T').is_some());
    assert_eq!(flags.vivify.is_some(), all.find(b'N').is_some());
    assert_eq!(flags.cas_unique.is_some(), all.find(b'C').is_some());
    let mut letters: Vec<u8> = all.iter().map(|flag| flag.letter).collect();
    let count = letters.len();
    letters.sort_unstable();
    letters.dedup();
    assert_eq!(letters.len(), count, "a flag twice");
    assert!(all.opaque().is_none_or(|token| token.len() <= 31));
}
