//! Chance, which a seed decides.

use dwell_evloop::Random;

/// A generator for one use of a seed, apart from those of its other uses.
pub(crate) fn random(seed: u64, use_of_it: u64) -> Random {
    let mixed = (seed ^ (use_of_it << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = Random::new(mixed ^ (mixed >> 31));
    for _ in 0..8 {
        random.draw();
    }
    random
}
