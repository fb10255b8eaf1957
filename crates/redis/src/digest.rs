//! Digests of values, by which a change is told from none.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A digest by which most values differ: of the length and both ends, so that large ones cost no
/// more than others. It only sets the pace of reads.
pub(crate) fn digest_of(value: &[u8]) -> u64 {
    let end = value.len().saturating_sub(DIGEST_BYTES);
    let mut hasher = DefaultHasher::new();
    (
        value.len(),
        &value[..value.len().min(DIGEST_BYTES)],
        &value[end..],
    )
        .hash(&mut hasher);
    hasher.finish() | 1
}

/// The digest where there is no value, and that of a value which is not read. Those of values are
/// odd.
pub(crate) const MISSING: u64 = 0;
pub(crate) const TOO_LARGE: u64 = 2;

const DIGEST_BYTES: usize = 64;
