mod accepted;
mod limits;
mod pieces;
mod refused;

use super::*;

/// The status that a head is refused with; 0 if it is accepted. Goes the way a server does:
/// finds the end first, and parses what is before it.
fn refusal(input: &[u8]) -> u16 {
    let end = head_end(input, &mut 0).expect("the head has an end");
    let mut storage = FieldStorage::new();
    let parsed = parse_request(&input[..end], &mut storage, &HeadLimits::default());
    parsed.map_or_else(HeadError::status, |_| 0)
}

#[track_caller]
fn check_refused(cases: &[(&str, u16)]) {
    for (input, status) in cases {
        assert_eq!(refusal(input.as_bytes()), *status, "{input:?}");
    }
}

#[track_caller]
fn accept<R>(input: &str, look: impl FnOnce(&RequestHead<'_, '_>) -> R) -> R {
    let mut storage = FieldStorage::new();
    let parsed = parse_request(input.as_bytes(), &mut storage, &HeadLimits::default());
    look(&parsed.unwrap_or_else(|error| panic!("{input:?}: {error}")))
}
