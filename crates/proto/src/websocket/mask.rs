//! Masking, which is its own inverse.

/// The four bytes that a client's payload is masked with, one after the other, by exclusive or.
pub type Mask = [u8; 4];

/// Masks or unmasks `payload` in place, and returns the mask for the byte after it.
///
/// Shape: a payload that comes in pieces is unmasked piece by piece: each call is given what the
/// one before returned.
///
/// ```
/// use dwell_proto::websocket::apply_mask;
///
/// let mut payload = *b"hello";
/// let mask = apply_mask(&mut payload[..3], [1, 2, 3, 4]);
/// assert_eq!(mask, [4, 1, 2, 3]);
/// apply_mask(&mut payload[3..], mask);
/// apply_mask(&mut payload, [1, 2, 3, 4]);
/// assert_eq!(&payload, b"hello");
/// ```
///
/// Source: RFC 6455 section 5.3.
pub fn apply_mask(payload: &mut [u8], mask: Mask) -> Mask {
    let half = u64::from(u32::from_ne_bytes(mask));
    let wide = half << 32 | half;
    // Blocks of a fixed size: the compiler makes vector instructions of this loop.
    let (blocks, rest) = payload.as_chunks_mut::<8>();
    for block in blocks {
        *block = (u64::from_ne_bytes(*block) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(wide.to_ne_bytes()) {
        *byte ^= key;
    }
    let mut next = mask;
    next.rotate_left(payload.len() % mask.len());
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The algorithm of section 5.3, word for word.
    fn masked(payload: &[u8], mask: Mask) -> Vec<u8> {
        let octets = payload.iter().enumerate();
        octets.map(|(i, octet)| octet ^ mask[i % 4]).collect()
    }

    #[test]
    fn the_example_of_the_standard_is_unmasked() {
        let mut payload = [0x7f, 0x9f, 0x4d, 0x51, 0x58];
        apply_mask(&mut payload, [0x37, 0xfa, 0x21, 0x3d]);
        assert_eq!(&payload, b"Hello");
    }

    #[test]
    fn nothing_is_masked_to_nothing() {
        assert_eq!(apply_mask(&mut [], [1, 2, 3, 4]), [1, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn any_pieces_give_what_the_formula_gives(
            payload in proptest::collection::vec(any::<u8>(), 0..100),
            mask: Mask,
            cuts in proptest::collection::vec(0_usize..40, 0..6),
        ) {
            let mut pieces = payload.clone();
            let (mut start, mut next) = (0, mask);
            for cut in cuts.into_iter().chain([payload.len()]) {
                let end = payload.len().min(start + cut);
                next = apply_mask(&mut pieces[start..end], next);
                start = end;
            }
            prop_assert_eq!(&pieces, &masked(&payload, mask));
            apply_mask(&mut pieces, mask);
            prop_assert_eq!(pieces, payload);
        }
    }
}
