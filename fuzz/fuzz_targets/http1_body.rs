//! Bodies: any split of the bytes gives the same body, and no step takes more than it was given.
//!
//! The first byte chooses the framing, the second where the input is cut.
#![no_main]

use dwell_proto::http1::{BodyDecoder, BodyError, BodyFraming};
use libfuzzer_sys::fuzz_target;

const BODY_BYTES_MAX: u64 = 1_000;

fuzz_target!(|input: &[u8]| {
    let [kind, piece, input @ ..] = input else { return };
    let framing = match kind % 4 {
        0 => BodyFraming::Length(u64::from(kind / 4)),
        1 => BodyFraming::UntilClose,
        _ => BodyFraming::Chunked,
    };
    let whole = decode(framing, input, input.len().max(1));
    assert_eq!(decode(framing, input, 1), whole);
    assert_eq!(decode(framing, input, usize::from(*piece).max(1)), whole);
});

/// Decodes the input in pieces of one size: the body and how much of the input it took, or
/// nothing if it did not end.
fn decode(
    framing: BodyFraming,
    input: &[u8],
    piece: usize,
) -> Result<Option<(Vec<u8>, usize)>, BodyError> {
    let mut decoder = BodyDecoder::new(framing, BODY_BYTES_MAX);
    let (mut data, mut position, mut arrived) = (Vec::new(), 0, 0);
    loop {
        let step = decoder.decode(&input[position..arrived])?;
        assert!(step.data.len() <= step.consumed && step.consumed <= arrived - position);
        data.extend_from_slice(step.data);
        assert!(data.len() as u64 <= BODY_BYTES_MAX);
        position += step.consumed;
        if step.done {
            return Ok(Some((data, position)));
        }
        if step.consumed == 0 {
            if arrived == input.len() {
                return Ok(None);
            }
            arrived = input.len().min(arrived + piece);
        }
    }
}
