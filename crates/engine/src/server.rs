//! A server with threads of its own: one loop a core, handlers on the loops or on a worker pool.
//!
//! Every loop has listeners of its own on each TCP address (`SO_REUSEPORT`) and shares nothing with
//! the others but an inbox each. A loop that is well ahead of another hands it the sockets it
//! accepts. A connection is an entry in the table of its loop; no thread, task or buffer exists for
//! one that is idle.

mod app;
mod builder;
mod ending;
mod error;
mod event_loop;
mod guard;
mod host;
mod link;
mod pool;
mod raw;
mod running;
mod state;
mod statistics;
mod web_sockets;

pub use builder::{Server, ServerBuilder};
pub use error::ServerError;
pub use running::{Running, Shutdown};
pub use statistics::Statistics;

pub(crate) use host::{Channel, Host, Ledger, Next, Order};
pub use pool::PoolFull;

pub(crate) use link::{Charge, LoopLink, Message};

use crate::limits::Limits;
use crate::websocket::WebSocketOptions;
use std::time::Duration;

/// The options as the loops use them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) max_connections: usize,
    pub(crate) max_body_bytes: u64,
    pub(crate) body_window_bytes: u64,
    pub(crate) answer_timeout: Duration,
    pub(crate) half_close: bool,
    pub(crate) h2c: bool,
    /// Clients under TLS may agree on HTTP/2.
    #[cfg(feature = "tls")]
    pub(crate) http2: bool,
    pub(crate) web_socket: WebSocketOptions,
}

/// The kinds of the tokens of a server's loop.
mod kind {
    pub(super) const HELD: u8 = FREE;
    pub(super) const TAKEOVER: u8 = FREE + 1;
    pub(super) const SHUTDOWN: u8 = FREE + 2;
    pub(super) const WEB_SOCKET_HANDLER: u8 = FREE + 3;

    use crate::components::kind::FREE;
}
