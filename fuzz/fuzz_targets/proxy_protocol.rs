//! Headers of the PROXY protocol: what is decided of the beginning of a connection stays so when
//! more of it comes, and within a bound.
#![no_main]

use dwell_proto::proxy_protocol::{HEADER_BYTES_MAX, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut first = None;
    for end in 0..=input.len().min(2 * HEADER_BYTES_MAX) {
        let found = parse(&input[..end]);
        match &first {
            None if found == Ok(None) => assert!(end < HEADER_BYTES_MAX),
            None => {
                if let Ok(Some(header)) = found {
                    assert_eq!(header.bytes, end);
                }
                first = Some(found);
            }
            Some(first) => assert_eq!(found, *first),
        }
    }
});
