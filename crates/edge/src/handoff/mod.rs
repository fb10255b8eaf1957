//! The hand-over from one process to its successor, as far as the loops of both take part.
//!
//! `channel` carries frames between the two processes, `barrier` gathers the sockets of all loops
//! of one and pauses them while its items are handed over, `sender` sends idle connections and
//! `connections` has those that have come, `secure` those under TLS, `passed` has sockets on
//! their way. The steps of an upgrade are in `process/upgrade/talk`.

mod barrier;
mod channel;
mod connections;
mod listeners;
mod passed;
mod secure;
mod sender;

pub(crate) use barrier::{Barrier, Round};
pub(crate) use channel::{Channel, Frame, FrameKind};
pub(crate) use connections::{HandedConnection, HandoffQueue};
pub(crate) use listeners::{InheritedListener, ListenAddress, Role};
pub(crate) use passed::Passed;
pub(crate) use secure::{ReadsClient, TakesTls};
pub(crate) use sender::{Departure, HandoffSender, SEND_STALL_TIMEOUT};

use std::sync::{Arc, OnceLock};

/// State of a hand-over, shared by the loops of one process.
#[derive(Debug)]
pub(crate) struct Handoff {
    /// Pauses the loops.
    pub(crate) barrier: Barrier,
    /// Connections from the predecessor.
    pub(crate) queue: HandoffQueue,
    /// Sends connections to the successor; unset while this process serves.
    sender: OnceLock<Arc<HandoffSender>>,
}

impl Handoff {
    /// Makes the state of a process with `loops` loops before any hand-over.
    pub(crate) fn new(loops: usize) -> Arc<Self> {
        Arc::new(Self {
            barrier: Barrier::default(),
            queue: HandoffQueue::new(loops),
            sender: OnceLock::new(),
        })
    }

    /// Gives the loops the sender of connections to the successor.
    pub(crate) fn begin(&self, sender: HandoffSender) {
        // Set once: no upgrade begins after one.
        let _ = self.sender.set(Arc::new(sender));
    }

    /// The sender to the successor, if that serves.
    pub(crate) fn sender(&self) -> Option<&Arc<HandoffSender>> {
        self.sender.get()
    }
}
