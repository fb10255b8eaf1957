//! Values that are kept while the server announces their next change.

use crate::Outcome;

/// The value of one key.
#[derive(Debug, Default)]
pub(crate) enum Kept {
    /// It has to be read.
    #[default]
    Unknown,
    /// The key has no value.
    Missing,
    /// It is this one.
    Value(Box<[u8]>),
}

impl Kept {
    fn bytes(&self) -> usize {
        match self {
            Self::Value(value) => value.len(),
            Self::Unknown | Self::Missing => 0,
        }
    }
}

/// The bytes of all values that are kept, and their bound.
#[derive(Debug)]
pub(crate) struct KeptBytes {
    used: usize,
    max: usize,
}

impl KeptBytes {
    pub(crate) fn new(max: usize) -> Self {
        Self { used: 0, max }
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Keeps what was read in the place of another value, or nothing where it has no room.
    pub(crate) fn keep(&mut self, kept: &mut Kept, outcome: &Outcome<'_>) {
        self.forget(kept);
        // With a bound of nothing, nothing is kept.
        if self.max == 0 {
            return;
        }
        *kept = match outcome {
            Outcome::Missing => Kept::Missing,
            Outcome::Value(value) if self.used + value.len() <= self.max => {
                Kept::Value((*value).into())
            }
            _ => Kept::Unknown,
        };
        self.used += kept.bytes();
    }

    pub(crate) fn forget(&mut self, kept: &mut Kept) {
        self.used -= std::mem::take(kept).bytes();
    }
}
