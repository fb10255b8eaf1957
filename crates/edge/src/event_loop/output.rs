//! The bound on what clients have this process hold by not taking it.
//!
//! One ledger for all loops has the output that waits for clients. The loop that finds it over the
//! bound when its turn ends has the slowest clients cut off, wherever they are: its own at once,
//! those of other loops by a message.

use super::Message;
use super::tokens::{OUTPUT, RELEASE};
use crate::log::Seldom;
use dwell_evloop::{Context, Fleet, LoopOutput, OutputLedger, TICK, Token};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The bound, as one loop keeps it.
#[derive(Debug)]
pub(crate) struct OutputBound {
    ledger: Arc<OutputLedger>,
    bytes_max: usize,
    held: Tide,
    /// Clients that were cut off.
    cut: Seldom,
}

/// The most that waited since memory was last given back.
#[derive(Debug, Default)]
struct Tide {
    most: usize,
}

impl Tide {
    /// Notes that so many bytes wait now; true if that is so much less than it was that free memory
    /// is worth giving back.
    fn is_out(&mut self, bytes: usize) -> bool {
        self.most = self.most.max(bytes);
        self.most >= RELEASED_BYTES_MIN && bytes < self.most / 4
    }
}

/// Least memory that is worth giving back. Units: bytes.
const RELEASED_BYTES_MIN: usize = 16 << 20;
/// Time for which less has to wait: encoded values are let go of after a second.
const RELEASE_AFTER: Duration = Duration::from_secs(2);

impl OutputBound {
    pub(crate) fn new(ledger: Arc<OutputLedger>, bytes_max: usize) -> Self {
        Self {
            ledger,
            bytes_max,
            held: Tide::default(),
            cut: Seldom::default(),
        }
    }

    /// Account of one component of a loop, in the ledger of all.
    pub(crate) fn account(&self, index: usize) -> LoopOutput {
        LoopOutput::new(Arc::clone(&self.ledger), index)
    }

    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Bytes that wait for clients.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.ledger.bytes()
    }

    fn is_exceeded(&self) -> bool {
        self.ledger.bytes() > self.bytes_max
    }

    /// Clients to be cut off, by loop: so many that there is room again for a while.
    fn slowest(&self, context: &Context) -> BTreeMap<usize, Vec<Token>> {
        let left = self.bytes_max - self.bytes_max / 8;
        let mut by_loop: BTreeMap<usize, Vec<Token>> = BTreeMap::new();
        for reader in self.ledger.slowest(left, context.tick()) {
            by_loop
                .entry(reader.of_loop)
                .or_default()
                .push(reader.token);
        }
        by_loop
    }

    /// Checks the bound when a turn ends. Too much waits: other loops are told which of their
    /// clients to cut off, and the ones of this loop are returned.
    pub(super) fn follow(
        &mut self,
        context: &mut Context,
        (fleet, index): (&Fleet<Message>, usize),
    ) -> Vec<Token> {
        if self.held.is_out(self.ledger.bytes()) && !context.is_armed(RELEASE) {
            context.arm(RELEASE, RELEASE_AFTER);
        }
        if !self.is_exceeded() {
            return Vec::new();
        }
        let mut slowest = self.slowest(context);
        let own = slowest.remove(&index).unwrap_or_default();
        for (of_loop, tokens) in slowest {
            fleet.send(of_loop, Message::TooSlow(tokens.into()));
        }
        // Other loops may take a while, or have no such clients left.
        if !context.is_armed(OUTPUT) {
            context.arm(OUTPUT, TICK);
        }
        own
    }

    /// Gives memory back to the system that a burst of output has taken, if it is over.
    pub(super) fn release_memory(&mut self) {
        let held = self.ledger.bytes();
        if self.held.is_out(held) {
            self.held.most = held;
            dwell_evloop::release_memory();
        }
    }

    /// Logs that `count` clients were cut off.
    pub(super) fn log_cuts(&self, now: Instant, count: usize) {
        if let Some(clients) = self.cut.note_many(now, count as u64) {
            tracing::warn!(
                clients,
                held = self.ledger.bytes(),
                limit = self.bytes_max,
                "output bytes exceed limits.output_bytes_max: the slowest clients were cut off"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_when_much_less_waits() {
        let mut held = Tide::default();
        let mib = |count: usize| count << 20;
        assert!(!held.is_out(mib(15)) && !held.is_out(0), "too little");
        assert!(
            !held.is_out(mib(400)) && !held.is_out(mib(100)),
            "too much is left"
        );
        assert!(held.is_out(mib(99)));
        held.most = mib(99);
        assert!(!held.is_out(mib(98)));
        assert!(held.is_out(mib(1)));
    }
}
