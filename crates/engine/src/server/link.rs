//! The handle of a loop for other threads.

use super::Settings;
use super::statistics::Figures;
use crate::components::Order;
use crate::desk::Attention;
use dwell_evloop::{Sender, Stream, Token};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

/// Messages to a loop.
#[derive(Debug)]
pub(crate) enum Message {
    /// A client that another loop has accepted.
    Adopt(Stream),
    /// An order for a connection that has left HTTP, and the room it takes until it is done.
    Order(Token, Order, Option<Charge>),
}

/// One loop as the other threads see it.
pub(crate) struct LoopLink {
    sender: Sender<Message>,
    settings: Settings,
    thread: OnceLock<ThreadId>,
    /// Exchanges the loop is to visit before its turn ends.
    attention: Attention,
    /// Connections on the loop, and sockets on their way to it.
    connections: AtomicUsize,
    arriving: AtomicUsize,
    draining: AtomicBool,
    pub(super) figures: Figures,
}

impl LoopLink {
    pub(super) fn new(sender: Sender<Message>, settings: &Settings) -> Self {
        Self {
            sender,
            settings: *settings,
            thread: OnceLock::new(),
            attention: Attention::default(),
            connections: AtomicUsize::new(0),
            arriving: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            figures: Figures::default(),
        }
    }

    pub(crate) fn sender(&self) -> &Sender<Message> {
        &self.sender
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The loop runs on the calling thread from now on.
    pub(super) fn settle(&self) {
        // No other thread sets it: a loop is given to one.
        let _ = self.thread.set(std::thread::current().id());
    }

    /// Returns true on the loop's own thread.
    pub(crate) fn is_here(&self) -> bool {
        self.thread.get() == Some(&std::thread::current().id())
    }

    /// Makes the loop finish its work and accept no more clients.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Exchanges that the loop is to visit.
    pub(super) fn attention(&self) -> &Attention {
        &self.attention
    }

    /// Clients of the loop, as far as is known here; the most there can be where it is gone.
    pub(super) fn load(&self) -> usize {
        let arriving = self.arriving.load(Ordering::Relaxed);
        self.connections
            .load(Ordering::Relaxed)
            .saturating_add(arriving)
    }

    /// The loop is gone.
    pub(super) fn leave(&self) {
        self.set_connections(usize::MAX);
    }

    pub(super) fn set_connections(&self, connections: usize) {
        self.connections.store(connections, Ordering::Relaxed);
    }

    /// Sends the loop a client, unless the server ends; gives it back then, and when the loop's
    /// inbox is full.
    ///
    /// Shape: the client is announced before `is_draining` is asked, and a loop that drains looks
    /// for announced clients before it ends. So one of the two sees the other.
    pub(super) fn hand_over(
        &self,
        stream: Stream,
        is_draining: impl FnOnce() -> bool,
    ) -> Result<(), Stream> {
        self.arriving.fetch_add(1, Ordering::SeqCst);
        if is_draining() {
            self.arrived();
            return Err(stream);
        }
        self.sender.send(Message::Adopt(stream)).map_err(|full| {
            self.arrived();
            match full.0 {
                Message::Adopt(stream) => stream,
                Message::Order(..) => unreachable!("the message sent above"),
            }
        })
    }

    /// A client that was announced has come, or does not.
    pub(super) fn arrived(&self) {
        self.arriving.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns true if a client was announced that has not come.
    pub(super) fn is_awaited(&self) -> bool {
        self.arriving.load(Ordering::SeqCst) > 0
    }
}

impl fmt::Debug for LoopLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopLink").finish_non_exhaustive()
    }
}

/// Room that a message takes on its way; given back when the loop has carried it out, or it is
/// dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    bytes_waiting: Arc<AtomicUsize>,
    bytes: usize,
}

impl Charge {
    /// Takes the room.
    pub(crate) fn new(bytes_waiting: &Arc<AtomicUsize>, bytes: usize) -> Self {
        bytes_waiting.fetch_add(bytes, Ordering::Relaxed);
        Self {
            bytes_waiting: Arc::clone(bytes_waiting),
            bytes,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.bytes_waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
