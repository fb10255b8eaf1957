//! The oddities of a Redis beside its answers.

use dwell_evloop::Random;
use std::time::Duration;

/// Things that a Redis and its machine do now and then, as a seed chooses; 0 is never.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RedisQuirks {
    /// One write of replies in so many leaves in two pieces, with a while between them.
    pub tears_one_in: u64,
    /// One `SET` of a client in so many finds no memory.
    pub lacks_memory_one_in: u64,
    /// The longest time from the end of a lifetime until the cycle drops the key, and tells of it.
    pub drops_late: Duration,
}

/// The number of times that each of the [`RedisQuirks`] has struck.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RedisStruck {
    /// Writes that left in two pieces.
    pub torn: u64,
    /// Values for which there was no memory.
    pub refused: u64,
    /// Keys that the cycle has dropped, with nobody asking.
    pub dropped: u64,
    /// Keys that the tracking table had no room for any more.
    pub pushed_out: u64,
    /// Greetings that an old version does not know.
    pub not_greeted: u64,
}

/// The longest time between two pieces.
const PIECES_APART: Duration = Duration::from_millis(20);

/// Quirks, and the chance that decides when they strike.
#[derive(Debug)]
pub(super) struct Chance {
    pub(super) quirks: RedisQuirks,
    pub(super) struck: RedisStruck,
    random: Random,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            quirks: RedisQuirks::default(),
            struck: RedisStruck::default(),
            random: Random::new(seed),
        }
    }

    /// The bytes that leave now of so many, and the time after which the others do.
    pub(super) fn tear(&mut self, length: usize) -> (usize, Option<Duration>) {
        if length < 2 || !self.strikes(self.quirks.tears_one_in) {
            return (length, None);
        }
        self.struck.torn += 1;
        let first = 1 + self.random.below(length as u64 - 1) as usize;
        (first, Some(self.random.spread(PIECES_APART)))
    }

    pub(super) fn lacks_memory(&mut self) -> bool {
        let lacks = self.strikes(self.quirks.lacks_memory_one_in);
        self.struck.refused += u64::from(lacks);
        lacks
    }

    /// The time that the cycle takes to find a key whose lifetime is over.
    pub(super) fn drop_delay(&mut self) -> Duration {
        self.random.spread(self.quirks.drops_late)
    }

    /// Chooses one of so many.
    pub(super) fn choose(&mut self, count: usize) -> usize {
        self.random.below(count as u64) as usize
    }

    fn strikes(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.random.below(one_in) == 0
    }
}
