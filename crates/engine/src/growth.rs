//! Memory of what comes in pieces, little beyond what has come.

/// The least that is added behind the first bytes.
const GROWTH_BYTES_MIN: usize = 512;

/// Adds to what has come. Its memory grows by a quarter at a time.
pub(crate) fn extend(come: &mut Vec<u8>, data: &[u8]) {
    let (length, capacity) = (come.len(), come.capacity());
    if length + data.len() > capacity {
        let more = (capacity / 4).max(GROWTH_BYTES_MIN);
        let more = if length == 0 {
            0
        } else {
            capacity + more - length
        };
        come.reserve_exact(more.max(data.len()));
    }
    come.extend_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_byte_by_byte_takes_little_more_memory_than_it_has() {
        let mut body = Vec::new();
        extend(&mut body, &[0; 1000]);
        assert_eq!(body.capacity(), 1000);
        for come in 1001..64 << 10 {
            extend(&mut body, b"b");
            let kept = body.capacity();
            assert!(kept <= come + (come / 4).max(512), "{kept} for {come}");
        }
    }
}
