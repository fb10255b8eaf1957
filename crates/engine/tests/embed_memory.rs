//! What idle clients of an embedded engine cost in memory, counted at the allocator.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    unsafe_code,
    reason = "an allocator that counts can only be written so"
)]

use dwell_engine::embed::{Batch, Command, Engine, EventKind, Operation, Options, upgrade_flags};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The clients of each kind; the figure is for tables that are about full.
const CLIENTS: usize = 1_000;
/// The target: tables, deadline and everything else.
const IDLE_BYTES_MAX: usize = 256;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HANDSHAKE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

struct Counting;

/// Bytes that were allocated and not freed.
static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::SeqCst);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Turns until a request has come, and answers it by what `order` makes of its name.
fn answer(engine: &mut Engine, batch: &mut Batch, order: impl Fn(u64) -> Command<'static>) {
    loop {
        engine.turn(Some(Duration::from_secs(5)), batch).unwrap();
        let mut events = batch.events().iter();
        let request = events.find(|event| event.kind == EventKind::Request as u32);
        if let Some(request) = request {
            engine.execute(&order(request.handle)).unwrap();
            return;
        }
    }
}

/// Takes clients to where they are idle; bytes per client.
fn bytes_per_client(request: &str, order: impl Fn(u64) -> Command<'static>) -> usize {
    let mut engine = Engine::new(Options::default()).unwrap();
    let address: SocketAddr = engine.listen(([127, 0, 0, 1], 0).into()).unwrap();
    let mut batch = Batch::new();
    let mut clients = Vec::with_capacity(CLIENTS + 1);
    let mut arrive = || {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        answer(&mut engine, &mut batch, &order);
        let mut head = [0; 1024];
        let mut length = 0;
        while !head[..length].ends_with(b"\r\n\r\n") {
            length += client.read(&mut head[length..]).unwrap();
        }
        clients.push(client);
    };
    arrive();
    let before = HELD.load(Ordering::SeqCst);
    (0..CLIENTS).for_each(|_| arrive());
    (HELD.load(Ordering::SeqCst) - before) / CLIENTS
}

#[test]
fn idle_clients_cost_little() {
    let http = bytes_per_client(GET, |handle| Command {
        status: 204,
        ..Operation::Answer.on(handle)
    });
    let web_socket = bytes_per_client(HANDSHAKE, |handle| Command {
        flags: upgrade_flags::PLAIN,
        bytes: HANDSHAKE.as_bytes(),
        ..Operation::Upgrade.on(handle)
    });
    println!("bytes per idle client: HTTP {http}, WebSocket {web_socket}");
    assert!(http <= IDLE_BYTES_MAX, "{http}");
    assert!(web_socket <= IDLE_BYTES_MAX, "{web_socket}");
}
