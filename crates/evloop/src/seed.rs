//! The one source of chance.

use std::hash::{BuildHasher, RandomState};

/// Returns a number that cannot be guessed outside of the process, another one at each call; for
/// generators that spread clients and requests in time. On a simulated network its seed chooses it.
pub fn seed() -> u64 {
    #[cfg(feature = "sim")]
    if let Some(drawn) = crate::sim::draw() {
        return drawn;
    }
    RandomState::new().hash_one(0_u8)
}
