//! The scripted server does what it is told and tells when its peer does not.
#![expect(
    clippy::unwrap_used,
    reason = "clippy sees only `#[test]` functions as tests"
)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use dwell_testkit::{Script, ScriptedServer};

fn connect(server: &ScriptedServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(dwell_testkit::GUARD)).unwrap();
    stream
}

fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn connections_follow_their_scripts_in_order() {
    let server = ScriptedServer::start([
        Script::new().expect("one").send("1"),
        Script::new()
            .read_until("\r\n")
            .drip("22", Duration::from_millis(1)),
        Script::new()
            .read_bytes(2)
            .send("3")
            .close_writing()
            .expect_end(),
    ]);
    let mut first = connect(&server);
    let mut second = connect(&server);
    second.write_all(b"anything\r\n").unwrap();
    first.write_all(b"one").unwrap();
    assert_eq!(rest(&mut second), "22");
    assert_eq!(rest(&mut first), "1");
    let mut third = connect(&server);
    third.write_all(b"xx").unwrap();
    assert_eq!(rest(&mut third), "3");
    third.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.connections(), 3);
    server.finish();
}

#[test]
fn an_unexpected_request_fails_the_test() {
    let server = ScriptedServer::start([Script::new().expect("get k\r\n")]);
    connect(&server).write_all(b"get other\r\n").unwrap();
    let failure = catch_unwind(AssertUnwindSafe(|| server.finish())).unwrap_err();
    let message = failure.downcast_ref::<String>().unwrap();
    assert!(
        message.contains(r#"expected "get k\r\n", got "get o""#),
        "{message}"
    );
}

#[test]
fn a_missing_request_fails_the_test() {
    let server = ScriptedServer::start([Script::new().expect("get k\r\n")]);
    connect(&server).write_all(b"ge").unwrap();
    let failure = catch_unwind(AssertUnwindSafe(|| server.finish())).unwrap_err();
    let message = failure.downcast_ref::<String>().unwrap();
    assert!(message.contains(r#"got "ge" (the end)"#), "{message}");
}

#[test]
fn a_hanging_server_can_be_dropped() {
    let server = ScriptedServer::start([Script::new().hang(), Script::new().hang()]);
    let mut stream = connect(&server);
    stream.write_all(b"anyone?").unwrap();
    drop(server);
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn a_server_can_take_over_a_port() {
    let port = dwell_testkit::free_port();
    for _ in 0..3 {
        let server = ScriptedServer::start_on(port, [Script::new().send("hello")]);
        assert_eq!(rest(&mut connect(&server)), "hello");
        server.finish();
    }
}
