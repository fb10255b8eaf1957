//! The hand-over from one process to its successor, as the loops of both take part in it.
//!
//! `channel` carries frames between the two processes, `barrier` pauses all loops of one while its
//! sockets and items go over, `connections` moves the connections that owe nothing. The steps of an
//! upgrade, in their order, are in `process/upgrade`.

mod barrier;
mod channel;
mod connections;
mod listeners;

pub(crate) use barrier::{Barrier, Paused};
pub(crate) use channel::{Channel, Frame, Kind};
pub(crate) use connections::{HandedConnection, HandoffQueue, HandoffSender};
pub(crate) use listeners::{InheritedListener, ListenAddress, Role};

use std::sync::{Arc, OnceLock};

/// State of a hand-over, shared by the loops of one process.
#[derive(Debug)]
pub(crate) struct Handoff {
    /// Pauses the loops.
    pub(crate) barrier: Barrier,
    /// Connections from the process before.
    pub(crate) queue: HandoffQueue,
    /// The way to the process that serves now; unset while this one serves.
    sender: OnceLock<Arc<HandoffSender>>,
}

impl Handoff {
    /// Makes the state of a process with so many loops, of which nothing is handed over yet.
    pub(crate) fn new(loops: usize) -> Arc<Self> {
        Arc::new(Self {
            barrier: Barrier::default(),
            queue: HandoffQueue::new(loops),
            sender: OnceLock::new(),
        })
    }

    /// Opens the way to the process that serves from now on.
    pub(crate) fn begin(&self, sender: HandoffSender) {
        // It happens once: no upgrade begins after one.
        let _ = self.sender.set(Arc::new(sender));
    }

    /// The way to the process that serves now, if it is not this one.
    pub(crate) fn sender(&self) -> Option<&Arc<HandoffSender>> {
        self.sender.get()
    }
}
