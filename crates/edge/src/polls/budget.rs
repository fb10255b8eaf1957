//! How much of a turn a fan-out may take.
//!
//! One change can be news for very many, and large. Those who are told when a turn ends are told
//! as far as a budget goes, which counts work and not time; the others stay in the queue they are
//! in, and the next turn goes on with them, after it has served whoever else came. Nothing is lost
//! by that: who has not been told still waits for the key, so it is told of any later change, and
//! what it is told is read, or has been noted, as it is by then. So it gets the newest, once.

/// What is left of the work that one turn may spend on one queue.
///
/// Units: about a byte that is copied; other work is counted as if it were bytes.
#[derive(Debug)]
pub(super) struct Budget {
    left: usize,
}

/// Some milliseconds.
const WORK_PER_TURN: usize = 4 << 20;
/// What it takes to find a connection and to write to it.
const WORK_PER_CONNECTION: usize = 2 * 1024;
/// What it takes to write a value as text, for each byte.
const ENCODING: usize = 2;
/// What it takes to compress, for each byte.
const COMPRESSION: usize = 16;

impl Budget {
    pub(super) fn of_turn() -> Self {
        Self {
            left: WORK_PER_TURN,
        }
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

    /// Whether the rest is for the next turn.
    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }

    fn spend(&mut self, work: usize) {
        self.left = self.left.saturating_sub(work);
    }
}
