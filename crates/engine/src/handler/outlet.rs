//! Writing to a connection that has left HTTP, from any thread.

use super::gone::Gone;
use crate::components::Order;
use crate::server::{Charge, LoopLink, Message};
use dwell_evloop::Token;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reasons why nothing was written to a connection that has left HTTP.
///
/// ```
/// use dwell_engine::handler::SendError;
///
/// let error = SendError::Full { limit: 65_536, waiting: 70_000 };
/// let text = "bytes on their way to the connection's loop exceed 65536: 70000";
/// assert_eq!(error.to_string(), text);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SendError {
    /// The loop has yet to take what is on its way to this connection.
    Full {
        /// The most bytes that may be on their way, but for one piece; the server's
        /// [`output_bytes`](crate::ServerBuilder::output_bytes).
        limit: usize,
        /// Bytes that are.
        waiting: usize,
    },
    /// The loop has ended, or takes no more messages, of which a million may be on their way.
    Gone,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { limit, waiting } => write!(
                f,
                "bytes on their way to the connection's loop exceed {limit}: {waiting}"
            ),
            Self::Gone => Gone.fmt(f),
        }
    }
}

impl std::error::Error for SendError {}

impl From<Gone> for SendError {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

/// The way to one connection from other threads, with an account of what is on it.
#[derive(Clone)]
pub(crate) struct Outlet {
    link: Arc<LoopLink>,
    token: Token,
    bytes_waiting: Arc<AtomicUsize>,
}

impl Outlet {
    pub(crate) fn new(link: Arc<LoopLink>, token: Token) -> Self {
        Self {
            link,
            token,
            bytes_waiting: Arc::default(),
        }
    }

    /// Gives an order that puts `bytes` bytes into the connection's queue.
    pub(super) fn write(&self, bytes: usize, order: Order) -> Result<(), SendError> {
        let limit = self.link.settings().limits.output_bytes_max;
        let waiting = self.bytes_waiting.load(Ordering::Relaxed);
        if waiting >= limit {
            return Err(SendError::Full { limit, waiting });
        }
        let charge = Charge::new(&self.bytes_waiting, bytes);
        Ok(self.send(order, Some(charge))?)
    }

    /// Gives an order that takes no room.
    pub(super) fn order(&self, order: Order) -> Result<(), Gone> {
        self.send(order, None)
    }

    fn send(&self, order: Order, charge: Option<Charge>) -> Result<(), Gone> {
        let message = Message::Order(self.token, order, charge);
        self.link.sender().send(message).map_err(|_| Gone)
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet")
            .field("token", &self.token)
            .field("bytes_waiting", &self.bytes_waiting)
            .finish_non_exhaustive()
    }
}
