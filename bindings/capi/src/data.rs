//! The plain structures that cross the border.
#![expect(
    unsafe_code,
    reason = "entries have names that C knows, and take its pointers"
)]

use crate::pointers;
use crate::status::dwell_status;
use ::dwell_engine::embed::{
    Event, EventKind, Options, Statistics, request_flags, upgrade_flags, write_flags,
};
use std::mem::offset_of;
use std::time::Duration;

/// The kind of an event. Numbers are never given again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum dwell_event_kind {
    /// A request came; an answer is owed to its handle, which is new. `other` is its connection.
    DWELL_REQUEST = 1,
    /// A piece of the body of a request.
    DWELL_BODY = 2,
    /// The body of a request is complete; the bytes are trailer fields, `name:value` and a line
    /// feed each. The end of a chunked body comes only while some of it is granted.
    DWELL_BODY_END = 3,
    /// All that was written is out, after a write with DWELL_NOTIFY; or, of WebSocket and raw
    /// streams, after a time in which something was not. Of those, `detail` is the last mark that
    /// they were given with what is out; 0 if there was none.
    DWELL_WRITABLE = 4,
    /// The client of a request has ended its sending side. It may still read an answer.
    DWELL_PEER_CLOSED = 5,
    /// The client has left: the handle names nothing from now on.
    DWELL_GONE = 6,
    /// The connection of a request has left the engine: take it with
    /// dwell_engine_take_descriptor before the next turn, in which it is closed. The bytes are
    /// what was read and not handed over: what is left of the body, as it came, and what the
    /// client has sent behind its request.
    DWELL_DETACHED = 7,
    /// A client has connected; the handle is of the connection.
    DWELL_OPENED = 8,
    /// A client is gone, or its connection has left HTTP.
    DWELL_CLOSED = 9,
    /// A request has become a WebSocket: `other` is the handle it had.
    DWELL_WEBSOCKET_OPENED = 10,
    /// A WebSocket message; `detail` is 1 for text and 2 for binary.
    DWELL_WEBSOCKET_MESSAGE = 11,
    /// A pong came on a WebSocket.
    DWELL_WEBSOCKET_PONG = 12,
    /// A WebSocket has ended; `detail` is the close code, the bytes are the reason.
    DWELL_WEBSOCKET_CLOSED = 13,
    /// Bytes came on a raw stream.
    DWELL_STREAM_DATA = 14,
    /// The peer of a raw stream sends no more; it may still read.
    DWELL_STREAM_PEER_CLOSED = 15,
    /// A raw stream has ended; `detail` is 0 where it was in order.
    DWELL_STREAM_CLOSED = 16,
    /// A handshake was refused and answered; `detail` is the status. The handle names nothing from
    /// now on.
    DWELL_UPGRADE_REFUSED = 17,
    /// The handshake of a client under TLS is complete, before its first request; the handle is of
    /// the connection. dwell_engine_tls_facts and dwell_engine_peer_certificate answer from now on.
    DWELL_SECURED = 18,
    /// The handshake of a client has failed, which ends its connection; the bytes are the reason in
    /// words.
    DWELL_INSECURE = 19,
}

/// One thing that happened.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct dwell_event {
    /// The request or connection that it happened to.
    pub handle: u64,
    /// Another handle, as the kind says.
    pub other: u64,
    /// A dwell_event_kind.
    pub kind: u32,
    /// A detail, whose meaning the kind defines.
    pub detail: u32,
    /// The place in the data of the batch where its bytes begin.
    pub start: usize,
    /// The number of its bytes.
    pub length: usize,
}

// A batch's events are handed out as they lie in memory.
const _: () = {
    assert!(size_of::<dwell_event>() == size_of::<Event>());
    assert!(align_of::<dwell_event>() == align_of::<Event>());
    assert!(offset_of!(dwell_event, handle) == offset_of!(Event, handle));
    assert!(offset_of!(dwell_event, other) == offset_of!(Event, other));
    assert!(offset_of!(dwell_event, kind) == offset_of!(Event, kind));
    assert!(offset_of!(dwell_event, detail) == offset_of!(Event, detail));
    assert!(offset_of!(dwell_event, start) == offset_of!(Event, start));
    assert!(offset_of!(dwell_event, length) == offset_of!(Event, length));
};

// Every number is the engine's.
const _: () = {
    use dwell_event_kind as kind;
    use dwell_request_flag as request;

    assert!(kind::DWELL_REQUEST as u32 == EventKind::Request as u32);
    assert!(kind::DWELL_BODY as u32 == EventKind::Body as u32);
    assert!(kind::DWELL_BODY_END as u32 == EventKind::BodyEnd as u32);
    assert!(kind::DWELL_WRITABLE as u32 == EventKind::Writable as u32);
    assert!(kind::DWELL_PEER_CLOSED as u32 == EventKind::PeerClosed as u32);
    assert!(kind::DWELL_GONE as u32 == EventKind::Gone as u32);
    assert!(kind::DWELL_DETACHED as u32 == EventKind::Detached as u32);
    assert!(kind::DWELL_OPENED as u32 == EventKind::Opened as u32);
    assert!(kind::DWELL_CLOSED as u32 == EventKind::Closed as u32);
    assert!(kind::DWELL_WEBSOCKET_OPENED as u32 == EventKind::WebSocketOpened as u32);
    assert!(kind::DWELL_WEBSOCKET_MESSAGE as u32 == EventKind::WebSocketMessage as u32);
    assert!(kind::DWELL_WEBSOCKET_PONG as u32 == EventKind::WebSocketPong as u32);
    assert!(kind::DWELL_WEBSOCKET_CLOSED as u32 == EventKind::WebSocketClosed as u32);
    assert!(kind::DWELL_STREAM_DATA as u32 == EventKind::StreamData as u32);
    assert!(kind::DWELL_STREAM_PEER_CLOSED as u32 == EventKind::StreamPeerClosed as u32);
    assert!(kind::DWELL_STREAM_CLOSED as u32 == EventKind::StreamClosed as u32);
    assert!(kind::DWELL_UPGRADE_REFUSED as u32 == EventKind::UpgradeRefused as u32);
    assert!(kind::DWELL_SECURED as u32 == EventKind::Secured as u32);
    assert!(kind::DWELL_INSECURE as u32 == EventKind::Insecure as u32);

    assert!(request::DWELL_BODY_FOLLOWS as u32 == request_flags::BODY_FOLLOWS);
    assert!(request::DWELL_HTTP10 as u32 == request_flags::HTTP10);
    assert!(request::DWELL_KEEP_ALIVE as u32 == request_flags::KEEP_ALIVE);
    assert!(request::DWELL_EXPECTS_CONTINUE as u32 == request_flags::EXPECTS_CONTINUE);
    assert!(request::DWELL_CHUNKED as u32 == request_flags::CHUNKED);
    assert!(request::DWELL_SECURE as u32 == request_flags::SECURE);
    assert!(request::DWELL_RESUMED as u32 == request_flags::RESUMED);
    assert!(request::DWELL_AGREED as u32 == request_flags::AGREED);
    assert!(request::DWELL_NAMED as u32 == request_flags::NAMED);
    assert!(request::DWELL_HTTP2 as u32 == request_flags::HTTP2);

    assert!(dwell_write_flag::DWELL_FINISH as u32 == write_flags::FINISH);
    assert!(dwell_write_flag::DWELL_CLOSE as u32 == write_flags::CLOSE);
    assert!(dwell_write_flag::DWELL_NOTIFY as u32 == write_flags::NOTIFY);
    assert!(dwell_upgrade_flag::DWELL_ANY_ORIGIN as u32 == upgrade_flags::ANY_ORIGIN);
    assert!(dwell_upgrade_flag::DWELL_PLAIN as u32 == upgrade_flags::PLAIN);
};

/// The events of a turn. Both arrays are the engine's and live until its next turn, or its end.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct dwell_batch {
    /// The events, in order.
    pub events: *const dwell_event,
    /// The number of events.
    pub count: usize,
    /// The bytes that they speak of.
    pub data: *const u8,
    /// The number of bytes.
    pub data_length: usize,
    /// Milliseconds that the next turn may wait at most; 0 when work is left, -1 for ever. Orders
    /// that are given meanwhile may shorten it: dwell_engine_wait_ms returns the new value.
    pub wait_ms: i64,
}

impl dwell_batch {
    pub(crate) const EMPTY: Self = Self {
        events: std::ptr::null(),
        count: 0,
        data: std::ptr::null(),
        data_length: 0,
        wait_ms: -1,
    };
}

/// Bytes that belong to another object.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct dwell_span {
    /// The first of them.
    pub start: *const u8,
    /// The number of bytes.
    pub length: usize,
}

impl dwell_span {
    pub(crate) const fn of(bytes: &[u8]) -> Self {
        Self {
            start: bytes.as_ptr(),
            length: bytes.len(),
        }
    }
}

/// Limits and events of an engine: set `size`, let dwell_options_default fill in the rest, then
/// change the values you want.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct dwell_options {
    /// The size of this struct where the host was compiled, `sizeof(dwell_options)`. Later versions
    /// of the library have further options at its end, which are at their defaults for older hosts.
    pub size: usize,
    /// Bytes of a request head, at most 65535.
    pub head_bytes_max: u64,
    /// Field lines of a request, at most 128.
    pub field_count_max: u64,
    /// Bytes of a request target.
    pub target_bytes_max: u64,
    /// Connections held at once.
    pub connections_max: u64,
    /// Requests answered on one connection before it is closed.
    pub requests_per_connection_max: u64,
    /// Bytes of a body; more gets 413.
    pub body_bytes_max: u64,
    /// Bytes of a body that come without a grant.
    pub body_credit: u64,
    /// Bytes of an unread body that are read and discarded, so that the connection can go on.
    pub unread_body_bytes_max: u64,
    /// Bytes of output that may wait for a peer before more is refused.
    pub output_bytes_max: u64,
    /// From the first byte of a request to the end of its head, in milliseconds.
    pub header_timeout_ms: u64,
    /// Milliseconds to wait for a body that was granted, besides the time of its bytes at
    /// `body_rate_min`.
    pub body_timeout_ms: u64,
    /// From an answer to the first byte of the next request.
    pub idle_timeout_ms: u64,
    /// Milliseconds for which a peer may take nothing of its queued output.
    pub write_timeout_ms: u64,
    /// Bytes of a WebSocket message.
    pub message_bytes_max: u64,
    /// The silence after which a WebSocket is sent a ping; 0 for none.
    pub ping_interval_ms: u64,
    /// Field names are handed over with capitals at the start and after hyphens.
    pub canonical_names: bool,
    /// DWELL_OPENED and DWELL_CLOSED are reported.
    pub reports_connections: bool,
    /// A client that has ended its sending side is given its answer all the same.
    pub half_close: bool,
    /// The host bounds its own waits: body and write timeouts run for what is left of a request
    /// that was answered, not while it is held. WebSockets and raw streams have no write timeout.
    pub host_deadlines: bool,
    /// From the beginning of a connection, or the end of its handshake of TLS, to the first byte of
    /// its first request; 0 for the idle timeout.
    pub first_request_timeout_ms: u64,
    /// Bytes a second that a client sends at least of a body; with 0 a single byte is enough in
    /// each `body_timeout_ms`. Bounds nothing while the host has its own deadlines.
    pub body_rate_min: u64,
    /// DWELL_SECURED and DWELL_INSECURE are reported.
    pub reports_handshakes: bool,
    /// HTTP/2 is spoken without TLS, to clients that begin with it (prior knowledge). Requests on
    /// its streams have DWELL_HTTP2. Their answers have to be begun or whole: orders with bytes as
    /// they are, and dwell_detach, end the stream.
    pub h2c: bool,
    /// HTTP/2 is offered to clients under TLS (`h2`, by ALPN), and spoken to those that choose it.
    /// All else is as with `h2c`.
    pub http2: bool,
    /// Clients may open WebSockets on streams of HTTP/2 (RFC 8441), which browsers then do: the
    /// request is that of HTTP/1.1, and dwell_upgrade accepts it.
    pub websocket_streams: bool,
    /// The host tells by dwell_done when it has done with a request of HTTP/2 that was told as
    /// DWELL_GONE, or was upgraded: until then it counts among those that its client may have.
    pub counts_work: bool,
}

/// The size of the options as the first version with a size has them. It never changes.
const OPTIONS_SIZE_MIN: usize =
    offset_of!(dwell_options, first_request_timeout_ms) + size_of::<u64>();

/// Times beyond this are for ever: some hundred days.
const TIMEOUT_MS_MAX: u64 = 100 * 24 * 60 * 60 * 1000;

impl dwell_options {
    fn of(options: &Options) -> Self {
        let millis = |time: Duration| time.as_millis() as u64;
        let http = &options.http;
        Self {
            size: size_of::<Self>(),
            head_bytes_max: http.head.head_bytes_max as u64,
            field_count_max: http.head.field_count_max as u64,
            target_bytes_max: http.head.target_bytes_max as u64,
            connections_max: http.connections_max as u64,
            requests_per_connection_max: u64::from(http.requests_per_connection_max),
            body_bytes_max: options.body_bytes_max,
            body_credit: options.body_credit,
            unread_body_bytes_max: http.unread_body_bytes_max,
            output_bytes_max: http.output_bytes_max as u64,
            header_timeout_ms: millis(http.header_timeout),
            body_timeout_ms: millis(http.body_timeout),
            idle_timeout_ms: millis(http.idle_timeout),
            write_timeout_ms: millis(http.write_timeout),
            message_bytes_max: options.websockets.messages.message_bytes_max as u64,
            ping_interval_ms: options.websockets.ping_interval.map_or(0, millis),
            canonical_names: options.canonical_names,
            reports_connections: options.reports_connections,
            half_close: options.half_close,
            host_deadlines: options.host_deadlines,
            first_request_timeout_ms: options.first_request_timeout.map_or(0, millis),
            body_rate_min: u64::from(http.body_rate_min),
            reports_handshakes: options.reports_handshakes,
            h2c: options.h2c,
            http2: options.http2,
            websocket_streams: options.websocket_streams,
            counts_work: options.counts_work,
        }
    }

    pub(crate) fn to_options(self) -> Options {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let time = |millis: u64| Duration::from_millis(millis.min(TIMEOUT_MS_MAX));
        let requests = u32::try_from(self.requests_per_connection_max);
        let mut options = Options::default();
        let http = &mut options.http;
        http.head.head_bytes_max = size(self.head_bytes_max);
        http.head.field_count_max = size(self.field_count_max);
        http.head.target_bytes_max = size(self.target_bytes_max);
        http.connections_max = size(self.connections_max);
        http.requests_per_connection_max = requests.unwrap_or(u32::MAX);
        http.unread_body_bytes_max = self.unread_body_bytes_max;
        http.output_bytes_max = size(self.output_bytes_max);
        http.header_timeout = time(self.header_timeout_ms);
        http.body_timeout = time(self.body_timeout_ms);
        http.body_rate_min = u32::try_from(self.body_rate_min).unwrap_or(u32::MAX);
        http.idle_timeout = time(self.idle_timeout_ms);
        http.write_timeout = time(self.write_timeout_ms);
        options.streams.connections_max = size(self.connections_max);
        options.streams.output_bytes_max = size(self.output_bytes_max);
        options.streams.write_timeout = time(self.write_timeout_ms);
        options.websockets.connections_max = size(self.connections_max);
        options.websockets.output_bytes_max = size(self.output_bytes_max);
        options.websockets.write_timeout = time(self.write_timeout_ms);
        options.websockets.messages.message_bytes_max = size(self.message_bytes_max);
        options.websockets.ping_interval =
            Some(time(self.ping_interval_ms)).filter(|time| !time.is_zero());
        options.body_bytes_max = self.body_bytes_max;
        options.body_credit = self.body_credit;
        options.canonical_names = self.canonical_names;
        options.reports_connections = self.reports_connections;
        options.reports_handshakes = self.reports_handshakes;
        options.h2c = self.h2c;
        options.http2 = self.http2;
        options.websocket_streams = self.websocket_streams;
        options.counts_work = self.counts_work;
        options.half_close = self.half_close;
        options.host_deadlines = self.host_deadlines;
        options.first_request_timeout =
            Some(time(self.first_request_timeout_ms)).filter(|time| !time.is_zero());
        if self.host_deadlines {
            options.streams.write_timeout = time(TIMEOUT_MS_MAX);
            options.websockets.write_timeout = time(TIMEOUT_MS_MAX);
        }
        options
    }
}

/// Fills in the defaults of as many options as `size` has room for, and makes it the size of those
/// that this library has. `options` must not be null; without its `size` it is refused.
///
/// # Safety
/// `options` must be null, or readable and writable for as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_options_default(options: *mut dwell_options) -> dwell_status {
    // SAFETY: null, or a struct that begins with its size.
    let Some(size) = (unsafe { pointers::first_size(options) }) else {
        return dwell_status::DWELL_INVALID;
    };
    if size < OPTIONS_SIZE_MIN {
        return dwell_status::DWELL_INVALID;
    }
    let mut defaults = dwell_options::of(&Options::default());
    defaults.size = size.min(defaults.size);
    // SAFETY: the caller says that `size` bytes are writable, and no more are written.
    unsafe { pointers::put_front(options, &raw const defaults, defaults.size) };
    dwell_status::DWELL_OK
}

/// The options of a host, and the defaults of those that it was compiled without; `None` for ones
/// that this library does not have.
///
/// # Safety
/// `options` must be null, or readable for as many bytes as its `size` says.
pub(crate) unsafe fn options_of(options: *const dwell_options) -> Option<Options> {
    let mut known = dwell_options::of(&Options::default());
    // SAFETY: null, or a struct that begins with its size.
    let Some(size) = (unsafe { pointers::first_size(options) }) else {
        return Some(Options::default());
    };
    if !(OPTIONS_SIZE_MIN..=known.size).contains(&size) {
        return None;
    }
    // SAFETY: the caller says that `size` bytes are readable, and `known` has room for them.
    unsafe { pointers::put_front(&raw mut known, options, size) };
    Some(known.to_options())
}

/// Counters of an engine since its start, and its current sizes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct dwell_statistics {
    /// Clients that were given a place.
    pub accepted: u64,
    /// Clients that were turned away.
    pub refused: u64,
    /// Requests that were handed over.
    pub requests: u64,
    /// Requests that the engine answered by itself.
    pub rejected: u64,
    /// Clients that took nothing of their answer for too long.
    pub write_timeouts: u64,
    /// Orders whose handle named nothing any more.
    pub stale: u64,
    /// Requests whose response is owed now.
    pub held: u64,
    /// HTTP connections open now.
    pub connections: u64,
    /// WebSockets open now.
    pub websockets: u64,
    /// Raw streams open now.
    pub streams: u64,
    /// Turns that were taken.
    pub turns: u64,
}

impl dwell_statistics {
    pub(crate) fn of(statistics: &Statistics) -> Self {
        Self {
            accepted: statistics.accepted,
            refused: statistics.refused,
            requests: statistics.requests,
            rejected: statistics.rejected,
            write_timeouts: statistics.write_timeouts,
            stale: statistics.stale,
            held: statistics.held,
            connections: statistics.connections,
            websockets: statistics.websockets,
            streams: statistics.streams,
            turns: statistics.turns,
        }
    }
}

/// A request as it lies in a batch.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct dwell_request {
    /// The head, the empty line included.
    pub head: dwell_span,
    /// The method.
    pub method: dwell_span,
    /// The request target as it came.
    pub target: dwell_span,
    /// The client's address as text; empty over a unix socket.
    pub peer_address: dwell_span,
    /// The number of field lines.
    pub field_count: usize,
    /// The announced length of the body; 0 where it is chunked.
    pub content_length: u64,
    /// Bits of dwell_request_flag, and the number of the cipher suite in the upper 16.
    pub flags: u32,
}

/// Flags of a request, as bits.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub enum dwell_request_flag {
    /// The body follows as events.
    DWELL_BODY_FOLLOWS = 1,
    /// The version is HTTP/1.0.
    DWELL_HTTP10 = 2,
    /// The client keeps the connection open for another request.
    DWELL_KEEP_ALIVE = 4,
    /// The client waits for a 100 (Continue) before its body, if that has not come already.
    DWELL_EXPECTS_CONTINUE = 8,
    /// The body is chunked, so its length is not known.
    DWELL_CHUNKED = 16,
    /// The client speaks TLS: flags >> 16 is the number of its cipher suite, which is from 0x1301
    /// to 0x1303 for TLS 1.3 and another one for TLS 1.2. Without TLS it is 0.
    DWELL_SECURE = 32,
    /// The client goes on with an earlier session of TLS.
    DWELL_RESUMED = 64,
    /// The client has agreed on `http/1.1`, or with DWELL_HTTP2 on `h2` (ALPN).
    DWELL_AGREED = 128,
    /// The table of the request ends with the name that the client has asked for (SNI).
    DWELL_NAMED = 256,
    /// The request came on a stream of HTTP/2. Its head is written as HTTP/1.1 would have it, with
    /// `Transfer-Encoding: chunked` for a body of unknown length, which no client has sent.
    DWELL_HTTP2 = 512,
}

/// Flags of a write, as bits.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub enum dwell_write_flag {
    /// The bytes are the last ones of the answer.
    DWELL_FINISH = 1,
    /// The connection closes after the answer.
    DWELL_CLOSE = 2,
    /// Reports DWELL_WRITABLE, once, when all is out. It is not reported for a response that this
    /// write ends, as its handle names nothing then.
    DWELL_NOTIFY = 4,
}

/// Flags of an upgrade, as bits.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub enum dwell_upgrade_flag {
    /// Pages of any origin may connect, not only those of the same host.
    DWELL_ANY_ORIGIN = 1,
    /// Messages are not compressed.
    DWELL_PLAIN = 2,
}

pub(crate) fn request_of(view: ::dwell_engine::embed::RequestView<'_>) -> dwell_request {
    dwell_request {
        head: dwell_span::of(view.head()),
        method: dwell_span::of(view.method()),
        target: dwell_span::of(view.target()),
        peer_address: dwell_span::of(view.peer_address()),
        field_count: view.fields().len(),
        content_length: view.content_length().unwrap_or(0),
        flags: view.flags(),
    }
}

pub(crate) fn span_of(bytes: &[u8]) -> dwell_span {
    dwell_span::of(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_rate_of_a_body_is_the_engines() {
        for (given, taken) in [(0, 0), (7, 7), (u64::MAX, u32::MAX)] {
            let mut options = dwell_options::of(&Options::default());
            options.body_rate_min = given;
            assert_eq!(options.to_options().http.body_rate_min, taken);
        }
    }
}
