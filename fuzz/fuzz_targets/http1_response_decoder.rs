//! Whole responses: any split of the bytes gives the same heads and body, no step takes more than
//! it was given, and a connection is used again only where nothing is left in doubt.
//!
//! The first byte chooses the method, the second where the input is cut.
#![no_main]

use dwell_proto::http1::{
    FieldStorage, HeadError, HeadLimits, ResponseDecoder, ResponseError, ResponseLimits,
    ResponsePart,
};
use libfuzzer_sys::fuzz_target;

const LIMITS: ResponseLimits = ResponseLimits {
    head: HeadLimits { head_bytes_max: 500, target_bytes_max: 0, field_count_max: 20 },
    body_bytes_max: 1_000,
    interim_count_max: 4,
};

fuzz_target!(|input: &[u8]| {
    let [kind, piece, input @ ..] = input else { return };
    let method = ["GET", "HEAD", "CONNECT"][usize::from(kind % 3)];
    let whole = decode(method, input, input.len().max(1));
    assert_eq!(decode(method, input, 1), whole);
    assert_eq!(decode(method, input, usize::from(*piece).max(1)), whole);
});

#[derive(Debug, Default, PartialEq)]
struct Seen {
    statuses: Vec<u16>,
    body: Vec<u8>,
    trailers: usize,
    end: Option<usize>,
    keep_alive: bool,
}

/// Decodes the input in pieces of one size, and then the end of the connection.
fn decode(method: &str, input: &[u8], piece: usize) -> Result<Seen, ResponseError> {
    let mut decoder = ResponseDecoder::new(method);
    let mut seen = Seen::default();
    let (mut position, mut arrived) = (0, 0);
    loop {
        let mut storage = FieldStorage::new();
        let step = decoder.decode(&input[position..arrived], &mut storage, &LIMITS);
        let step = step.map_err(without_length)?;
        assert!(step.consumed <= arrived - position);
        position += step.consumed;
        let done = step.done;
        let is_stuck = step.consumed == 0;
        match step.part {
            ResponsePart::Nothing => {}
            ResponsePart::Interim(head) => {
                assert!(matches!(head.status, 100 | 102..=199) && !done);
                seen.statuses.push(head.status);
            }
            ResponsePart::Head(head) => {
                assert!(head.status == 101 || head.status >= 200);
                assert!(head.bytes.len() <= LIMITS.head.head_bytes_max);
                seen.statuses.push(head.status);
            }
            ResponsePart::Body(bytes) => seen.body.extend_from_slice(bytes),
        }
        assert!(seen.body.len() as u64 <= LIMITS.body_bytes_max);
        assert!(seen.statuses.len() <= 1 + usize::from(LIMITS.interim_count_max));
        if done {
            break;
        }
        if is_stuck && arrived == input.len() {
            seen.end = decoder.eof().is_ok().then_some(position);
            assert!(!decoder.keep_alive());
            return Ok(seen);
        }
        if is_stuck {
            arrived = input.len().min(arrived + piece);
        }
    }
    seen.end = Some(position);
    seen.trailers = decoder.trailers().iter().count();
    seen.keep_alive = decoder.keep_alive();
    assert!(!(seen.keep_alive && decoder.is_switching()));
    Ok(seen)
}

/// How much of a head that is too long has come depends on the pieces.
fn without_length(error: ResponseError) -> ResponseError {
    match error {
        ResponseError::Head(HeadError::HeadTooLong { limit, .. }) => {
            ResponseError::Head(HeadError::HeadTooLong { limit, length: limit })
        }
        error => error,
    }
}
