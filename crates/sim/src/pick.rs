//! The cursors of several keys that a client sends.

use dwell_evloop::Random;

/// The most keys of one poll.
pub const SEVERAL_MAX: usize = 5;

/// A cursor that a client has of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// The cursor of the last value it has got.
    Last,
    /// The cursor of the value before.
    Older,
    /// None.
    Nothing,
}

impl Pick {
    pub(crate) fn draw(random: &mut Random) -> Self {
        match random.below(8) {
            0 => Self::Older,
            1 => Self::Nothing,
            _ => Self::Last,
        }
    }
}
