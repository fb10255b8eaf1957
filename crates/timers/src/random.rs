//! Numbers that spread clients and requests in time; not for secrets.

/// A generator of pseudo-random numbers; each owner has one, so that no loop waits for another.
///
/// ```
/// use dwell_evloop::Random;
///
/// let mut random = Random::new(7);
/// assert!(random.below(10) < 10);
/// assert_eq!(random.below(0), 0);
/// ```
///
/// Source: Marsaglia, "Xorshift RNGs" (2003), the 64-bit generator with 13, 7, 17.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// A generator whose sequence `seed` decides.
    pub const fn new(seed: u64) -> Self {
        // A state of 0 would stay 0.
        Self(seed | 1)
    }

    /// The next number of the sequence, never 0.
    pub const fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        let bound = if bound == 0 { 1 } else { bound };
        self.draw() % bound
    }
}
