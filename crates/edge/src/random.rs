//! Numbers that spread clients and requests in time; not for secrets.

/// A generator of its own for whoever needs one, so that no loop waits for another.
///
/// Source: Marsaglia, "Xorshift RNGs" (2003), the 64-bit generator with 13, 7, 17.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        // Of 0 there is no way on.
        Self(seed | 1)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`; 0 if there is none.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}
