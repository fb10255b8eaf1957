//! Limits of one client: what it may send, hold and wait for.

use dwell_evloop::WritePace;
use dwell_proto::http1::HeadLimits;
use std::time::Duration;

/// Bounds of a [`Http`](crate::Http) component; each has a finite default.
///
/// ```
/// use dwell_engine::Limits;
/// use std::time::Duration;
///
/// let limits = Limits {
///     connections_max: 1_000_000,
///     idle_timeout: Duration::from_secs(300),
///     ..Limits::default()
/// };
/// assert_eq!(limits.header_timeout, Duration::from_secs(10));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes and fields of a request head.
    pub head: HeadLimits,
    /// Connections held at once; more are closed as they come. Default 100,000.
    pub connections_max: usize,
    /// Requests answered on one connection before it is closed. Default 100,000.
    pub requests_per_connection_max: u32,
    /// Bytes of a body the app did not read that are read all the same, so that the connection can
    /// go on after the answer; with more left it is closed. Default 256 KiB.
    pub unread_body_bytes_max: u64,
    /// Bytes of input that all connections together keep behind held requests, counted where one
    /// has more than 4 KiB. Beyond this, a held request becomes the last one of its connection: the
    /// input behind it is dropped, and its client repeats those requests. Default 4 MiB.
    pub held_input_bytes_max: usize,
    /// Bytes of unfinished requests, heads with what is gathered of their bodies, and of bodies,
    /// WebSockets and tunnels on streams of HTTP/2 that are not read, that all connections together
    /// keep. Beyond it: 503, or a reset. Default 256 MiB.
    pub gathered_bytes_max: usize,
    /// Bytes of a streaming answer that may wait for a slow reader before more is refused.
    /// Default 1 MiB.
    pub output_bytes_max: usize,
    /// From the first byte of a request to the end of its head. Default 10 s.
    pub header_timeout: Duration,
    /// Time for the body of a request. Every byte that comes gives back the time it may take by
    /// `body_rate_min`, but there is never more time left than this. So a body of `n` bytes may
    /// take `body_timeout + n / body_rate_min`. For a streamed body only the time counts in which
    /// the app [waits](crate::Reply::await_body) for bytes that it has granted. Beyond it: 408.
    /// Default 30 s.
    pub body_timeout: Duration,
    /// Bytes a second that a client sends at least of a body, on the whole; with 0 a single byte is
    /// enough in each `body_timeout`. Default 512.
    pub body_rate_min: u32,
    /// From an answer to the first byte of the next request. Default 75 s.
    pub idle_timeout: Duration,
    /// Time for which the peer may take nothing of a response, or less than `write_rate_min`.
    /// Default 30 s.
    pub write_timeout: Duration,
    /// Bytes a second that a peer takes at least while output waits for it, on the average of a
    /// `write_timeout`; with 0 a single byte is enough. Default 512.
    pub write_rate_min: u32,
}

impl Limits {
    pub(crate) fn write_pace(&self) -> WritePace {
        WritePace {
            rate_min: self.write_rate_min,
            timeout: self.write_timeout,
        }
    }
}

/// Bytes a second that are little for the slowest of mobile networks.
pub(crate) const WRITE_RATE_MIN: u32 = 512;
/// The default of Apache's `mod_reqtimeout`.
const BODY_RATE_MIN: u32 = 512;

/// The waits of connections that an embedding host bounds in its own way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// Body and write timeouts run while an exchange is held, and not only for what is left when it
    /// was answered.
    pub(crate) bounds_held: bool,
    /// From the end of a handshake of TLS to the first byte of the first request, instead of the
    /// idle timeout.
    pub(crate) first_request_timeout: Option<Duration>,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            bounds_held: true,
            first_request_timeout: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: HeadLimits::default(),
            connections_max: 100_000,
            requests_per_connection_max: 100_000,
            unread_body_bytes_max: 256 * 1024,
            held_input_bytes_max: 4 * 1024 * 1024,
            gathered_bytes_max: 256 * 1024 * 1024,
            output_bytes_max: 1024 * 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_rate_min: BODY_RATE_MIN,
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            write_rate_min: WRITE_RATE_MIN,
        }
    }
}

/// A stream may have this part of the output that a connection of HTTP/1.1 may have; all of them
/// together this many times as much, beyond which no request begins.
pub(crate) const STREAM_OUTPUT_SHARE: usize = 16;
