//! Limits of an embedded engine, and the events that it reports.

use crate::limits::Limits;
use crate::streams::StreamLimits;
use crate::websocket::WebSocketOptions;
use std::time::Duration;

/// Bounds of an [`Engine`](super::Engine), and what it reports; each bound has a finite default but
/// that of a body, which its host stops by granting no more.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
pub struct Options {
    /// Limits of requests and their responses.
    pub http: Limits,
    /// Limits of raw streams.
    pub streams: StreamLimits,
    /// Limits of WebSocket connections.
    pub websockets: WebSocketOptions,
    /// Bytes of a body; more gets 413, or ends the connection. Default: no bound.
    pub body_bytes_max: u64,
    /// Bytes of a body that come without a grant. Default 16 KiB.
    ///
    /// Shape: none of a client that waits for a 100 (Continue).
    pub body_credit: u64,
    /// Field names are handed over with capitals at the start and after hyphens. Default false.
    pub canonical_names: bool,
    /// [`Opened`](super::EventKind::Opened) and [`Closed`](super::EventKind::Closed) are reported.
    /// Default false.
    pub reports_connections: bool,
    /// [`Secured`](super::EventKind::Secured) and [`Insecure`](super::EventKind::Insecure) are
    /// reported. Default false.
    pub reports_handshakes: bool,
    /// HTTP/2 is spoken without TLS, to clients that begin with it. Default false.
    pub h2c: bool,
    /// HTTP/2 is offered to clients under TLS, and spoken to those that choose it. Default false.
    #[cfg(feature = "tls")]
    pub http2: bool,
    /// Clients may open WebSockets on streams of HTTP/2 (RFC 8441), which browsers then do: the
    /// request is that of HTTP/1.1, and [`Upgrade`](super::Operation::Upgrade) accepts it. Default
    /// false.
    pub websocket_streams: bool,
    /// The host tells by [`Done`](super::Operation::Done) when it has done with a request of HTTP/2
    /// that was told as gone, or was upgraded: until then it counts among those that its client may
    /// have. Default false.
    pub counts_work: bool,
    /// A client that has ended its sending side is given its answer all the same. Default true.
    pub half_close: bool,
    /// The host bounds its own waits: body and write timeouts run for what is left of a request
    /// that was answered, not while it is held. Default false.
    pub host_deadlines: bool,
    /// From the beginning of a connection, or the end of its handshake of TLS, to the first byte of
    /// its first request; without a value the idle timeout applies. Default `None`.
    pub first_request_timeout: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            http: Limits::default(),
            streams: StreamLimits::default(),
            websockets: WebSocketOptions::default(),
            body_bytes_max: u64::MAX,
            body_credit: 16 * 1024,
            canonical_names: false,
            reports_connections: false,
            reports_handshakes: false,
            h2c: false,
            #[cfg(feature = "tls")]
            http2: false,
            websocket_streams: false,
            counts_work: false,
            half_close: true,
            host_deadlines: false,
            first_request_timeout: None,
        }
    }
}
