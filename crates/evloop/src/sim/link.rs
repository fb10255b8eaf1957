//! The way of bytes, and what may go wrong with them.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The way of bytes from one end to the other.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Link {
    /// The time from one end to the other: each segment, and each call of a peer, takes one of
    /// these. Nothing overtakes on one connection.
    pub latency: RangeInclusive<Duration>,
    /// Bytes that may be at an end, or on their way to it, before writes to it are refused; for
    /// connections that begin later.
    pub window_bytes: usize,
    /// Writes are split into segments of at most so many bytes, of any length from 1 on. 0 leaves
    /// them whole.
    pub segment_bytes_max: usize,
    /// One write of a loop in so many is refused, in part or whole, although there is room. 0 is
    /// none.
    pub refuses_one_in: u64,
    /// No descriptor is left for a connection that waits to be accepted.
    pub has_no_descriptors: bool,
    /// The seed chooses among events of one time, and the order of what a turn is told. Otherwise
    /// both come as they were caused.
    pub is_shuffled: bool,
}

impl Default for Link {
    /// One as between two programs of a machine: everything comes before the next turn and in its
    /// order, nothing is split, and nothing refused before the window is full.
    fn default() -> Self {
        let latency = Duration::from_micros(1);
        Self {
            latency: latency..=latency,
            window_bytes: 4 * 1024 * 1024,
            segment_bytes_max: 0,
            refuses_one_in: 0,
            has_no_descriptors: false,
            is_shuffled: false,
        }
    }
}

impl Link {
    /// One on which everything comes in pieces, at any time of its first millisecond, and one write
    /// in four is refused.
    #[must_use]
    pub fn rough() -> Self {
        Self {
            latency: Duration::ZERO..=Duration::from_millis(1),
            window_bytes: 16 * 1024,
            segment_bytes_max: 64,
            refuses_one_in: 4,
            has_no_descriptors: false,
            is_shuffled: true,
        }
    }
}
