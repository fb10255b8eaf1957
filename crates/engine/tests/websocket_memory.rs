//! What an idle WebSocket costs in memory, counted at the allocator.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    unsafe_code,
    reason = "an allocator that counts can only be written so"
)]

use dwell_engine::Detached;
use dwell_engine::websocket::{
    Broadcast, DeflateOptions, DeflateParameters, Message, MessageKind, Negotiated, Role,
    WebSocketApp, WebSocketEnd, WebSocketOptions, WebSocketRef, WebSockets,
};
use dwell_evloop::{Context, Driver, EventLoop, Readiness, Stream, Token};
use dwell_proto::websocket::{Deflater, Inflater, encode};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// The connections of this test; the figure is for tables that are about full.
const CONNECTIONS: usize = 1_000;
/// The target: table, deadline and everything else.
const BYTES_MAX: usize = 128;
/// What the documentation of `DeflateOptions` says that contexts cost.
const CONTEXTS_BYTES_MAX: usize = 380_000 + 48_000;

struct Counting;

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get().wrapping_add(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.set(HELD.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Echo;

impl WebSocketApp for Echo {
    fn message(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, message: Message<'_>) {
        socket.send(message.kind, &message.payload).unwrap();
    }

    fn closed(&mut self, _: &mut Context, _: Token, _: u64, end: WebSocketEnd<'_>) {
        panic!("{end:?}");
    }
}

struct Sockets(WebSockets);

impl Driver for Sockets {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.0.ready(context, token, readiness, &mut Echo);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.0.expired(context, token, &mut Echo);
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}

/// Bytes per connection when each has sent `request`, got an answer of as many bytes as `answer`
/// has, and is idle again.
fn bytes_per_connection(
    connections: usize,
    deflate: Option<DeflateParameters>,
    request: &[u8],
    answer: &[u8],
) -> usize {
    let growth = growth(connections, deflate, request, answer);
    usize::try_from(growth.iter().sum::<isize>()).unwrap() / growth.len()
}

/// As [`bytes_per_connection`], for all of them but the first, each by itself.
fn growth(
    connections: usize,
    deflate: Option<DeflateParameters>,
    request: &[u8],
    answer: &[u8],
) -> Vec<isize> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut event_loop = EventLoop::new().unwrap();
    let mut sockets = Sockets(WebSockets::new(3, WebSocketOptions::default()));
    let mut peers = Vec::with_capacity(connections);
    let mut received = vec![0; answer.len()];
    let mut connect = |event_loop: &mut EventLoop<()>, sockets: &mut Sockets| -> TcpStream {
        let stream = Stream::connect(address).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_nonblocking(true).unwrap();
        let detached = Detached {
            stream,
            input: Vec::new(),
        };
        let negotiated = Negotiated::new(Role::Server, deflate);
        let adopted = sockets
            .0
            .adopt(event_loop.context(), detached, negotiated, 0);
        adopted.unwrap();
        peer.write_all(request).unwrap();
        let mut filled = 0;
        while filled < received.len() {
            match peer.read(&mut received[filled..]) {
                Ok(read) => filled += read,
                Err(_) => event_loop
                    .turn(sockets, Some(Duration::from_secs(5)))
                    .unwrap(),
            }
        }
        assert!(received == answer);
        peer
    };
    // The first one makes what all of them share.
    peers.push(connect(&mut event_loop, &mut sockets));
    let mut growth = Vec::with_capacity(connections);
    while peers.len() < connections {
        let before = HELD.get();
        peers.push(connect(&mut event_loop, &mut sockets));
        growth.push(HELD.get().wrapping_sub(before).cast_signed());
    }
    assert_eq!(sockets.0.connections(), connections);
    growth
}

fn agreed(afresh: bool) -> DeflateParameters {
    DeflateParameters {
        server_no_context_takeover: afresh,
        client_no_context_takeover: afresh,
        server_max_window_bits: None,
        client_max_window_bits: None,
    }
}

/// A message of two fragments, and its echo.
const SHORT: (&[u8], &[u8]) = (b"\x01\x81\0\0\0\0a\x80\x81\0\0\0\0b", b"\x81\x02ab");

#[test]
fn an_idle_web_socket_costs_at_most_128_bytes() {
    let (request, answer) = SHORT;
    let plain = bytes_per_connection(CONNECTIONS, None, request, answer);
    let compressed = bytes_per_connection(CONNECTIONS, Some(agreed(true)), request, answer);
    println!("bytes per idle connection: {plain}, with compression agreed on: {compressed}");
    assert!(plain <= BYTES_MAX, "{plain}");
    assert!(compressed <= BYTES_MAX, "{compressed}");
    assert_eq!(plain, compressed);
}

#[test]
fn one_that_keeps_contexts_has_no_compressor_before_it_compresses() {
    let (request, answer) = SHORT;
    let held = bytes_per_connection(CONNECTIONS, Some(agreed(false)), request, answer);
    // The parts that are allocated with the first of them.
    let parts = 80;
    assert!(held <= BYTES_MAX + parts + size_of::<Inflater>(), "{held}");
}

#[test]
fn one_that_keeps_contexts_keeps_no_messages() {
    let options = DeflateOptions::default();
    let mut random = 1_u32;
    let noise = std::iter::repeat_with(|| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 24) as u8
    });
    // Half of it can be compressed, so that the compressed form is long too.
    let payload: Vec<_> = noise
        .take(200_000)
        .chain(std::iter::repeat_n(0, 400_000))
        .collect();
    let [mut request, mut answer] = [Vec::new(), Vec::new()];
    for (out, mask) in [(&mut request, Some([0; 4])), (&mut answer, None)] {
        let mut deflater = Deflater::with_context_takeover(&options, 15).unwrap();
        let kind = MessageKind::Binary;
        encode::compressed_message(out, kind, &payload, mask, &mut deflater);
    }
    // How a message is read depends on the machine, and with it the connection at which memory that
    // all share grows: most of them show what is their own.
    let mut growth = growth(16, Some(agreed(false)), &request, &answer);
    growth.sort_unstable();
    let held = usize::try_from(growth[growth.len() / 2]).unwrap();
    println!("bytes per idle connection that keeps contexts: {held}");
    assert!(held <= BYTES_MAX + CONTEXTS_BYTES_MAX, "{held}");
}

#[test]
fn a_peer_that_reads_nothing_is_owed_no_more_than_the_bound() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = Stream::connect(listener.local_addr().unwrap()).unwrap();
    let _peer = listener.accept().unwrap();
    let detached = Detached {
        stream,
        input: Vec::new(),
    };
    let (options, mut event_loop) = (WebSocketOptions::default(), EventLoop::<()>::new().unwrap());
    let mut sockets = WebSockets::new(3, options);
    let negotiated = Negotiated::new(Role::Server, None);
    let context = event_loop.context();
    let token = sockets.adopt(context, detached, negotiated, 0).unwrap();
    let news = Broadcast::new(MessageKind::Text, b"tick");
    let before = HELD.get();
    // Each goes out by itself, as what comes of events does.
    while sockets
        .send(context, token, MessageKind::Text, b"tick")
        .is_ok()
        && sockets.send_shared(context, token, &news).is_ok()
    {}
    let held = HELD.get() - before;
    println!(
        "bytes held for {} that wait: {held}",
        options.output_bytes_max
    );
    assert!(held <= 2 * options.output_bytes_max, "{held}");
}
