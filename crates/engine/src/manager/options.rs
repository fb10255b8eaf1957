//! The bounds of a manager.

use super::EventSet;
use crate::websocket::WebSocketOptions;
use crate::{Limits, StreamLimits};
use std::time::Duration;

/// Limits of a [`Manager`](super::Manager) and its connections; all of them have a finite default.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ManagerOptions {
    /// Limits of HTTP connections.
    pub http: Limits,
    /// Limits of raw connections.
    pub streams: StreamLimits,
    /// Limits of WebSocket connections.
    pub websockets: WebSocketOptions,
    /// The longest body of a request, or of a response on a client, that is handed over whole.
    /// Default 4 MiB.
    pub body_bytes_max: u64,
    /// From the request to the answer of a handler that gives it later; then the client gets 503.
    /// Default 5 minutes. An answer that was begun may take any time.
    pub answer_timeout: Duration,
    /// Time for which [`close`](super::Manager::close) sends queued output. Default 1 s.
    pub close_timeout: Duration,
    /// HTTP/2 is spoken without TLS, to clients that begin with it. Default false.
    pub h2c: bool,
    /// HTTP/2 is offered to clients under TLS, and spoken to those that choose it. Default false.
    #[cfg(feature = "tls")]
    pub http2: bool,
    /// The events handlers are called for. Default all.
    pub events: EventSet,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            http: Limits::default(),
            streams: StreamLimits::default(),
            websockets: WebSocketOptions::default(),
            body_bytes_max: 4 * 1024 * 1024,
            answer_timeout: Duration::from_secs(5 * 60),
            close_timeout: Duration::from_secs(1),
            h2c: false,
            #[cfg(feature = "tls")]
            http2: false,
            events: EventSet::ALL,
        }
    }
}
