//! The same exchanges with a memcached 1.6.18 and with this server: the replies are the same but
//! for the differences listed here with their reasons.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::thread;

use dwell_testkit::{GUARD, Memcached};

use super::component::Rig;
use super::exchanges::{self, Exchange, Step};
use super::*;

const EXCHANGES: &str = include_str!("exchanges.txt");

#[test]
fn replies_are_those_of_memcached() {
    let memcached = Memcached::start();
    let server = Ours::start(StoreServerLimits::default());
    for Exchange { name, steps } in exchanges::read(EXCHANGES) {
        let theirs = exchange(memcached.address(), &steps);
        let ours = exchange(server.address, &steps);
        for ((step, ours), theirs) in steps.iter().zip(ours).zip(theirs) {
            let sent = step.line;
            match step.differs.map(unescape) {
                None => assert_eq!(ours, theirs, "{name}: {sent} (memcached's is on the right)"),
                Some(expected) => assert_eq!(ours, expected, "{name}: {sent}"),
            }
        }
    }
}

#[test]
fn without_cas_uniques_replies_are_those_of_memcached() {
    let memcached = Memcached::start_with(&["-C"]);
    let server = Ours::start(StoreServerLimits {
        cas_enabled: false,
        ..StoreServerLimits::default()
    });
    let steps = CAS_EXCHANGE.lines().map(|sent| Step {
        line: sent.trim_start(),
        differs: None,
    });
    let steps: Vec<_> = steps.collect();
    let theirs = exchange(memcached.address(), &steps);
    let ours = exchange(server.address, &steps);
    for ((step, ours), theirs) in steps.iter().zip(ours).zip(theirs) {
        assert_eq!(ours, theirs, "{} (memcached's is on the right)", step.line);
    }
}

/// Everything that names or shows a cas unique.
const CAS_EXCHANGE: &str = r"set a 0 0 1\r\n1\r\n
    gets a\r\n
    cas a 0 0 1 0\r\n2\r\n
    cas a 0 0 1 1\r\n3\r\n
    cas zz 0 0 1 0\r\n1\r\n
    gats 0 a\r\n
    mg a c v\r\n
    mg new c N0 v\r\n
    ms a 1 c\r\n1\r\n
    ms a 1 C0\r\n2\r\n
    ms a 1 C5 I\r\n2\r\n
    ms zz 1 C0\r\n2\r\n
    ms other 1 C0 ME\r\n2\r\n
    md a C5\r\n
    md a I T30\r\n
    mg a v c s\r\n
    ms a 1 I C5\r\n7\r\n
    md a C0\r\n
    ma n N0 c\r\n
    ma n c C1\r\n
    ma n C0 c\r\n
    append n 0 0 1\r\n1\r\n
    gets n\r\n";

#[test]
fn listed_differences_are_differences() {
    let memcached = Memcached::start();
    for Exchange { name, steps } in exchanges::read(EXCHANGES) {
        if steps.iter().all(|step| step.differs.is_none()) {
            continue;
        }
        let theirs = exchange(memcached.address(), &steps);
        let differs = steps
            .iter()
            .zip(theirs)
            .any(|(step, theirs)| step.differs.is_some_and(|ours| unescape(ours) != theirs));
        assert!(differs, "{name}: memcached replies the same");
    }
}

/// A command whose reply is unlike any other.
const ASK_END: &[u8] = b"mg end-of-step k\r\n";
const END: &[u8] = b"EN kend-of-step\r\n";

/// The replies to each step, up to the end of the step or of the connection.
fn exchange(address: SocketAddr, steps: &[Step]) -> Vec<String> {
    let mut stream = exchanges::connect(address, GUARD);
    let mut replies = Vec::new();
    for Step { line: sent, .. } in steps {
        let mut input = expand(sent);
        input.extend_from_slice(ASK_END);
        // The peer may have closed while this is sent; what it replied before is what counts.
        let _ = stream.write_all(&input);
        let mut reply = Vec::new();
        let mut buffer = vec![0; 65536];
        while !reply.ends_with(END) {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => reply.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{sent}: {error}"),
            }
        }
        let reply = reply.strip_suffix(END).unwrap_or(&reply);
        replies.push(normal(&String::from_utf8_lossy(reply)));
    }
    replies
}

fn expand(sent: &str) -> Vec<u8> {
    let mut bytes = unescape_bytes(sent);
    for (name, letter, length) in [
        ("K250", "k", 250),
        ("K251", "k", 251),
        ("O31", "o", 31),
        ("O32", "o", 32),
        ("HALF", "x", 700_000),
        ("BIG", "x", 1_048_577),
    ] {
        while let Some(at) = find(&bytes, name.as_bytes()) {
            bytes.splice(at..at + name.len(), letter.repeat(length).into_bytes());
        }
    }
    bytes
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

fn unescape(text: &str) -> String {
    String::from_utf8(unescape_bytes(text)).expect("replies are listed as UTF-8")
}

pub(super) fn unescape_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut characters = text.bytes();
    while let Some(byte) = characters.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match characters.next() {
            Some(b'r') => bytes.push(b'\r'),
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(b'x') => {
                let digits: String = characters.by_ref().take(2).map(char::from).collect();
                bytes.push(u8::from_str_radix(&digits, 16).expect("two digits"));
            }
            other => panic!("an unknown escape: {other:?}"),
        }
    }
    bytes
}

/// Takes out what may differ: the version, the cas unique of `gets`, and the padding of a number,
/// which memcached leaves out if another of its threads happens to hold the item.
fn normal(reply: &str) -> String {
    let mut is_number = false;
    let lines = reply.split_inclusive("\r\n").map(|line| {
        let mut tokens: Vec<&str> = line.trim_end().split(' ').collect();
        let is_data_of_number = std::mem::take(&mut is_number);
        match tokens[..] {
            ["VERSION", ..] => "VERSION\r\n".to_owned(),
            ["VALUE", "n", flags, _] => {
                is_number = true;
                format!("VALUE n {flags}\r\n")
            }
            ["VALUE", _, _, _, _] => {
                tokens[4] = "CAS";
                tokens.join(" ") + "\r\n"
            }
            _ if is_data_of_number => format!("{}\r\n", line.trim_end()),
            _ => line.to_owned(),
        }
    });
    lines.collect()
}

/// This server on a thread of its own, which ends with the test's process.
pub(super) struct Ours {
    pub(super) address: SocketAddr,
}

impl Ours {
    pub(super) fn start(limits: StoreServerLimits) -> Self {
        let (sender, receiver) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let mut rig = Rig::new(limits);
            sender.send(rig.address).unwrap();
            rig.run();
        });
        Self {
            address: receiver.recv().unwrap(),
        }
    }
}
