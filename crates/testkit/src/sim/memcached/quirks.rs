//! The oddities of a memcached beside its answers.

use dwell_evloop::Random;
use std::time::Duration;

/// Things that a memcached and its machine do now and then, as a seed chooses; 0 is never.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Quirks {
    /// One write of replies in so many leaves in two pieces, with a while between them.
    pub tears_one_in: u64,
    /// One line for a watcher in so many is lost.
    pub loses_lines_one_in: u64,
    /// One command in so many that stores a value finds no memory.
    pub lacks_memory_one_in: u64,
}

/// The number of times that each of the [`Quirks`] has struck.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Struck {
    /// Writes that left in two pieces.
    pub torn: u64,
    /// Lines that were lost.
    pub lost_lines: u64,
    /// Values for which there was no memory.
    pub refused: u64,
}

/// The longest time between two pieces.
const PIECES_APART: Duration = Duration::from_millis(20);

/// Quirks, and the chance that decides when they strike.
#[derive(Debug)]
pub(super) struct Chance {
    pub(super) quirks: Quirks,
    pub(super) struck: Struck,
    random: Random,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            quirks: Quirks::default(),
            struck: Struck::default(),
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

    /// Decides if a line is lost, and if so, if its watcher is told how many were.
    pub(super) fn loses_line(&mut self) -> Option<bool> {
        let is_lost = self.strikes(self.quirks.loses_lines_one_in);
        self.struck.lost_lines += u64::from(is_lost);
        is_lost.then(|| self.random.below(2) == 0)
    }

    pub(super) fn lacks_memory(&mut self) -> bool {
        let lacks = self.strikes(self.quirks.lacks_memory_one_in);
        self.struck.refused += u64::from(lacks);
        lacks
    }

    fn strikes(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.random.below(one_in) == 0
    }
}
