//! The bound on what clients have this process hold by not taking it.
//!
//! What waits for clients is in one ledger for all loops. The loop that finds it over the bound
//! when its turn ends has the slowest clients cut off, wherever they are: its own at once, those of
//! other loops by a message.

use super::tokens::{OUTPUT, RELEASE, kind};
use super::{EdgeLoop, Message};
use crate::log::Seldom;
use dwell_engine::Http;
use dwell_engine::websocket::WebSockets;
use dwell_evloop::{Context, LoopOutput, OutputLedger, TICK, Token};
use dwell_store_server::StoreServer;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one loop does about the bound.
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
    /// So many bytes wait now; whether that is so much less than it was that what is free is worth
    /// giving back.
    fn is_out(&mut self, bytes: usize) -> bool {
        self.most = self.most.max(bytes);
        self.most >= RELEASED_BYTES_MIN && bytes < self.most / 4
    }
}

/// Bytes that are worth giving back.
const RELEASED_BYTES_MIN: usize = 16 << 20;
/// The time for which less has to wait: encoded values are let go of after a second.
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

    /// Has the components of a loop account for what they hold.
    pub(crate) fn account_for(
        &self,
        index: usize,
        http: &mut Http,
        websockets: &mut WebSockets,
        store_server: Option<&mut StoreServer>,
    ) {
        let of_loop = || LoopOutput::new(Arc::clone(&self.ledger), index);
        http.account(of_loop());
        websockets.account(of_loop());
        if let Some(server) = store_server {
            server.account(of_loop());
        }
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

    /// Who is to be cut off, by loop: so many that there is room again for a while.
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

    /// So many clients were cut off.
    fn log(&self, now: Instant, count: usize) {
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

impl EdgeLoop {
    /// Has the slowest clients cut off where too much waits for clients.
    pub(crate) fn bound_output(&mut self, context: &mut Context) {
        let held = self.output.ledger.bytes();
        if self.output.held.is_out(held) && !context.is_armed(RELEASE) {
            context.arm(RELEASE, RELEASE_AFTER);
        }
        if !self.output.is_exceeded() {
            return;
        }
        for (of_loop, tokens) in self.output.slowest(context) {
            if of_loop == self.index {
                self.cut_off(context, &tokens);
            } else {
                self.fleet.send(of_loop, Message::TooSlow(tokens.into()));
            }
        }
        // Other loops may take a while, or have nobody left.
        if !context.is_armed(OUTPUT) {
            context.arm(OUTPUT, TICK);
        }
    }

    /// Gives memory back to the system that a burst of output has taken, if it is over.
    pub(crate) fn release_memory(&mut self) {
        let held = self.output.ledger.bytes();
        if self.output.held.is_out(held) {
            self.output.held.most = held;
            dwell_evloop::release_memory();
        }
    }

    /// Cuts off clients that take too little.
    pub(crate) fn cut_off(&mut self, context: &mut Context, tokens: &[Token]) {
        let mut count = 0;
        for token in tokens {
            let is_cut = match token.kind() {
                kind::CLIENT => self.http.cut(context, *token, &mut self.front),
                kind::WEBSOCKET => self.websockets.cut(context, *token, &mut self.front.polls),
                kind::STORE => {
                    let server = self.store_server.as_mut();
                    server.is_some_and(|server| server.cut(context, *token))
                }
                _ => false,
            };
            count += usize::from(is_cut);
        }
        self.metrics.output_cuts.add(count as u64);
        self.output.log(context.now(), count);
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
