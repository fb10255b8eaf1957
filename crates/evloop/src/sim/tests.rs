//! Loops, clients and servers on simulated networks.

use super::{Link, Peer, SimNet, SimStream, Trace};
use crate::{
    Context, Driver, EventLoop, ListenOptions, Listener, ReadOutcome, Readiness, Slab, Stream,
    Token, bind_group,
};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

const LISTENER: Token = Token::new(1, 0, 0);
const SECOND: Duration = Duration::from_secs(1);

/// Sends back what comes, and counts what it is told.
struct Echo {
    listener: Listener,
    streams: Slab<Stream>,
    expired: Vec<Token>,
    messages: Vec<u32>,
    failures: usize,
}

impl Echo {
    fn begin(event_loop: &mut EventLoop<u32>, at: SocketAddr, options: ListenOptions) -> Self {
        let mut listener = bind_group(at, 1, options).unwrap().remove(0);
        listener.register(event_loop.context(), LISTENER).unwrap();
        Self {
            listener,
            streams: Slab::new(2, 100),
            expired: Vec::new(),
            messages: Vec::new(),
            failures: 0,
        }
    }

    fn address(&self) -> SocketAddr {
        self.listener.address().unwrap()
    }

    /// Reads until nothing is there; returns false at the end of the connection.
    fn echo(stream: &mut Stream, readiness: Readiness) -> io::Result<bool> {
        let mut buffer = [0; 100];
        if readiness.is_writable() {
            stream.flush()?;
        }
        loop {
            match stream.read(&mut buffer)? {
                ReadOutcome::More(read) => stream.write(&buffer[..read])?,
                ReadOutcome::Drained(read) => {
                    stream.write(&buffer[..read])?;
                    // The end may have been told together with the bytes before it.
                    if !readiness.is_read_closed() {
                        return Ok(true);
                    }
                }
                ReadOutcome::WouldBlock => return Ok(true),
                ReadOutcome::Closed => return Ok(false),
            }
        }
    }
}

impl Driver for Echo {
    type Message = u32;

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        if token == LISTENER {
            let streams = &mut self.streams;
            self.listener
                .accept_batch(context, token, |context, stream, peer| {
                    assert!(peer.is_some());
                    let token = streams.insert(stream).unwrap();
                    context
                        .register(streams.get_mut(token).unwrap(), token)
                        .unwrap();
                });
        } else if let Some(stream) = self.streams.get_mut(token) {
            let goes_on = Self::echo(stream, readiness);
            self.failures += usize::from(goes_on.is_err());
            let has_ended = !goes_on.unwrap_or_default();
            if has_ended && (readiness.is_hangup() || stream.is_flushed()) {
                self.streams.remove(token);
            }
        }
    }

    fn expired(&mut self, _: &mut Context, token: Token) {
        self.expired.push(token);
    }

    fn message(&mut self, _: &mut Context, message: u32) {
        self.messages.push(message);
    }
}

/// A network with one echoing loop on it.
fn begin(seed: u64, link: Link, options: ListenOptions) -> (SimNet, EventLoop<u32>, Echo) {
    let network = SimNet::new(seed);
    network.set_link(link);
    let mut event_loop = EventLoop::new().unwrap();
    let any = ([127, 0, 0, 1], 0).into();
    let echo = Echo::begin(&mut event_loop, any, options);
    (network, event_loop, echo)
}

fn turn_until(
    event_loop: &mut EventLoop<u32>,
    echo: &mut Echo,
    mut is_so: impl FnMut(&mut Echo) -> bool,
) {
    for _ in 0..10_000 {
        if is_so(echo) {
            return;
        }
        event_loop.turn(echo, Some(SECOND)).unwrap();
    }
    panic!("it does not come to that: {:?}", echo.streams);
}

/// Several clients send and read over a rough link; returns what happened.
fn play(seed: u64) -> Trace {
    let (network, mut event_loop, mut echo) = begin(seed, Link::rough(), ListenOptions::default());
    let text: Vec<u8> = (0..20_000_u32).map(|number| (number % 251) as u8).collect();
    let connect = |_| (network.connect(echo.address()), 0, Vec::new());
    let mut clients: Vec<(SimStream, usize, Vec<u8>)> = (0..3).map(connect).collect();
    turn_until(&mut event_loop, &mut echo, |_| {
        for (stream, sent, received) in &mut clients {
            *sent += stream.write(&text[*sent..]).unwrap_or(0);
            if *sent == text.len() {
                stream.shutdown_write().unwrap();
            }
            stream.read_all(received);
        }
        clients.iter().all(|(stream, ..)| stream.has_ended())
    });
    for (_, _, received) in &clients {
        assert!(*received == text, "nothing is lost, and nothing overtakes");
    }
    assert_eq!((echo.streams.len(), echo.failures), (0, 0));
    network.trace()
}

#[test]
fn one_seed_is_one_order_and_another_another() {
    let traces: Vec<Trace> = (0..4).map(play).collect();
    for (seed, trace) in traces.iter().enumerate() {
        assert_eq!(play(seed as u64), *trace, "seed {seed}");
        assert!(trace.entries > 500, "{trace:?}");
        let same = traces.iter().filter(|other| *other == trace);
        assert_eq!(same.count(), 1);
    }
}

/// A trace of these bytes on a connection that is sealed, with what a test has opened of them.
fn sealed(bytes: &[u8], opened: &[u8]) -> Trace {
    let network = SimNet::new(1);
    let listener = network.listen(([127, 0, 0, 1], 80).into()).unwrap();
    let mut client = network.connect(listener.address());
    client.seal();
    client.write_all(bytes).unwrap();
    network.pass(SECOND);
    let mut server = listener.accept().unwrap();
    server.write_all(bytes).unwrap();
    client.note_opened(opened);
    network.trace()
}

#[test]
fn a_trace_has_lengths_alone_of_what_is_sealed_and_the_data_that_was_opened() {
    assert_eq!(sealed(b"abc", b"data"), sealed(b"xyz", b"data"));
    assert_ne!(sealed(b"abc", b"data"), sealed(b"abcd", b"data"));
    assert_ne!(sealed(b"abc", b"data"), sealed(b"abc", b"else"));
}

#[test]
fn a_deadline_costs_no_time() {
    let (network, mut event_loop, mut echo) = begin(1, Link::default(), ListenOptions::default());
    let day = 24 * 3600 * SECOND;
    let before = event_loop.context().now();
    event_loop.context().arm(Token::new(3, 0, 0), day);
    event_loop.sender().send(7).unwrap();
    while echo.expired.is_empty() {
        event_loop.turn(&mut echo, None).unwrap();
    }
    assert_eq!(echo.messages, [7]);
    let passed = event_loop.context().now() - before;
    assert!((day..day + SECOND).contains(&passed), "{passed:?}");
    assert!(network.elapsed() >= day);
    assert_eq!(
        crate::steady_seconds(),
        event_loop.context().steady_seconds()
    );
}

#[test]
fn a_full_window_refuses_what_does_not_fit() {
    let (network, mut event_loop, mut echo) = begin(1, Link::default(), ListenOptions::default());
    let mut client = network.connect(echo.address());
    client.set_window(1000);
    client.write_all(&[7; 5000]).unwrap();
    let is_refused = |echo: &mut Echo| {
        let mut streams = echo.streams.values_mut();
        streams.any(|stream| stream.queued_bytes() == 4000)
    };
    turn_until(&mut event_loop, &mut echo, is_refused);
    let mut received = Vec::new();
    turn_until(&mut event_loop, &mut echo, |_| {
        assert!(client.read_all(&mut received));
        received.len() == 5000
    });
    assert!(echo.streams.values_mut().all(|stream| stream.is_flushed()));
}

#[test]
fn an_end_a_reset_and_unread_bytes_are_told_as_the_system_does() {
    let (network, mut event_loop, mut echo) = begin(1, Link::default(), ListenOptions::default());
    let mut half = network.connect(echo.address());
    half.write_all(b"last").unwrap();
    half.shutdown_write().unwrap();
    half.write_all(b"more").unwrap_err();
    turn_until(&mut event_loop, &mut echo, |_| {
        half.has_ended() || {
            let mut buffer = [0; 8];
            half.read(&mut buffer)
                .is_ok_and(|read| buffer[..read] == *b"last")
        }
    });
    turn_until(&mut event_loop, &mut echo, |echo| echo.streams.is_empty());
    assert_eq!(echo.failures, 0);
    let resets: [fn(SimStream); 2] = [|client| client.reset(), drop];
    for (count, leave) in resets.into_iter().enumerate() {
        let mut client = network.connect(echo.address());
        client.write_all(b"hello").unwrap();
        // What it is sent stays unread.
        turn_until(&mut event_loop, &mut echo, |echo| echo.streams.len() == 1);
        event_loop.turn(&mut echo, Some(SECOND)).unwrap();
        network.pass(SECOND);
        leave(client);
        turn_until(&mut event_loop, &mut echo, |echo| echo.streams.is_empty());
        assert_eq!(echo.failures, count + 1);
    }
}

#[test]
fn a_machine_that_is_gone_tells_nothing() {
    let (network, mut event_loop, mut echo) = begin(1, Link::default(), ListenOptions::default());
    let client = network.connect(echo.address());
    turn_until(&mut event_loop, &mut echo, |echo| echo.streams.len() == 1);
    client.silence();
    drop(client);
    for _ in 0..10 {
        event_loop.turn(&mut echo, Some(3600 * SECOND)).unwrap();
    }
    assert_eq!(echo.streams.len(), 1);
}

#[test]
fn a_full_queue_keeps_clients_waiting_and_nobody_refuses_them() {
    let options = ListenOptions {
        backlog: 0,
        ..ListenOptions::default()
    };
    let (network, mut event_loop, mut echo) = begin(1, Link::default(), options);
    let mut clients = [0; 3].map(|_| network.connect(echo.address()));
    for client in &mut clients {
        client.write_all(b"x").unwrap();
    }
    network.pass(10 * SECOND);
    assert_eq!(echo.streams.len(), 0);
    turn_until(&mut event_loop, &mut echo, |echo| echo.streams.len() == 3);
    event_loop.turn(&mut echo, Some(SECOND)).unwrap();
    network.pass(2 * SECOND);
    event_loop.turn(&mut echo, Some(SECOND)).unwrap();
    network.pass(SECOND);
    for client in &mut clients {
        assert_eq!(client.read(&mut [0]).unwrap(), 1);
    }
    // Where nothing listens, they are.
    let nowhere = network.connect(([127, 0, 0, 1], 9).into());
    network.pass(SECOND);
    assert!(nowhere.has_ended());
}

/// Answers each line by itself.
struct Upper;

impl Peer for Upper {
    fn serve(&mut self, connection: &mut SimStream) {
        let mut bytes = Vec::new();
        let is_open = connection.read_all(&mut bytes);
        bytes.make_ascii_uppercase();
        connection.write_all(&bytes).unwrap();
        if !is_open {
            connection.close();
        }
    }
}

/// Connects and keeps what comes.
#[derive(Default)]
struct Caller {
    stream: Option<Stream>,
    outcomes: Vec<Option<io::ErrorKind>>,
    received: Vec<u8>,
    has_ended: bool,
}

impl Caller {
    fn call(&mut self, event_loop: &mut EventLoop<()>, address: SocketAddr) {
        let mut stream = Stream::connect(address).unwrap();
        let error = stream.connect_error().unwrap().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        event_loop
            .context()
            .register(&mut stream, LISTENER)
            .unwrap();
        self.stream = Some(stream);
    }
}

impl Driver for Caller {
    type Message = ();

    fn ready(&mut self, _: &mut Context, _: Token, _: Readiness) {
        let stream = self.stream.as_mut().unwrap();
        if self.received.is_empty() {
            let outcome = stream.connect_error().unwrap();
            self.outcomes.push(outcome.map(|error| error.kind()));
            if stream.write(b"hello").is_err() {
                return;
            }
        }
        let mut buffer = [0; 100];
        match stream.read(&mut buffer) {
            Ok(ReadOutcome::Drained(read)) => self.received.extend_from_slice(&buffer[..read]),
            Ok(ReadOutcome::Closed) | Err(_) => self.has_ended = true,
            Ok(_) => {}
        }
    }

    fn expired(&mut self, _: &mut Context, _: Token) {}

    fn message(&mut self, _: &mut Context, (): ()) {}
}

#[test]
fn a_loop_calls_a_peer_that_is_killed_and_comes_back() {
    let network = SimNet::new(3);
    let mut event_loop = EventLoop::new().unwrap();
    let server = network.serve(([127, 0, 0, 1], 0).into(), Upper).unwrap();
    let address = server.address();
    let mut server = Some(server);
    for is_there in [true, false, true] {
        if !is_there {
            server = None;
        } else if server.is_none() {
            server = Some(network.serve(address, Upper).unwrap());
        }
        let mut caller = Caller::default();
        caller.call(&mut event_loop, address);
        while caller.received.is_empty() && !caller.has_ended && caller.outcomes.is_empty()
            || is_there && caller.received.is_empty()
        {
            event_loop.turn(&mut caller, Some(SECOND)).unwrap();
        }
        if is_there {
            assert_eq!(caller.received, b"HELLO");
            assert_eq!(caller.outcomes[0], None);
            server = None;
            while !caller.has_ended {
                event_loop.turn(&mut caller, Some(SECOND)).unwrap();
            }
        } else {
            assert_eq!(caller.outcomes, [Some(io::ErrorKind::ConnectionRefused)]);
        }
    }
}

#[test]
fn two_loops_of_one_thread_share_an_address() {
    let network = SimNet::new(5);
    let mut loops = [EventLoop::<u32>::new().unwrap(), EventLoop::new().unwrap()];
    let any = ([127, 0, 0, 1], 0).into();
    let group = bind_group(any, 2, ListenOptions::default()).unwrap();
    let address = group[0].address().unwrap();
    bind_group(address, 1, ListenOptions::default()).unwrap_err();
    let mut echoes: Vec<Echo> = Vec::new();
    for (event_loop, mut listener) in loops.iter_mut().zip(group) {
        listener.register(event_loop.context(), LISTENER).unwrap();
        echoes.push(Echo {
            listener,
            streams: Slab::new(2, 100),
            expired: Vec::new(),
            messages: Vec::new(),
            failures: 0,
        });
    }
    let mut clients: Vec<SimStream> = (0..20).map(|_| network.connect(address)).collect();
    for client in &mut clients {
        client.write_all(b"x").unwrap();
    }
    for _ in 0..100 {
        for (event_loop, echo) in loops.iter_mut().zip(&mut echoes) {
            let wait = Some(Duration::from_millis(1));
            event_loop.turn(echo, wait).unwrap();
        }
    }
    for client in &mut clients {
        let mut received = Vec::new();
        client.read_all(&mut received);
        assert_eq!(received, b"x");
    }
    assert!(echoes.iter().all(|echo| echo.streams.len() > 2));
}

#[test]
fn what_is_left_of_a_network_is_nothing_in_the_next() {
    let first = SimNet::new(1);
    let address = ([127, 0, 0, 1], 80).into();
    let listener = first.listen(address).unwrap();
    let old = first.connect(address);
    drop(first);
    let second = SimNet::new(1);
    let _listener = second.listen(address).unwrap();
    let new = second.connect(address);
    drop((old, listener));
    second.pass(SECOND);
    assert!(!new.has_ended());
}
