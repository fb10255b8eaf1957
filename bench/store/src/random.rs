//! Numbers that look random and are the same in every run.

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators").
pub struct Random(u64);

impl Random {
    /// A sequence of its own for every seed but 0.
    pub fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number from 0 up to 1.
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Ranks with the frequencies of Zipf's law.
pub struct Zipf(Vec<f64>);

impl Zipf {
    /// Over `count` ranks; the rank r is asked for r^-exponent times as often as the first.
    pub fn new(count: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let mut sums: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        sums.iter_mut().for_each(|part| *part /= sum);
        Self(sums)
    }

    /// The next rank, from 0.
    pub fn rank(&self, random: &mut Random) -> usize {
        let fraction = random.fraction();
        self.0
            .partition_point(|part| *part < fraction)
            .min(self.0.len() - 1)
    }
}
