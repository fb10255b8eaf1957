//! The bound on output that clients do not read.
//!
//! One ledger has the queued output of all loops. A loop that finds it above the bound at the end
//! of its turn has the slowest clients cut off: its own at once, those of other loops by a message.

use super::Message;
use super::tokens::{OUTPUT, RELEASE};
use crate::log::LogThrottle;
use dwell_evloop::{Context, Fleet, LoopOutput, OutputLedger, TICK, Token};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One loop's part in the bound.
#[derive(Debug)]
pub(crate) struct OutputBound {
    ledger: Arc<OutputLedger>,
    bytes_max: usize,
    held: PeakOutput,
    /// Limits the log events about clients that were cut off.
    cut: LogThrottle,
}

/// The most output that was queued since memory was last released.
#[derive(Debug, Default)]
struct PeakOutput {
    most: usize,
}

impl PeakOutput {
    /// Notes the bytes queued now; returns true if they have fallen so far that releasing memory
    /// pays.
    fn has_fallen(&mut self, bytes: usize) -> bool {
        self.most = self.most.max(bytes);
        self.most >= RELEASED_BYTES_MIN && bytes < self.most / 4
    }
}

/// Least memory that is released. Units: bytes.
const RELEASED_BYTES_MIN: usize = 16 << 20;
/// Time for which the queue has to be short: encoded values are dropped after a second.
const RELEASE_AFTER: Duration = Duration::from_secs(2);

impl OutputBound {
    pub(crate) fn new(ledger: Arc<OutputLedger>, bytes_max: usize) -> Self {
        Self {
            ledger,
            bytes_max,
            held: PeakOutput::default(),
            cut: LogThrottle::default(),
        }
    }

    /// Makes the account of one component in the ledger.
    pub(crate) fn account(&self, index: usize) -> LoopOutput {
        LoopOutput::new(Arc::clone(&self.ledger), index)
    }

    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Bytes queued for clients.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn held(&self) -> usize {
        self.ledger.bytes()
    }

    fn is_exceeded(&self) -> bool {
        self.ledger.bytes() > self.bytes_max
    }

    /// Clients to be cut off, by loop: as many as make room for a while.
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

    /// Checks the bound at the end of a turn. If it is exceeded, sends other loops their slowest
    /// clients, and returns those of this loop.
    pub(super) fn follow(
        &mut self,
        context: &mut Context,
        (fleet, index): (&Fleet<Message>, usize),
    ) -> Vec<Token> {
        if self.held.has_fallen(self.ledger.bytes()) && !context.is_armed(RELEASE) {
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

    /// Returns memory to the system after a burst of output.
    pub(super) fn release_memory(&mut self) {
        let held = self.ledger.bytes();
        if self.held.has_fallen(held) {
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
        let mut held = PeakOutput::default();
        let mib = |count: usize| count << 20;
        assert!(
            !held.has_fallen(mib(15)) && !held.has_fallen(0),
            "too little"
        );
        assert!(
            !held.has_fallen(mib(400)) && !held.has_fallen(mib(100)),
            "too much is left"
        );
        assert!(held.has_fallen(mib(99)));
        held.most = mib(99);
        assert!(!held.has_fallen(mib(98)));
        assert!(held.has_fallen(mib(1)));
    }
}
