//! The events of one turn for the host, and the bytes that they refer to.

use crate::app::Request;
use dwell_evloop::{TlsFacts, Token};
use dwell_proto::http1::{BodyFraming, Trailers, Version};
use std::net::SocketAddr;
use std::ops::Range;

/// Kinds of events.
///
/// Shape: the numbers are part of the C ABI; one that was given is never given again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum EventKind {
    /// A request came; its handle is new, and an answer is owed to it. [`Batch::request`] reads
    /// its bytes.
    Request = 1,
    /// A piece of the body of a request.
    Body = 2,
    /// The body of a request is complete; the bytes are the trailer section, one field a line. The
    /// end of a chunked body comes only while some of it is granted.
    BodyEnd = 3,
    /// All output is out, after a write with [`NOTIFY`](super::write_flags::NOTIFY). For WebSocket
    /// and raw streams also after a time in which some was not. For those, `detail` is the last
    /// mark of the output that is out; 0 if there was none.
    Writable = 4,
    /// The client of a request has ended its sending side. It may still read an answer.
    PeerClosed = 5,
    /// The client of a request is gone: the handle names nothing from now on.
    Gone = 6,
    /// The connection of a request has left the engine: take it with
    /// [`Engine::take_detached`](super::Engine::take_detached) before the next turn, in which it is
    /// closed. The handle names nothing else from now on. The bytes are what was read and not
    /// handed over: what is left of its body, as it came, and what the client has sent behind it.
    Detached = 7,
    /// A client has connected; its handle is of the connection.
    Opened = 8,
    /// A client is gone, or its connection has left HTTP.
    Closed = 9,
    /// A request has become a WebSocket: `handle` is its new name, `other` the one it had.
    WebSocketOpened = 10,
    /// A WebSocket message; `detail` is 1 for text and 2 for binary.
    WebSocketMessage = 11,
    /// A pong came on a WebSocket.
    WebSocketPong = 12,
    /// A WebSocket has ended; `detail` is the close code, the bytes are the reason.
    WebSocketClosed = 13,
    /// Bytes came on a raw stream.
    StreamData = 14,
    /// The peer of a raw stream sends no more; it may still read.
    StreamPeerClosed = 15,
    /// A raw stream has ended; `detail` is 0 where it was in order.
    StreamClosed = 16,
    /// A handshake was refused and answered; `detail` is the status. The handle names nothing
    /// from now on.
    UpgradeRefused = 17,
    /// The handshake of a client under TLS is complete, before its first request; the handle is of
    /// the connection. [`Engine::tls_facts`](super::Engine::tls_facts) and
    /// [`Engine::peer_certificates`](super::Engine::peer_certificates) are known from now on.
    Secured = 18,
    /// The handshake of a client has failed, which ends its connection; the bytes are the reason in
    /// words.
    Insecure = 19,
}

/// One thing that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Event {
    /// The handle of the request or connection that it happened to.
    pub handle: u64,
    /// Another handle: for a request, the connection it came on; for a WebSocket that opened, the
    /// request that it was. Otherwise 0.
    pub other: u64,
    /// The kind of the event, a number of [`EventKind`].
    pub kind: u32,
    /// A detail, whose meaning the kind defines.
    pub detail: u32,
    /// The place in [`Batch::data`] where its bytes begin.
    pub start: usize,
    /// The number of its bytes.
    pub length: usize,
}

/// The events of one turn, in the order in which they happened.
///
/// Shape: keep one and hand it to every turn, which clears it: its memory is used again. Memory
/// beyond a megabyte is given back.
#[derive(Debug, Default)]
pub struct Batch {
    events: Vec<Event>,
    data: Vec<u8>,
}

/// Flags of a request, as bits.
pub mod request_flags {
    /// The body follows as events.
    pub const BODY_FOLLOWS: u32 = 1;
    /// The version is HTTP/1.0.
    pub const HTTP10: u32 = 1 << 1;
    /// The client keeps the connection open for another request.
    pub const KEEP_ALIVE: u32 = 1 << 2;
    /// The client waits for a 100 (Continue) before its body, if that has not come already.
    pub const EXPECTS_CONTINUE: u32 = 1 << 3;
    /// The body is chunked, so its length is not known.
    pub const CHUNKED: u32 = 1 << 4;
    /// The client speaks TLS. The upper 16 bits of the flags are the number of the cipher suite
    /// then, which is from 0x1301 to 0x1303 for TLS 1.3, and 0 otherwise.
    pub const SECURE: u32 = 1 << 5;
    /// The client goes on with an earlier session of TLS.
    pub const RESUMED: u32 = 1 << 6;
    /// The client has agreed on `http/1.1`, or with [`HTTP2`] on `h2` (ALPN).
    pub const AGREED: u32 = 1 << 7;
    /// The table of the request ends with start and length of the name that the client has asked
    /// for (SNI).
    pub const NAMED: u32 = 1 << 8;
    /// The request came on a stream of HTTP/2; its head is written as HTTP/1.1 would have it.
    pub const HTTP2: u32 = 1 << 9;
}

/// Numbers before the fields in the table of a request: flags, bytes of the head, start and length
/// of method, target and peer address, count of fields, content length (two halves).
const FIXED_WORDS: usize = 11;
/// Numbers of one field: start and length of its name and its value.
const FIELD_WORDS: usize = 4;
const WORD_BYTES: usize = size_of::<u32>();
const KEEP_BYTES_MAX: usize = 1024 * 1024;
const KEEP_EVENTS_MAX: usize = 16 * 1024;

impl Batch {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the events, oldest first.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The bytes that the events speak of.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The bytes of one event.
    pub fn bytes(&self, event: &Event) -> &[u8] {
        let end = event.start.saturating_add(event.length);
        self.data.get(event.start..end).unwrap_or_default()
    }

    /// The request of an event; `None` for an event of another kind.
    pub fn request(&self, event: &Event) -> Option<RequestView<'_>> {
        let is_request = event.kind == EventKind::Request as u32;
        is_request.then(|| RequestView {
            bytes: self.bytes(event),
            table: event.detail as usize,
        })
    }

    /// Returns true if there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.events.clear();
        self.data.clear();
        self.events.shrink_to(KEEP_EVENTS_MAX);
        self.data.shrink_to(KEEP_BYTES_MAX);
    }

    pub(super) fn push(&mut self, kind: EventKind, handle: u64, detail: u32, bytes: &[u8]) {
        let start = self.data.len();
        self.data.extend_from_slice(bytes);
        self.events.push(Event {
            handle,
            other: 0,
            kind: kind as u32,
            detail,
            start,
            length: bytes.len(),
        });
    }

    pub(super) fn push_renamed(&mut self, kind: EventKind, handle: u64, other: u64) {
        self.push(kind, handle, 0, &[]);
        if let Some(event) = self.events.last_mut() {
            event.other = other;
        }
    }

    pub(super) fn push_trailers(&mut self, handle: u64, trailers: Trailers<'_>) {
        let mut lines = Vec::new();
        for (name, value) in trailers.iter() {
            for part in [name.as_bytes(), b":", value, b"\n"] {
                lines.extend_from_slice(part);
            }
        }
        self.push(EventKind::BodyEnd, handle, 0, &lines);
    }

    fn push_words(&mut self, words: &[usize]) {
        for word in words {
            self.data.extend_from_slice(&(*word as u32).to_ne_bytes());
        }
    }

    /// Adds a request: its head as it came, the peer's address and the name that it has asked for
    /// as text, and the table of where everything is.
    pub(super) fn push_request(
        &mut self,
        handle: u64,
        request: &Request<'_>,
        client: Client<'_>,
        canonical_names: bool,
    ) {
        let start = self.data.len();
        let head_bytes = request.head_bytes;
        self.data.extend_from_slice(head_bytes);
        let peer_start = self.data.len();
        if let Some(peer) = client.address {
            write_address(&mut self.data, peer);
        }
        let peer_length = self.data.len() - peer_start;
        let server_name = client.server_name();
        let name_start = self.data.len();
        self.data
            .extend_from_slice(server_name.unwrap_or_default().as_bytes());
        let table_start = self.data.len();
        let mut fields = 0;
        let mut words = [0; FIXED_WORDS];
        self.data.resize(table_start + FIXED_WORDS * WORD_BYTES, 0);
        for (name, value) in request.head.fields.iter() {
            fields += 1;
            let name = range_of(head_bytes, name.as_bytes());
            let value = range_of(head_bytes, value);
            if canonical_names {
                let at = start + name.start..start + name.end;
                canonicalize(&mut self.data[at]);
            }
            self.push_words(&[name.start, name.len(), value.start, value.len()]);
        }
        if let Some(server_name) = server_name {
            self.push_words(&[name_start - start, server_name.len()]);
        }
        let head = request.head;
        let method = range_of(head_bytes, head.method.as_bytes());
        let target = range_of(head_bytes, head.target.as_bytes());
        let length = match head.framing {
            BodyFraming::Length(length) => length,
            _ => 0,
        };
        words[0] = flags_of(request) | client.flags();
        words[1] = head_bytes.len() as u32;
        words[2] = method.start as u32;
        words[3] = method.len() as u32;
        words[4] = target.start as u32;
        words[5] = target.len() as u32;
        words[6] = (peer_start - start) as u32;
        words[7] = peer_length as u32;
        words[8] = fields;
        words[9] = length as u32;
        words[10] = (length >> 32) as u32;
        for (place, word) in words.iter().enumerate() {
            let at = table_start + place * WORD_BYTES;
            self.data[at..at + WORD_BYTES].copy_from_slice(&word.to_ne_bytes());
        }
        self.events.push(Event {
            handle,
            other: client.connection.to_bits(),
            kind: EventKind::Request as u32,
            detail: (table_start - start) as u32,
            start,
            length: self.data.len() - start,
        });
    }
}

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client<'s> {
    pub(super) connection: Token,
    pub(super) address: Option<SocketAddr>,
    pub(super) tls: Option<TlsFacts<'s>>,
}

impl<'s> Client<'s> {
    fn flags(self) -> u32 {
        self.tls.map_or(0, |tls| {
            request_flags::SECURE
                | flag(tls.is_resumed, request_flags::RESUMED)
                | flag(tls.has_protocol, request_flags::AGREED)
                | flag(tls.server_name.is_some(), request_flags::NAMED)
                | u32::from(tls.suite_number) << 16
        })
    }

    fn server_name(self) -> Option<&'s str> {
        self.tls?.server_name
    }
}

fn flag(is_set: bool, flag: u32) -> u32 {
    if is_set { flag } else { 0 }
}

fn flags_of(request: &Request<'_>) -> u32 {
    let head = request.head;
    flag(request.body_follows, request_flags::BODY_FOLLOWS)
        | flag(head.version == Version::Http10, request_flags::HTTP10)
        | flag(head.version == Version::Http2, request_flags::HTTP2)
        | flag(head.keep_alive, request_flags::KEEP_ALIVE)
        | flag(head.expect_continue, request_flags::EXPECTS_CONTINUE)
        | flag(head.framing == BodyFraming::Chunked, request_flags::CHUNKED)
}

fn write_address(output: &mut Vec<u8>, address: SocketAddr) {
    if let SocketAddr::V4(address) = address {
        let mut number = itoa::Buffer::new();
        for (place, octet) in address.ip().octets().into_iter().enumerate() {
            if place > 0 {
                output.push(b'.');
            }
            output.extend_from_slice(number.format(octet).as_bytes());
        }
        output.push(b':');
        output.extend_from_slice(number.format(address.port()).as_bytes());
    } else {
        output.extend_from_slice(address.to_string().as_bytes());
    }
}

/// Returns the range of `whole` that `part`, a slice of it, covers.
fn range_of(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
    if start > whole.len() {
        // An empty value need not stand in the head.
        return 0..0;
    }
    start..start + part.len().min(whole.len() - start)
}

/// Writes a field name as Go and others do: a capital at the start and after each hyphen.
fn canonicalize(name: &mut [u8]) {
    let mut is_first = true;
    for byte in name {
        if is_first {
            byte.make_ascii_uppercase();
        } else {
            byte.make_ascii_lowercase();
        }
        is_first = *byte == b'-';
    }
}

/// A request as it lies in a batch.
///
/// Shape: its bytes are the head, the peer's address as text, and a table of 32-bit numbers in the
/// machine's order, which begins at `detail` of the event: flags, bytes of the head, start and
/// length of the method, of the target and of the address, the count of fields, the content length
/// (low half first), for each field start and length of its name and of its value, and with
/// [`NAMED`](request_flags::NAMED) those of the name that the client has asked for. Starts
/// count from the first byte of the head. The table is not aligned.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    bytes: &'a [u8],
    table: usize,
}

impl<'a> RequestView<'a> {
    fn word(self, place: usize) -> u32 {
        let at = self.table + place * WORD_BYTES;
        let bytes = self.bytes.get(at..at + WORD_BYTES);
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }

    fn span(self, place: usize) -> &'a [u8] {
        let (start, length) = (self.word(place) as usize, self.word(place + 1) as usize);
        self.bytes.get(start..start + length).unwrap_or_default()
    }

    /// Returns the flags: bits of [`request_flags`], and the number of the cipher suite.
    pub fn flags(self) -> u32 {
        self.word(0)
    }

    /// Returns the number of the cipher suite of a client under TLS.
    pub fn suite_number(self) -> Option<u16> {
        let is_secure = self.flags() & request_flags::SECURE != 0;
        is_secure.then_some((self.flags() >> 16) as u16)
    }

    /// The name that a client under TLS has asked for, if the engine
    /// [keeps](crate::tls::TlsBuilder::keep_server_names) it.
    pub fn server_name(self) -> Option<&'a str> {
        let place = FIXED_WORDS + self.word(8) as usize * FIELD_WORDS;
        let is_named = self.flags() & request_flags::NAMED != 0;
        is_named.then(|| std::str::from_utf8(self.span(place)).ok())?
    }

    /// The head, the empty line included.
    pub fn head(self) -> &'a [u8] {
        self.bytes.get(..self.word(1) as usize).unwrap_or_default()
    }

    /// The method.
    pub fn method(self) -> &'a [u8] {
        self.span(2)
    }

    /// The request target as it came.
    pub fn target(self) -> &'a [u8] {
        self.span(4)
    }

    /// The client's address as text, empty over a unix socket.
    pub fn peer_address(self) -> &'a [u8] {
        self.span(6)
    }

    /// The announced length of the body; `None` where it is chunked.
    pub fn content_length(self) -> Option<u64> {
        let length = u64::from(self.word(9)) | u64::from(self.word(10)) << 32;
        (self.flags() & request_flags::CHUNKED == 0).then_some(length)
    }

    /// The field lines as (name, value), in order.
    pub fn fields(self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> {
        (0..self.word(8) as usize).map(move |field| {
            let place = FIXED_WORDS + field * FIELD_WORDS;
            (self.span(place), self.span(place + 2))
        })
    }
}
