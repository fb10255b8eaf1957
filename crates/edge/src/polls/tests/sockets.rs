//! WebSockets on poll routes.

use super::harness::{Client, Edge, PATIENCE, cursor};
use std::io::Write;
use std::time::Duration;

/// A client whose connection is a WebSocket, or is going to be.
pub(super) struct Socket {
    client: Client,
    /// What is to be skipped of the answer to the handshake has been.
    is_open: bool,
    pub(super) frames: Vec<String>,
}

impl Socket {
    /// The handshake.
    pub(super) const FIELDS: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

    pub(super) fn open(edge: &Edge, target: &str) -> Self {
        let fields = Self::FIELDS;
        Self {
            client: edge.ask(&format!("GET {target}\n{fields}")),
            is_open: false,
            frames: Vec::new(),
        }
    }

    pub(super) fn say(&mut self, text: &str) {
        assert!(text.len() < 126);
        let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(text.as_bytes());
        self.client.socket.write_all(&frame).unwrap();
    }

    /// Takes in what has come; returns how many frames of text there are.
    pub(super) fn read(&mut self) -> usize {
        self.client.receive();
        if !self.is_open {
            let end = self
                .client
                .received
                .windows(4)
                .position(|four| four == b"\r\n\r\n");
            let Some(end) = end else { return 0 };
            assert!(self.client.received.starts_with(b"HTTP/1.1 101 "));
            self.client.received.drain(..end + 4);
            self.is_open = true;
        }
        while let Some((opcode, payload)) = self.take_frame() {
            if opcode == 1 {
                self.frames.push(String::from_utf8(payload).unwrap());
            }
        }
        self.frames.len()
    }

    /// True if so much has come, in frames of any length.
    pub(super) fn has_received(&mut self, bytes: usize) -> bool {
        self.client.receive();
        self.client.received.len() >= bytes
    }

    /// Turns until the server has closed it with this code.
    #[track_caller]
    pub(super) fn await_close(&mut self, edge: &mut Edge, code: u16) {
        let mut close = vec![0x88];
        edge.turn_until(|_| {
            self.has_received(0);
            let found = self.client.received.windows(4).find(|four| four[0] == 0x88);
            found.is_some_and(|frame| {
                close = frame.to_vec();
                true
            })
        });
        assert_eq!(u16::from_be_bytes([close[2], close[3]]), code);
    }

    fn take_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let (length, start) = match *self.client.received.get(1)? {
            126 => {
                let bytes: [u8; 2] = self.client.received.get(2..4)?.try_into().ok()?;
                (usize::from(u16::from_be_bytes(bytes)), 4)
            }
            length => (usize::from(length), 2),
        };
        let payload = self.client.received.get(start..start + length)?.to_vec();
        let opcode = self.client.received[0] & 15;
        self.client.received.drain(..start + length);
        Some((opcode, payload))
    }

    #[track_caller]
    pub(super) fn await_last(&mut self, edge: &mut Edge, frame: &str) {
        let end = edge.elapsed() + PATIENCE;
        while self.frames.last().is_none_or(|last| last != frame) {
            let told = &self.frames;
            let rest = String::from_utf8_lossy(&self.client.received);
            assert!(
                edge.elapsed() < end,
                "not {frame}: {told:?} {rest:?} {:?}",
                edge.driver.front.polls.waiters.feeds
            );
            edge.turn();
            self.read();
        }
    }
}

fn frame(key: &str, value: &str) -> String {
    let cursor = cursor(value);
    format!(r#"{{"k":"{key}","v":"{value}","c":"{cursor}"}}"#)
}

#[test]
fn a_change_is_told_that_comes_while_the_handshake_is_sent() {
    let mut edge = Edge::new("");
    let mut socket = Socket::open(&edge, "/poll/a");
    // The client takes a part of the answer, and the rest later.
    socket.client.socket.set_window(100);
    edge.turn_until_waiting(1);
    edge.turn();
    edge.set("/poll/a", "one");
    edge.turn();
    assert_eq!(socket.read(), 0);
    socket.client.socket.set_window(4096);
    let value = format!(r#"{{"v":"one","c":"{}"}}"#, cursor("one"));
    socket.await_last(&mut edge, &value);
    // The loop reads all keys again after 15 s, whatever was told.
    assert!(
        edge.elapsed() < Duration::from_secs(1),
        "{:?}",
        edge.elapsed()
    );
}

#[test]
fn a_socket_is_told_what_is_new_and_leaves_nothing() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    let mut single = Socket::open(&edge, "/poll/a");
    let mut several = Socket::open(&edge, &format!("/poll/?k=a&k=b&since={}.", cursor("one")));
    edge.turn_until_waiting(3);
    assert_eq!(edge.driver.front.polls.sockets(), 2);
    let unnamed = |value: &str| format!(r#"{{"v":"{value}","c":"{}"}}"#, cursor(value));
    single.await_last(&mut edge, &unnamed("one"));
    edge.set("/poll/a", "one");
    edge.set("/poll/a", "two");
    single.await_last(&mut edge, &unnamed("two"));
    several.await_last(&mut edge, &frame("a", "two"));
    assert_eq!((single.read(), several.read()), (2, 1));
    edge.delete("/poll/a");
    single.await_last(&mut edge, r#"{"c":null}"#);
    several.await_last(&mut edge, r#"{"k":"a","c":null}"#);
    several.say(r#"{"unsubscribe":["a","b"]}"#);
    edge.turn_until_waiting(1);
    several.say(r#"{"subscribe":["c"]}"#);
    edge.turn_until_waiting(2);
    edge.set("/poll/c", "three");
    several.await_last(&mut edge, &frame("c", "three"));
    single.say("nonsense");
    drop(several);
    edge.assert_nothing_left();
}

#[test]
fn a_frame_on_its_way_is_not_the_last_of_a_key_that_is_taken_up_again() {
    let mut edge = Edge::new("");
    edge.set("/poll/a", "one");
    let mut socket = Socket::open(&edge, "/poll/?k=a");
    socket.await_last(&mut edge, &frame("a", "one"));
    edge.set("/poll/a", "two");
    socket.await_last(&mut edge, &frame("a", "two"));
    let give_up = |edge: &mut Edge, socket: &mut Socket| {
        socket.say(r#"{"unsubscribe":["a"]}"#);
        edge.turn_until_waiting(0);
    };
    let one = cursor("one");
    let take_up = format!(r#"{{"subscribe":["a"],"since":{{"a":"{one}"}}}}"#);
    give_up(&mut edge, &mut socket);
    edge.set("/poll/a", "one");
    // As if it had not read the second value yet.
    socket.say(&take_up);
    socket.await_last(&mut edge, &frame("a", "one"));
    give_up(&mut edge, &mut socket);
    socket.say(&take_up);
    edge.turn_until_waiting(1);
    assert_eq!(socket.read(), 3, "it has what it was told last");
    give_up(&mut edge, &mut socket);
    edge.delete("/poll/a");
    // As if it had read nothing at all.
    socket.say(r#"{"subscribe":["a"]}"#);
    socket.await_last(&mut edge, r#"{"k":"a","c":null}"#);
    assert_eq!(socket.read(), 4);
    drop(socket);
    edge.assert_nothing_left();
}

#[test]
fn a_socket_without_keys_is_one_all_the_same() {
    let mut edge = Edge::new("");
    let mut socket = Socket::open(&edge, "/poll/?k=a");
    edge.turn_until_waiting(1);
    socket.say(r#"{"unsubscribe":["a"]}"#);
    edge.turn_until_waiting(0);
    assert_eq!(
        (
            edge.driver.front.polls.sockets(),
            edge.driver.front.polls.is_idle()
        ),
        (1, false)
    );
    edge.driver.fleet.advance(dwell_evloop::Lifecycle::Drain);
    edge.turn_until(|edge| edge.front.polls.is_empty());
}

#[test]
fn a_handshake_that_is_given_up_leaves_nothing() {
    let mut edge = Edge::new("limits.waiters_max = 1");
    let gone = Socket::open(&edge, "/poll/a");
    gone.client.reset();
    edge.turn();
    let mut refused = Socket::open(&edge, "/poll/?k=a&k=b");
    assert_eq!(edge.answer(&mut refused.client).0, 503);
    edge.assert_nothing_left();
}

#[test]
fn a_handshake_in_the_turn_of_a_drain_is_closed_as_a_websocket() {
    for target in ["/poll/a", "/poll/?k=a&k=b", "/poll/"] {
        let mut edge = Edge::new("");
        let mut socket = Socket {
            client: edge.connect(),
            is_open: false,
            frames: Vec::new(),
        };
        edge.turn();
        // The loop begins to drain at the end of the turn that the request comes in.
        socket
            .client
            .send(&format!("GET {target}\n{}", Socket::FIELDS));
        edge.driver.fleet.advance(dwell_evloop::Lifecycle::Drain);
        socket.await_close(&mut edge, 1001);
    }
}
