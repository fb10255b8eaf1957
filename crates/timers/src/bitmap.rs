/// The set of a level's 256 buckets that hold records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bitmap([u64; 4]);

impl Bitmap {
    pub(crate) const EMPTY: Self = Self([0; 4]);

    pub(crate) const fn set(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    pub(crate) const fn clear(&mut self, index: usize) {
        self.0[index / 64] &= !(1 << (index % 64));
    }

    /// The first set index at or after `from`, which may be 256.
    pub(crate) fn first_from(&self, from: usize) -> Option<usize> {
        let first_word = from / 64;
        let mut mask = u64::MAX << (from % 64);
        for (offset, word) in self.0.iter().skip(first_word).enumerate() {
            let found = word & mask;
            if found != 0 {
                return Some((first_word + offset) * 64 + found.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_plain_search_finds() {
        let mut bitmap = Bitmap::EMPTY;
        let set = [0usize, 1, 63, 64, 100, 191, 192, 255];
        for &index in &set {
            bitmap.set(index);
        }
        for from in 0..=256 {
            let expected = set.iter().copied().find(|&index| index >= from);
            assert_eq!(bitmap.first_from(from), expected, "from {from}");
        }
        for &index in &set {
            bitmap.clear(index);
        }
        assert_eq!(bitmap.first_from(0), None);
    }
}
