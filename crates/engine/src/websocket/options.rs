//! Limits of one WebSocket: what it may send, hold and wait for.

use dwell_evloop::WritePace;
use dwell_proto::websocket::{CloseCode, DeflateOptions, MessageLimits};
use std::time::Duration;

/// Bounds of a [`WebSockets`](super::WebSockets) component; each size has a finite default.
///
/// ```
/// use dwell_engine::websocket::{CloseCode, MessageLimits, Overflow, WebSocketOptions};
/// use std::time::Duration;
///
/// let options = WebSocketOptions {
///     messages: MessageLimits { message_bytes_max: 64 * 1024, ..MessageLimits::default() },
///     overflow: Overflow::Close(CloseCode::TRY_AGAIN_LATER),
///     idle_timeout: Some(Duration::from_secs(600)),
///     ..WebSocketOptions::default()
/// };
/// assert_eq!(options.ping_interval, Some(Duration::from_secs(30)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WebSocketOptions {
    /// Connections held at once; more are refused to [`adopt`](super::WebSockets::adopt). Default
    /// 100,000.
    pub connections_max: usize,
    /// Bytes of a frame and of a message, and frames of a message. A message beyond a limit closes
    /// the connection with 1009 or, for too many frames, 1008.
    pub messages: MessageLimits,
    /// Output that may wait for the socket: while there is more, nothing further is sent, and
    /// nothing is read either. One message may go beyond it, by its own size. Default 1 MiB.
    pub output_bytes_max: usize,
    /// The treatment of a connection that has no room for a message sent to it.
    pub overflow: Overflow,
    /// The silence of a peer after which it is sent a ping; `None` for none. Default 30 s.
    pub ping_interval: Option<Duration>,
    /// From a ping to the first byte that shows that the peer lives. Default 20 s.
    pub pong_timeout: Duration,
    /// From the first byte of a message to its last; then the connection is closed with 1008. Not
    /// for connections that are handed over in frames, of which nothing is kept. Default 120 s.
    pub message_timeout: Duration,
    /// Time for which no message may come or go before the connection is closed with 1001; pings
    /// and pongs do not count. None by default.
    pub idle_timeout: Option<Duration>,
    /// Time for which the peer may take nothing of its queued output, or less than
    /// `write_rate_min`, before the connection is reset. Default 30 s.
    pub write_timeout: Duration,
    /// Bytes a second that a peer takes at least while output waits for it, on the average of a
    /// `write_timeout`; with 0 a single byte is enough. Default 512.
    pub write_rate_min: u32,
    /// From our close frame to the end of the connection, whatever is still queued then. Default
    /// 10 s.
    pub close_timeout: Duration,
    /// The compression of messages on connections that have negotiated it; the
    /// [`UpgradeOptions`](super::UpgradeOptions) decide what is negotiated.
    pub deflate: DeflateOptions,
}

impl WebSocketOptions {
    pub(super) fn write_pace(&self) -> WritePace {
        WritePace {
            rate_min: self.write_rate_min,
            timeout: self.write_timeout,
        }
    }
}

impl Default for WebSocketOptions {
    fn default() -> Self {
        Self {
            connections_max: 100_000,
            messages: MessageLimits::default(),
            output_bytes_max: 1024 * 1024,
            overflow: Overflow::Refuse,
            ping_interval: Some(Duration::from_secs(30)),
            pong_timeout: Duration::from_secs(20),
            message_timeout: Duration::from_secs(120),
            idle_timeout: None,
            write_timeout: Duration::from_secs(30),
            write_rate_min: crate::limits::WRITE_RATE_MIN,
            close_timeout: Duration::from_secs(10),
            deflate: DeflateOptions::default(),
        }
    }
}

/// The treatment of a connection whose output is full when a message is to be sent on it. The
/// message itself is not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overflow {
    /// It stays open. The send fails, and can be tried again when
    /// [`WebSocketApp::drained`](super::WebSocketApp::drained) is called.
    #[default]
    Refuse,
    /// It is closed with this code, behind its queued output. 1013 means: try again later.
    Close(CloseCode),
}
