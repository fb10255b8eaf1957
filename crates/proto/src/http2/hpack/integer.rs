//! Integers with a prefix.

use super::super::error::HpackError;

/// Reads the integer whose first `bits` bits end the first byte of `input`.
///
/// Shape: returns it and the bytes it took; `None` if more are needed.
///
/// Source: RFC 7541 section 5.1, with integers of 32 bits at most and in at most six bytes.
pub(super) fn decode(input: &[u8], bits: u32) -> Result<Option<(u32, usize)>, HpackError> {
    let [first, rest @ ..] = input else {
        return Ok(None);
    };
    let mask = (1_u32 << bits) - 1;
    let prefix = u32::from(*first) & mask;
    if prefix < mask {
        return Ok(Some((prefix, 1)));
    }
    let mut value = u64::from(prefix);
    for (place, byte) in rest.iter().enumerate().take(BYTES_MAX) {
        value += u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let value = u32::try_from(value).map_err(|_| HpackError::Integer)?;
            return Ok(Some((value, place + 2)));
        }
    }
    if rest.len() < BYTES_MAX {
        Ok(None)
    } else {
        Err(HpackError::Integer)
    }
}

/// Appends an integer whose first bits stand in one byte with `pattern`.
pub(super) fn encode(value: u32, bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let mask = (1_u32 << bits) - 1;
    if value < mask {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The most bytes behind the first.
const BYTES_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples_of_the_standard() {
        // RFC 7541 appendix C.1.
        assert_eq!(decode(&[0xea], 5), Ok(Some((10, 1))));
        assert_eq!(decode(&[0x1f, 0x9a, 0x0a, 0x77], 5), Ok(Some((1_337, 3))));
        assert_eq!(decode(&[0x2a], 8), Ok(Some((42, 1))));
    }

    #[test]
    fn no_more_than_32_bits() {
        let largest = [0xff, 0x80, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(decode(&largest, 7), Ok(Some((u32::MAX, 6))));
        assert_eq!(
            decode(&[0xff, 0x81, 0xff, 0xff, 0xff, 0x0f], 7),
            Err(HpackError::Integer)
        );
        assert_eq!(
            decode(&[0xff, 0x80, 0x80, 0x80, 0x80, 0x80], 7),
            Err(HpackError::Integer)
        );
        assert_eq!(decode(&[0xff, 0x80, 0x80, 0x80, 0x80], 7), Ok(None));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(value: u32, bits in 4..=7_u32) {
            let mut encoded = Vec::new();
            encode(value, bits, 0, &mut encoded);
            prop_assert_eq!(decode(&encoded, bits), Ok(Some((value, encoded.len()))));
            for end in 0..encoded.len() {
                prop_assert_eq!(decode(&encoded[..end], bits), Ok(None));
            }
        }
    }
}
