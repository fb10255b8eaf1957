//! Events of the past, as numbers and as lines.

/// The number of things that have happened on a network, and a hash of them in their order: times,
/// ends, lengths and samples of bytes, and what was delivered to which loop.
///
/// Two runs of one seed have the same trace; where they have not, something in them is not decided
/// by the seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// Number of entries.
    pub entries: u64,
    /// Hash over all of them.
    pub hash: u64,
}

/// Bytes of each write that the hash takes in, at either end of it: enough to tell answers apart,
/// and little beside what it costs to copy them.
const SAMPLE_BYTES: usize = 64;

impl Trace {
    /// Takes in what has happened, as a few numbers.
    pub(super) fn note(&mut self, entry: [u64; 4]) {
        self.entries += 1;
        for number in entry {
            self.mix(number);
        }
    }

    /// Takes in a sample of bytes.
    pub(super) fn note_bytes(&mut self, bytes: &[u8]) {
        let first = &bytes[..bytes.len().min(SAMPLE_BYTES)];
        let last = &bytes[bytes.len().saturating_sub(SAMPLE_BYTES)..];
        for part in [first, last] {
            for chunk in part.chunks(8) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                self.mix(u64::from_le_bytes(word));
            }
        }
    }

    fn mix(&mut self, number: u64) {
        // The multiplier of splitmix64.
        let mixed = (self.hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.hash = mixed ^ (mixed >> 29);
    }
}
