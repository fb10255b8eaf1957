//! The decoders of HTTP/2 beside the crate `h2`: the same frames give the same requests, bodies,
//! trailers and ends of streams and connections, but for differences that are listed in `ours`.
//!
//! Streams are begun in order and only those that are open get frames, as the state of streams is
//! not the decoders'; what stands in the frames is anything.
#![no_main]

mod peers;

use libfuzzer_sys::fuzz_target;
use peers::ours::Ours;
use peers::script::Script;
use peers::theirs::Theirs;
use peers::{End, May};

fuzz_target!(|data: &[u8]| {
    let mut script = Script::new(data);
    let (mut ours, mut theirs) = (Ours::new(), Theirs::new());
    while let Some(frame) = script.next(ours.open_stream()) {
        let (mut mine, mut other) = (ours.receive(&frame), theirs.receive(&frame));
        // In the middle of a block either may see a fault later than the other.
        match (mine.end, other.end, ours.end_of_block()) {
            (End::GoesOn, End::Failed(_), Some(end)) => mine = ours.receive(&end),
            (End::Failed(_), End::GoesOn, Some(end)) => other = theirs.receive(&end),
            _ => {}
        }
        let is_as = mine.is_as(&other);
        assert!(
            is_as || mine.may == May::TakeIt,
            "{frame:?}\n ours: {mine:?}\n h2: {other:?}"
        );
        // From a possible difference on, their states may differ.
        if mine.may == May::TakeIt || mine.end != End::GoesOn || other.end != End::GoesOn {
            return;
        }
    }
});
