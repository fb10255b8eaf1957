//! Simulated servers beside the real ones.
#![cfg(feature = "sim")]

use dwell_testkit::sim::{SimMemcached, SimNet, SimScripted};
use dwell_testkit::{Memcached, Script};
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

/// Commands of one connection, whose replies the last one ends.
const COMMANDS: &[&str] = &[
    "get none\r\n",
    "gets none\r\n",
    "set one 7 0 3\r\nabc\r\n",
    "set two 0 0 0\r\n\r\n",
    "get one two none\r\n",
    "gets two one\r\n",
    "mg one c k q\r\n",
    "mg none c k q\r\n",
    "mg none c k\r\n",
    "mg one v f s c O123\r\n",
    "delete one\r\n",
    "delete one\r\n",
    "set one 0 0 2\r\nde\r\n",
    "gets one\r\n",
    "nonsense\r\n",
    "mn\r\n",
];

#[test]
fn the_model_of_memcached_answers_as_memcached_does() {
    let network = Rc::new(SimNet::new(1));
    for (memcached, model) in [
        (Memcached::start(), SimMemcached::start(&network)),
        (
            Memcached::start_with(&["-C"]),
            SimMemcached::start_without_cas(&network),
        ),
    ] {
        let mut connection = memcached.connect();
        connection.write_all(COMMANDS.concat().as_bytes()).unwrap();
        let mut replies = Vec::new();
        while !replies.ends_with(b"MN\r\n") {
            let mut buffer = [0; 1000];
            let read = connection.read(&mut buffer).unwrap();
            assert!(read > 0, "memcached is gone");
            replies.extend_from_slice(&buffer[..read]);
        }
        let replies = String::from_utf8(replies).unwrap();
        assert_eq!(model.ask(&COMMANDS.concat()), replies);
    }
}

#[test]
fn a_killed_model_refuses_and_a_new_one_is_empty() {
    let network = Rc::new(SimNet::new(1));
    let mut model = SimMemcached::start(&network);
    model.set("a", "value");
    let connected = network.connect(model.address());
    network.pass(Duration::from_secs(1));
    assert!(!connected.has_ended());
    model.kill();
    let refused = network.connect(model.address());
    network.pass(Duration::from_secs(1));
    assert!(connected.has_ended() && refused.has_ended());
    model.restart();
    assert_eq!(model.ask("get a\r\n"), "END\r\n");
}

#[test]
fn watchers_of_the_model_are_told_what_others_store() {
    let network = Rc::new(SimNet::new(1));
    let model = SimMemcached::start(&network);
    assert_eq!(model.ask("watch mutations deletions\r\n"), "ERROR\r\n");
    let mut watcher = network.connect(model.address());
    watcher.write_all(b"watch mutations evictions\r\n").unwrap();
    network.pass(Duration::from_secs(1));
    model.set("a", "value");
    let mut told = Vec::new();
    watcher.read_all(&mut told);
    let told = String::from_utf8(told).unwrap();
    let line = "type=item_store key=a status=stored";
    assert!(
        told.starts_with("OK\r\nts=") && told.contains(line),
        "{told}"
    );
}

#[test]
fn a_client_that_strays_from_its_script_fails_the_test() {
    let script = || {
        let script = Script::new()
            .expect("ping")
            .drip("pong", Duration::from_secs(1));
        script.read_until("\n").read_bytes(1).expect_end()
    };
    for (sent, is_well) in [
        (&["ping", "line\nx"][..], true),
        (&["pink"], false),
        (&["ping", "line\n"], false),
        (&["ping", "line\nxy"], false),
    ] {
        let network = Rc::new(SimNet::new(1));
        let server = SimScripted::start(&network, [script()]);
        let mut client = network.connect(server.address());
        for part in sent {
            client.write_all(part.as_bytes()).unwrap();
            network.pass(Duration::from_secs(10));
        }
        let mut answer = Vec::new();
        client.read_all(&mut answer);
        assert_eq!(answer == b"pong", sent.len() == 2);
        client.close();
        network.pass(Duration::from_secs(1));
        let ended = catch_unwind(AssertUnwindSafe(|| drop(server)));
        assert_eq!(ended.is_ok(), is_well, "{sent:?}");
    }
}
