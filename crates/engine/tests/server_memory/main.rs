//! What a server keeps of an upload that nobody reads. Alone in its process, which it measures.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dwell_engine::Server;
use dwell_engine::handler::{Answer, OwnedRequest, Responder, blocking};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const GIGABYTE: usize = 1 << 30;
const MEGABYTE: usize = 1 << 20;

/// Bytes of memory that belong to this process alone; what the kernel holds for its sockets is
/// not among them.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon"))
        .unwrap();
    let kibibytes = line.split_whitespace().nth(1).unwrap();
    kibibytes.parse::<usize>().unwrap() * 1024
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
fn a_gigabyte_that_nobody_reads_stays_with_its_sender() {
    let (entered, has_entered) = channel();
    let (leave, may_leave) = channel::<bool>();
    let (entered, may_leave) = (Mutex::new(entered), Arc::new(Mutex::new(may_leave)));
    let handler = blocking(move |mut request: OwnedRequest, responder: Responder| {
        entered.lock().unwrap().send(()).unwrap();
        while may_leave.lock().unwrap().recv().unwrap() {
            assert!(request.body.next_blocking().unwrap().len() <= 64 * 1024);
        }
        responder.send(Answer::text(200, "not read")).unwrap();
    });
    let running = Server::builder()
        .pollers(1)
        .max_body_bytes(2 * GIGABYTE as u64)
        .listen(([127, 0, 0, 1], 0).into())
        .serve(handler)
        .unwrap();
    let piece = vec![b'x'; MEGABYTE];
    let mut client = TcpStream::connect(running.addresses()[0]).unwrap();
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {GIGABYTE}\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    has_entered.recv().unwrap();
    let before = resident();
    // A write that takes this long is one that nobody lets through.
    client
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let push = |client: &mut TcpStream| {
        let mut sent = 0;
        while let Ok(written) = client.write(&piece) {
            sent += written;
            assert!(sent < GIGABYTE / 4, "nothing holds the sender back");
        }
        sent
    };
    push(&mut client);
    leave.send(true).unwrap();
    push(&mut client);
    let grown = resident().saturating_sub(before);
    assert!(
        grown < MEGABYTE,
        "{grown} bytes were kept of a body nobody reads"
    );
    leave.send(false).unwrap();
    let mut answer = [0; 15];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
}
