//! What clients that wait for a server's handler cost in memory, counted at the allocator.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    unsafe_code,
    reason = "an allocator that counts can only be written so"
)]

use dwell_engine::handler::{Answer, BodyWriter, Exchange, Responder};
use dwell_engine::{Request, Running, Server};
use dwell_proto::http2::{PREFACE, encode, encode_field};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The clients of each kind; the figure is for tables that are about full.
const CLIENTS: usize = 1_000;
/// The targets: tables, deadline, handle and everything else.
const HELD_BYTES_MAX: usize = 288;
const STREAM_BYTES_MAX: usize = 304;
/// The streams of one connection of HTTP/2.
const STREAMS: usize = 100;
/// The same for a client of HTTP/2 that waits on a stream, and for one that asks for nothing.
const HTTP2_HELD_BYTES_MAX: usize = 304;
const HTTP2_IDLE_BYTES_MAX: usize = 384;
/// The requests that clients send behind those that are held: up to 4 KiB of each is kept, and
/// 4 MiB of all together.
const INPUT_BYTES_MAX: usize = 4 * 1024 + (4 << 20) / CLIENTS;

/// All of the process is counted, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

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

/// What the handlers of the clients keep.
#[derive(Default)]
struct Waiting {
    held: Mutex<Vec<Responder>>,
    streams: Mutex<Vec<BodyWriter>>,
}

fn serve(waiting: &Arc<Waiting>) -> Running {
    let waiting = Arc::clone(waiting);
    Server::builder()
        .pollers(1)
        .h2c(true)
        .listen(([127, 0, 0, 1], 0).into())
        .serve(
            move |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
                let responder = exchange.responder();
                if request.head.path == "/held" {
                    responder.informational(103, Vec::new()).unwrap();
                    waiting.held.lock().unwrap().push(responder);
                } else if request.head.path == "/done" {
                    let _ = responder.send(Answer::text(200, "done\n"));
                } else {
                    let head = Answer::new(200).field("Content-Type", "text/event-stream");
                    let writer = responder.stream(head, None).unwrap();
                    waiting.streams.lock().unwrap().push(writer);
                }
            },
        )
        .unwrap()
}

/// Takes the clients of a server to where they wait, each of which has sent this much behind its
/// request; bytes per client.
fn bytes_per_client(path: &str, sent_behind: usize) -> usize {
    let running = serve(&Arc::default());
    let behind = "x".repeat(sent_behind);
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n{behind}");
    let mut clients = Vec::with_capacity(CLIENTS + 1);
    let mut arrive = || {
        let mut client = TcpStream::connect(running.addresses()[0]).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut head = [0; 1024];
        let mut length = 0;
        while !head[..length].ends_with(b"\r\n\r\n") {
            let read = client.read(&mut head[length..]).unwrap();
            assert_ne!(read, 0, "the connection was closed");
            length += read;
        }
        clients.push(client);
    };
    arrive();
    let before = HELD.load(Ordering::SeqCst);
    (0..CLIENTS).for_each(|_| arrive());
    (HELD.load(Ordering::SeqCst) - before) / CLIENTS
}

#[test]
fn clients_that_wait_for_a_handler_cost_little() {
    let _alone = ALONE.lock();
    let held = bytes_per_client("/held", 0);
    let stream = bytes_per_client("/stream", 0);
    let flooding = bytes_per_client("/held", 60_000);
    println!("bytes per held request: {held}, per event stream: {stream}, with input: {flooding}");
    assert!(held <= HELD_BYTES_MAX, "{held}");
    assert!(stream <= STREAM_BYTES_MAX, "{stream}");
    assert!(flooding <= HELD_BYTES_MAX + INPUT_BYTES_MAX, "{flooding}");
}

/// A connection of HTTP/2 that has sent its preface, and taken in that of the server.
fn http2_client(running: &Running) -> TcpStream {
    let mut client = TcpStream::connect(running.addresses()[0]).unwrap();
    let mut opening = PREFACE.to_vec();
    encode::settings(&[], &mut opening);
    encode::settings_ack(&mut opening);
    client.write_all(&opening).unwrap();
    client
}

fn http2_request(stream: u32, path: &str) -> Vec<u8> {
    let (mut block, mut out) = (Vec::new(), Vec::new());
    let lines = [(":method", "GET"), (":scheme", "http"), (":authority", "a")];
    for (name, value) in lines.into_iter().chain([(":path", path)]) {
        encode_field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    encode::block(stream, &block, true, 16_384, &mut out);
    out
}

/// Bytes for each of the streams that wait on some connections.
fn bytes_per_stream() -> usize {
    let running = serve(&Arc::default());
    let mut clients = Vec::with_capacity(CLIENTS / STREAMS + 1);
    let mut arrive = |streams: u32| {
        let mut client = http2_client(&running);
        for number in 0..streams {
            client
                .write_all(&http2_request(2 * number + 1, "/held"))
                .unwrap();
        }
        // The head of an interim answer on the last stream, which comes last.
        let [.., high, low] = (2 * streams - 1).to_be_bytes();
        read_until(&mut client, |all| {
            all.windows(6).any(|some| *some == [1, 4, 0, 0, high, low])
        });
        clients.push(client);
    };
    arrive(1);
    let before = HELD.load(Ordering::SeqCst);
    (0..CLIENTS / STREAMS).for_each(|_| arrive(STREAMS as u32));
    (HELD.load(Ordering::SeqCst) - before) / CLIENTS
}

/// Reads from a client until this is true of what has come.
fn read_until(client: &mut TcpStream, is_enough: impl Fn(&[u8]) -> bool) {
    let (mut read, mut received) = (0, [0; 16 * 1024]);
    while !is_enough(&received[..read]) {
        let more = client.read(&mut received[read..]).unwrap();
        assert_ne!(more, 0, "the connection was closed");
        read += more;
    }
}

/// Bytes for each connection of HTTP/2 that has had an answer.
fn bytes_per_idle_connection() -> usize {
    let running = serve(&Arc::default());
    let mut clients = Vec::with_capacity(CLIENTS + 1);
    let mut arrive = || {
        let mut client = http2_client(&running);
        client.write_all(&http2_request(1, "/done")).unwrap();
        read_until(&mut client, |all| all.ends_with(b"done\n"));
        clients.push(client);
    };
    (0..10).for_each(|_| arrive());
    let before = HELD.load(Ordering::SeqCst);
    (0..CLIENTS).for_each(|_| arrive());
    (HELD.load(Ordering::SeqCst) - before) / CLIENTS
}

#[test]
fn clients_of_http2_cost_little() {
    let _alone = ALONE.lock();
    let (held, idle) = (bytes_per_stream(), bytes_per_idle_connection());
    println!("bytes per held request on a stream: {held}, per idle connection: {idle}");
    assert!(held <= HTTP2_HELD_BYTES_MAX, "{held}");
    assert!(idle <= HTTP2_IDLE_BYTES_MAX, "{idle}");
}
