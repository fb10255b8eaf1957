use super::*;
use crate::{CarriedEnd, Driver, EventLoop, FileSlice, Flushed, ReadOutcome, Readiness};
use std::io::{self, Write};
use std::time::Duration;

const OUTER: Token = Token::new(1, 0, 0);
const INNER: Token = Token::new(2, 0, 0);

/// The events of a turn.
#[derive(Default)]
struct Told(Vec<(Token, Readiness)>);

impl Driver for Told {
    type Message = ();

    fn ready(&mut self, _: &mut Context, token: Token, readiness: Readiness) {
        self.0.push((token, readiness));
    }

    fn expired(&mut self, _: &mut Context, _: Token) {}

    fn message(&mut self, _: &mut Context, (): ()) {}
}

struct Pair {
    event_loop: EventLoop<()>,
    carrier: Carrier,
    stream: Stream,
}

impl Pair {
    /// A registered stream that may be sent 100 bytes, and send 10.
    fn new() -> Self {
        let mut event_loop = EventLoop::new().unwrap();
        let context = event_loop.context();
        let carrier = context.carry(OUTER);
        carrier.grant(100);
        carrier.set_room(10);
        let mut stream = carrier.stream([None, None]).unwrap();
        context.register(&mut stream, INNER).unwrap();
        let mut pair = Self {
            event_loop,
            carrier,
            stream,
        };
        assert_eq!(pair.told(), [(INNER, Readiness::WRITABLE)]);
        pair
    }

    fn told(&mut self) -> Vec<(Token, Readiness)> {
        told(&mut self.event_loop)
    }

    fn read(&mut self) -> io::Result<ReadOutcome> {
        self.stream.read(&mut [0; 64])
    }
}

fn told(event_loop: &mut EventLoop<()>) -> Vec<(Token, Readiness)> {
    let mut told = Told::default();
    event_loop.turn(&mut told, Some(Duration::ZERO)).unwrap();
    told.0
}

#[test]
fn each_side_is_told_once_a_turn_of_what_the_other_has_done() {
    let mut pair = Pair::new();
    assert_eq!(pair.told(), []);
    assert!(pair.carrier.put(b"one ") && pair.carrier.put(b"two"));
    pair.stream.write(b"an").unwrap();
    pair.stream.write(b"swer").unwrap();
    assert_eq!(pair.event_loop.wait_max(), Some(Duration::ZERO));
    let told = pair.told();
    assert_eq!(
        told,
        [(OUTER, Readiness::WRITABLE), (INNER, Readiness::READABLE)]
    );
    assert_eq!(pair.read().unwrap(), ReadOutcome::Drained(7));
    assert_eq!(pair.read().unwrap(), ReadOutcome::WouldBlock);
    let mut output = Vec::new();
    assert_eq!(pair.carrier.take(&mut output).read, 7);
    assert_eq!(output, b"answer");
    // All of that was seen before the turn.
    assert_eq!(pair.told(), []);
}

#[test]
fn a_refused_writer_is_told_of_room() {
    let mut pair = Pair::new();
    pair.stream.write(b"0123456789abc").unwrap();
    assert_eq!(pair.stream.queued_bytes(), 3);
    pair.told();
    pair.carrier.set_room(0);
    assert_eq!(pair.told(), []);
    let mut output = Vec::new();
    pair.carrier.take(&mut output);
    pair.carrier.set_room(2);
    assert_eq!(pair.told(), [(INNER, Readiness::WRITABLE)]);
    assert_eq!(pair.stream.flush().unwrap(), Flushed::Blocked);
    pair.carrier.take(&mut output);
    pair.carrier.set_room(2);
    assert_eq!(pair.stream.flush().unwrap(), Flushed::All);
    pair.carrier.take(&mut output);
    assert_eq!(output, b"0123456789abc");
    // A part of a file takes the same way.
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"of a file").unwrap();
    let slice = FileSlice {
        file: file.into(),
        offset: 0,
        length: 9,
    };
    pair.carrier.set_room(20);
    pair.stream.write_file(b"part ", slice).unwrap();
    output.clear();
    pair.carrier.take(&mut output);
    assert_eq!(output, b"part of a file");
}

#[test]
fn what_is_granted_bounds_what_waits() {
    let mut pair = Pair::new();
    assert!(!pair.carrier.put(&[b'm'; 101]) && pair.carrier.put(&[b'm'; 100]));
    assert!(!pair.carrier.put(b"m"));
    assert_eq!(pair.carrier.grant_up_to(100), 0, "all of it waits");
    let mut little = [0; 24];
    pair.stream.read(&mut little).unwrap();
    assert_eq!(
        pair.carrier.grant_up_to(100),
        0,
        "less than a quarter was read"
    );
    pair.stream.read(&mut little[..1]).unwrap();
    assert_eq!(pair.carrier.grant_up_to(100), 25);
    pair.carrier.take_back(40);
    assert!(!pair.carrier.put(b"m"));
    assert_eq!(pair.carrier.grant_up_to(100), 40);
    // What comes for nobody counts as read.
    pair.carrier.take(&mut Vec::new());
    drop(pair.stream);
    assert!(pair.carrier.put(b"late"));
    assert_eq!(pair.carrier.take(&mut Vec::new()).read, 75 + 4);
}

#[test]
fn the_ends_of_either_side_are_those_of_a_socket() {
    let mut pair = Pair::new();
    assert!(pair.carrier.put(b"last"));
    pair.carrier.end_input();
    let ended = Readiness::READABLE.and(Readiness::READ_CLOSED);
    assert_eq!(pair.told(), [(INNER, ended)]);
    assert_eq!(pair.read().unwrap(), ReadOutcome::Drained(4));
    assert_eq!(pair.read().unwrap(), ReadOutcome::Closed);
    pair.stream.write(b"still").unwrap();
    pair.stream.shutdown_write().unwrap();
    assert!(pair.stream.write(b"more").is_err());
    let mut output = Vec::new();
    let work = pair.carrier.take(&mut output);
    assert_eq!(
        (work.end, output.as_slice()),
        (Some(CarriedEnd::Finished), &b"still"[..])
    );
    assert_eq!(pair.carrier.take(&mut output).end, None, "it is told once");
    drop(pair.stream);
    assert_eq!(pair.carrier.take(&mut output).end, Some(CarriedEnd::Gone));

    let mut failing = Pair::new();
    assert!(failing.carrier.put(b"lost"));
    drop(failing.carrier);
    assert_eq!(
        told(&mut failing.event_loop),
        [(INNER, Readiness::READABLE.and(Readiness::HANGUP))]
    );
    let mut buffer = [0; 8];
    let read = failing.stream.read(&mut buffer).unwrap_err();
    assert_eq!(read.kind(), io::ErrorKind::ConnectionReset);
    assert!(failing.stream.write(b"to nobody").is_err());

    let mut resetting = Pair::new();
    resetting.stream.write(b"not sent").unwrap();
    resetting.stream.reset_on_drop();
    drop(resetting.stream);
    let work = resetting.carrier.take(&mut output);
    assert_eq!(work.end, Some(CarriedEnd::Reset));
    assert_eq!(output, b"still", "what was written before it is not sent");
}

#[test]
fn it_has_no_descriptor_to_give_away() {
    let pair = Pair::new();
    assert!(pair.stream.is_carried() && !pair.stream.can_move());
    assert!(pair.stream.is_numbered_below(0));
    assert!(pair.carrier.stream([None, None]).is_none(), "there is one");
    let error = pair.stream.into_blocking().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
}

#[test]
fn addresses_are_those_of_the_connection() {
    let mut event_loop = EventLoop::<()>::new().unwrap();
    let carrier = event_loop.context().carry(OUTER);
    let peer = ([192, 0, 2, 1], 7).into();
    let stream = carrier.stream([Some(peer), None]).unwrap();
    assert_eq!(stream.peer_address().unwrap(), Some(peer));
    assert_eq!(stream.local_address().unwrap(), None);
    assert!(stream.connect_error().unwrap().is_none());
}

#[test]
fn a_stream_that_ends_on_another_thread_is_told_of_on_its_loop() {
    let mut pair = Pair::new();
    let stream = pair.stream;
    std::thread::spawn(move || drop(stream)).join().unwrap();
    assert_eq!(told(&mut pair.event_loop), [(OUTER, Readiness::WRITABLE)]);
    // Others of the same table have theirs, and places are used again.
    let mut loops: Vec<_> = (0..130).map(|_| Pair::new()).collect();
    for other in &loops {
        assert!(other.carrier.put(b"news"));
    }
    for other in &mut loops {
        assert_eq!(other.told(), [(INNER, Readiness::READABLE)]);
        assert_eq!(other.told(), []);
    }
}
