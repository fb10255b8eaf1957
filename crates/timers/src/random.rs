//! Numbers that spread clients and requests in time; not for secrets.

use std::time::Duration;

/// A generator of pseudo-random numbers; each owner has one, so that no loop waits for another.
///
/// ```
/// use dwell_timers::Random;
/// use std::time::Duration;
///
/// let mut random = Random::new(7);
/// assert!(random.below(10) < 10);
/// assert_eq!(random.below(0), 0);
/// let delay = random.spread(Duration::from_secs(2));
/// assert!(delay >= Duration::from_secs(1) && delay <= Duration::from_secs(2));
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

    /// A duration from a half of `longest` to the whole.
    pub fn spread(&mut self, longest: Duration) -> Duration {
        let half = longest / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        half + Duration::from_nanos(self.below(nanos.saturating_add(1)))
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        let bound = if bound == 0 { 1 } else { bound };
        self.draw() % bound
    }
}
