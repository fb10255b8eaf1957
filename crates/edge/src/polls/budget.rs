//! The share of a turn for a fan-out, and for the work that many small requests ask for.
//!
//! One change can be for very many clients, and large; and a few bytes can ask for a large value in
//! a form that takes long to write. A turn has a budget for that, which counts work and not time.
//! Work beyond it stays in the queue it is in, and the next turn goes on with it, after the
//! requests that came meanwhile. Nothing is lost by that: a client that has not got the change
//! still waits for the key, so a later change finds it, and it gets the value of that moment. So it
//! gets the newest, once.

use dwell_evloop::Context;
use dwell_store_server::seconds;

/// The rest of the work that one turn may spend on one queue.
///
/// Units: about a byte that is copied; other work is counted as if it were bytes.
#[derive(Debug, Default)]
pub(super) struct Budget {
    left: usize,
    spent: usize,
}

/// Some milliseconds; less in unit tests, which then exceed it with less.
const WORK_PER_TURN: usize = if cfg!(test) { 512 << 10 } else { 4 << 20 };
/// The share of one key, before the others have theirs.
const WORK_PER_SLICE: usize = WORK_PER_TURN / 8;
/// The work of finding a connection and writing to it.
const WORK_PER_CONNECTION: usize = 2 * 1024;
/// The work of following a key, or of ceasing to follow it.
const WORK_PER_KEY: usize = 8 * 1024;
/// The work of writing a value as text, for each byte.
const ENCODING: usize = 2;
/// The work of compressing, for each byte.
const COMPRESSION: usize = 16;

/// The budgets of a turn for the work that requests and messages of clients ask for: one for
/// those that have just come, and one for those that were put off.
#[derive(Debug)]
pub(super) struct Work {
    new: Budget,
    put_off: Budget,
}

impl Default for Work {
    fn default() -> Self {
        Self::of_turn()
    }
}

impl Work {
    pub(super) fn of_turn() -> Self {
        Self {
            new: Budget::of_turn(),
            put_off: Budget::of_turn(),
        }
    }

    /// The budget for the work at hand.
    pub(super) fn left(&mut self, now: Now) -> &mut Budget {
        if now.is_repeating {
            &mut self.put_off
        } else {
            &mut self.new
        }
    }
}

/// The time at which a request or message is served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Seconds as the store counts them ([`Context::steady_seconds`]).
    pub(super) seconds: u32,
    /// It was put off in an earlier turn.
    is_repeating: bool,
}

impl Now {
    pub(super) fn of(context: &Context) -> Self {
        Self {
            seconds: seconds(context.steady_seconds()),
            is_repeating: context.is_repeating(),
        }
    }
}

impl Budget {
    pub(super) fn of_turn() -> Self {
        Self {
            left: WORK_PER_TURN,
            spent: 0,
        }
    }

    /// A share of what is left.
    pub(super) fn slice(&self) -> Self {
        Self {
            left: self.left.min(WORK_PER_SLICE),
            spent: 0,
        }
    }

    /// A share of it was used.
    pub(super) fn used(&mut self, slice: &Self) {
        self.spend(slice.spent);
    }

    /// A connection was given so many bytes.
    pub(super) fn written(&mut self, bytes: usize) {
        self.spend(WORK_PER_CONNECTION.saturating_add(bytes));
    }

    /// So many bytes were encoded.
    pub(super) fn encoded(&mut self, bytes: usize) {
        self.spend(bytes.saturating_mul(ENCODING));
    }

    /// So many bytes were compressed.
    pub(super) fn compressed(&mut self, bytes: usize) {
        self.spend(bytes.saturating_mul(COMPRESSION));
    }

    /// So many keys were followed, or are followed no longer.
    pub(super) fn followed(&mut self, keys: usize) {
        self.spend(keys.saturating_mul(WORK_PER_KEY));
    }

    /// Returns true if the rest is left to the next turn.
    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }

    fn spend(&mut self, work: usize) {
        self.left = self.left.saturating_sub(work);
        self.spent = self.spent.saturating_add(work);
    }
}
