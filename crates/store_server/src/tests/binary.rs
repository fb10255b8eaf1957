//! The binary protocol beside memcached's, request by request, and what is peculiar to ours.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use dwell_testkit::Memcached;

use super::differential::Ours;
use super::exchanges::{self, Exchange, Step};
use super::*;

const EXCHANGES: &str = include_str!("binary_exchanges.txt");

#[test]
fn replies_are_those_of_memcached() {
    let memcached = Memcached::start();
    let server = Ours::start(StoreServerLimits::default());
    let mut wrong = Vec::new();
    for Exchange { name, steps } in exchanges::read(EXCHANGES) {
        let theirs = exchange(memcached.address(), &steps);
        let ours = exchange(server.address, &steps);
        for (step, (ours, theirs)) in steps.iter().zip(ours.iter().zip(&theirs)) {
            let same = ours == step.differs.unwrap_or(theirs);
            let is_difference = step.differs.is_none_or(|_| ours != theirs);
            if !same || !is_difference {
                let line = step.line;
                wrong.push(format!(
                    "{name}: {line}\n  ours   {ours}\n  theirs {theirs}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The opaque of the no-op that ends a step.
const END: u32 = 0x656e_6421;

fn request(line: &str) -> Vec<u8> {
    let mut words = line.split(' ');
    let mut word = || words.next().expect("opcode, extras, key, value");
    let opcode = u8::from_str_radix(word(), 16).expect("an opcode");
    let extras = hexadecimal(word());
    let (key, value) = (bytes(word()), bytes(word()));
    let cas = match (words.next(), words.next()) {
        (Some("cas"), Some(cas)) => cas.parse().expect("a cas unique"),
        _ => 0,
    };
    frame(opcode, 7, cas, &extras, &key, &value)
}

pub(super) fn frame(
    opcode: u8,
    opaque: u32,
    cas: u64,
    extras: &[u8],
    key: &[u8],
    value: &[u8],
) -> Vec<u8> {
    let body = extras.len() + key.len() + value.len();
    let mut frame = vec![0x80, opcode];
    frame.extend((key.len() as u16).to_be_bytes());
    frame.extend([extras.len() as u8, 0, 0, 0]);
    frame.extend((body as u32).to_be_bytes());
    frame.extend(opaque.to_be_bytes());
    frame.extend(cas.to_be_bytes());
    frame.extend([extras, key, value].concat());
    frame
}

fn hexadecimal(word: &str) -> Vec<u8> {
    let digits: Vec<u8> = word.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn bytes(word: &str) -> Vec<u8> {
    if word == "-" {
        return Vec::new();
    }
    let (text, count) = word.split_once('*').unwrap_or((word, "1"));
    differential::unescape_bytes(text).repeat(count.parse().expect("a number"))
}

/// The replies to each step, as text, up to the end of the step or of the connection.
fn exchange(address: SocketAddr, steps: &[Step]) -> Vec<String> {
    let mut stream = exchanges::connect(address, Duration::from_secs(2));
    let end = frame(0x0a, END, 0, &[], &[], &[]);
    let mut replies = Vec::new();
    for step in steps {
        // The peer may have closed while this is sent; what it replied before is what counts.
        let _ = stream.write_all(&[request(step.line), end.clone()].concat());
        replies.push(read_replies(&mut stream, step.line));
    }
    replies
}

fn read_replies(stream: &mut TcpStream, line: &str) -> String {
    let mut shown = Vec::new();
    let mut header = [0; 24];
    loop {
        if !read_whole(stream, &mut header, line) {
            shown.push("closed".to_owned());
            return shown.join(" | ");
        }
        let number = |from: usize| u32::from_be_bytes(*header[from..].first_chunk().unwrap());
        if number(12) == END {
            return shown.join(" | ");
        }
        let mut body = vec![0; number(8) as usize];
        assert!(read_whole(stream, &mut body, line), "a reply is cut short");
        shown.push(show(&header, &body));
    }
}

fn read_whole(stream: &mut TcpStream, into: &mut [u8], line: &str) -> bool {
    match stream.read_exact(into) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => false,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
        // It waits for bytes that are no part of the request.
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{line}: {error}"),
    }
}

/// One reply; cas uniques are only told from 0, versions from nothing.
fn show(header: &[u8; 24], body: &[u8]) -> String {
    let key = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let (extras, rest) = body.split_at(usize::from(header[4]));
    let (key, value) = rest.split_at(key);
    let value = match header[1] {
        0x0b => "VERSION".to_owned(),
        _ if value.len() > 100 => format!("{} bytes", value.len()),
        _ => value.escape_ascii().to_string(),
    };
    let cas = if header[16..] == [0; 8] { "" } else { " cas" };
    let status = u16::from_be_bytes([header[6], header[7]]);
    let key = if key.len() > 100 { &key[..1] } else { key };
    format!(
        "{:02x} {status:x} extras={extras:02x?} key={} value={value}{cas}",
        header[1],
        key.escape_ascii()
    )
}

#[test]
fn a_pipeline_in_pieces_is_answered_like_the_whole() {
    let input: Vec<u8> = exchanges::read(EXCHANGES)
        .into_iter()
        .filter(|exchange| !exchange.name.starts_with("bad") && !exchange.name.starts_with("quit"))
        .filter(|exchange| exchange.name != "key too long")
        .flat_map(|exchange| exchange.steps)
        .map(|step| request(step.line))
        .filter(|request| request.len() < 1000)
        .flatten()
        .collect();
    let whole = Client::new().send(&input);
    assert!(whole.len() > 2000);
    let mut client = Client::new();
    let pieces: Vec<u8> = input
        .chunks(7)
        .flat_map(|piece| client.send(piece))
        .collect();
    assert_eq!(pieces, whole);
}

#[test]
fn statistics_are_one_reply_each() {
    let mut client = Client::new();
    let replies = client.send(&frame(0x10, 7, 0, &[], &[], &[]));
    let text = String::from_utf8_lossy(&replies).into_owned();
    assert!(text.contains("curr_items"), "{text}");
    // The last one is empty.
    assert_eq!(replies[replies.len() - 24..][..2], [0x81, 0x10]);
    assert_eq!(replies[replies.len() - 16..][..4], [0; 4]);
}

#[test]
fn a_server_may_speak_one_protocol_only() {
    let noop = frame(0x0a, 7, 0, &[], &[], &[]);
    for (protocols, text, binary) in [
        (Protocols::Both, true, true),
        (Protocols::Text, true, false),
        (Protocols::Binary, false, true),
    ] {
        let service = service_with(StoreServerLimits {
            protocols,
            ..StoreServerLimits::default()
        });
        assert_eq!(!Client::with(&service).send(b"mn\r\n").is_empty(), text);
        assert_eq!(!Client::with(&service).send(&noop).is_empty(), binary);
    }
}
