//! How an input is cut into pieces.

/// Calls `feed` with the place of each next cut, up to the end of the input.
///
/// Shape: with `size` 0 the input comes whole, with 1 byte by byte, and with more in pieces of 1 to
/// `size` bytes, which a simple generator begun with `size` gives.
pub fn each_cut(length: usize, size: u8, mut feed: impl FnMut(usize) -> bool) {
    let mut state = u32::from(size);
    let mut end = 0;
    while end < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let piece = match size {
            0 => length,
            size => 1 + (state >> 16) as usize % usize::from(size),
        };
        end = (end + piece).min(length);
        if !feed(end) {
            return;
        }
    }
}

/// Checks that the cuts make no difference: whole, byte by byte, and as the first byte has it.
pub fn same_for_all_cuts(data: &[u8], transcript: fn(&[u8], u8) -> Vec<String>) {
    let Some((&size, input)) = data.split_first() else {
        return;
    };
    let whole = transcript(input, 0);
    assert_eq!(whole, transcript(input, 1), "byte by byte");
    assert_eq!(whole, transcript(input, size), "in pieces of up to {size} bytes");
}
