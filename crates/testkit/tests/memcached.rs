//! The real memcached, as the testkit starts, stops and ends it.
#![expect(
    clippy::unwrap_used,
    reason = "clippy sees only `#[test]` functions as tests"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use dwell_testkit::{Memcached, free_port};

fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = Vec::new();
    while !reply.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        reply.push(byte[0]);
    }
    String::from_utf8(reply).unwrap()
}

#[test]
fn it_answers_and_ends_with_its_handle() {
    let memcached = Memcached::start();
    let address = memcached.address();
    assert_eq!(
        ask(&mut memcached.connect(), "set k 0 0 1\r\nv\r\n"),
        "STORED\r\n"
    );
    drop(memcached);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn arguments_reach_it() {
    let memcached = Memcached::start_with(&["-F"]);
    let reply = ask(&mut memcached.connect(), "flush_all\r\n");
    assert_eq!(reply, "CLIENT_ERROR flush_all not allowed\r\n");
}

#[test]
fn a_stopped_one_answers_nothing_until_it_goes_on() {
    let memcached = Memcached::start();
    let mut stream = memcached.connect();
    memcached.stop();
    stream.write_all(b"version\r\n").unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let silence = stream.read(&mut [0; 10]).unwrap_err();
    assert!(matches!(
        silence.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut
    ));
    memcached.cont();
    stream.set_read_timeout(Some(dwell_testkit::GUARD)).unwrap();
    assert!(ask(&mut stream, "").starts_with("VERSION "));
}

#[test]
fn a_restart_is_empty_and_on_the_same_port() {
    let mut memcached = Memcached::start();
    ask(&mut memcached.connect(), "set k 0 0 1\r\nv\r\n");
    let (port, pid) = (memcached.port(), memcached.pid());
    memcached.kill();
    assert!(TcpStream::connect(memcached.address()).is_err());
    memcached.restart();
    assert_eq!(memcached.port(), port);
    assert_ne!(memcached.pid(), pid);
    assert_eq!(ask(&mut memcached.connect(), "get k\r\n"), "END\r\n");
}

#[test]
fn a_stopped_one_can_be_dropped() {
    let memcached = Memcached::start();
    memcached.stop();
    let address = memcached.address();
    drop(memcached);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn no_two_callers_get_the_same_port() {
    let ports: std::collections::BTreeSet<u16> = (0..50).map(|_| free_port()).collect();
    assert_eq!(ports.len(), 50);
}
