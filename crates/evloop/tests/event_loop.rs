//! The turn, seen by a driver: messages, deadlines, readiness and signals.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dwell_evloop::{
    Context, Driver, EventLoop, ListenOptions, Listener, ReadOutcome, Readiness, Slab, Stream,
    Token, bind_group, bind_unix,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const LISTENER: u8 = 0;
const CONNECTION: u8 = 1;
const TIMER: u8 = 2;
const LONG: Option<Duration> = Some(Duration::from_secs(20));

/// Echoes what it reads and writes down what it was told.
struct Echo {
    listener: Listener,
    connections: Slab<Stream>,
    expired: Vec<(Token, Instant)>,
    messages: Vec<u32>,
    signals: Vec<i32>,
    rearm: Option<Token>,
    closed: usize,
    peers: Vec<Option<SocketAddr>>,
}

impl Echo {
    fn new(event_loop: &mut EventLoop<u32>) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut group = bind_group(any, 1, ListenOptions::default()).unwrap();
        Self::on(event_loop, group.remove(0))
    }

    fn on(event_loop: &mut EventLoop<u32>, mut listener: Listener) -> Self {
        listener
            .register(event_loop.context(), Token::new(LISTENER, 0, 0))
            .unwrap();
        Self {
            listener,
            connections: Slab::new(CONNECTION, 100),
            expired: Vec::new(),
            messages: Vec::new(),
            signals: Vec::new(),
            rearm: None,
            closed: 0,
            peers: Vec::new(),
        }
    }

    fn echo(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        let Some(stream) = self.connections.get_mut(token) else {
            return;
        };
        let mut input = context.take_input();
        loop {
            match stream.read(&mut input).unwrap() {
                ReadOutcome::More(read) => stream.write(&input[..read]).unwrap(),
                ReadOutcome::Drained(read) => {
                    stream.write(&input[..read]).unwrap();
                    if !readiness.is_read_closed() {
                        break;
                    }
                }
                ReadOutcome::WouldBlock => break,
                ReadOutcome::Closed => {
                    self.connections.remove(token);
                    self.closed += 1;
                    break;
                }
            }
        }
        context.return_input(input);
    }
}

impl Driver for Echo {
    type Message = u32;

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        match token.kind() {
            LISTENER => {
                let (connections, peers) = (&mut self.connections, &mut self.peers);
                self.listener
                    .accept_batch(context, token, |context, stream, peer| {
                        peers.push(peer);
                        let token = connections.insert(stream).unwrap();
                        let stream = connections.get_mut(token).unwrap();
                        context.register(stream, token).unwrap();
                    });
            }
            _ => self.echo(context, token, readiness),
        }
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.expired.push((token, context.now()));
        if self.rearm == Some(token) {
            context.arm(token, Duration::ZERO);
        }
    }

    fn message(&mut self, _: &mut Context, message: u32) {
        self.messages.push(message);
    }

    fn signal(&mut self, _: &mut Context, signal: i32) {
        self.signals.push(signal);
    }
}

fn fixture() -> (EventLoop<u32>, Echo) {
    let mut event_loop = EventLoop::new().unwrap();
    let echo = Echo::new(&mut event_loop);
    (event_loop, echo)
}

#[test]
fn a_peer_that_writes_and_closes_at_once_gets_its_echo_and_is_forgotten() {
    let (mut event_loop, mut echo) = fixture();
    let mut client = TcpStream::connect(echo.listener.address().unwrap()).unwrap();
    client.write_all(b"hello").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    while echo.closed == 0 {
        event_loop.turn(&mut echo, LONG).unwrap();
    }
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "hello");
    assert!(echo.connections.is_empty());
}

#[test]
fn clients_of_a_unix_socket_are_served_and_its_file_goes_when_it_closes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = bind_unix(&path, ListenOptions::default()).unwrap();
    let mut event_loop = EventLoop::new().unwrap();
    let mut echo = Echo::on(&mut event_loop, listener);
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"hello").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    while echo.closed == 0 {
        event_loop.turn(&mut echo, LONG).unwrap();
    }
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "hello");
    assert_eq!(echo.peers, [None]);
    echo.listener.close(event_loop.context());
    assert!(!path.exists());
}

#[test]
fn messages_from_threads_all_arrive_in_the_order_of_each() {
    let (mut event_loop, mut echo) = fixture();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let sender = event_loop.sender();
            std::thread::spawn(move || {
                for n in 0..1000 {
                    sender.send(thread * 1000 + n).unwrap();
                }
            })
        })
        .collect();
    while echo.messages.len() < 4000 {
        event_loop.turn(&mut echo, LONG).unwrap();
    }
    for thread in threads {
        thread.join().unwrap();
    }
    for thread in 0..4 {
        let own: Vec<_> = echo
            .messages
            .iter()
            .filter(|n| **n / 1000 == thread)
            .collect();
        assert!(own.is_sorted() && own.len() == 1000);
    }
}

#[test]
fn a_deadline_ends_the_wait_and_is_never_early() {
    let (mut event_loop, mut echo) = fixture();
    let token = Token::new(TIMER, 3, 7);
    for milliseconds in [0, 1, 9, 10, 11, 25] {
        echo.expired.clear();
        // A turn that does nothing brings the cached reading up to date.
        event_loop.turn(&mut echo, Some(Duration::ZERO)).unwrap();
        let timeout = Duration::from_millis(milliseconds);
        let armed = Instant::now();
        event_loop.turn(&mut echo, Some(Duration::ZERO)).unwrap();
        event_loop.context().arm(token, timeout);
        while echo.expired.is_empty() {
            event_loop.turn(&mut echo, LONG).unwrap();
        }
        let (seen, at) = echo.expired[0];
        assert_eq!(seen, token);
        assert!(
            at.duration_since(armed) >= timeout,
            "{milliseconds} ms came early"
        );
        assert!(!event_loop.context().is_armed(token));
    }
}

#[test]
fn a_loop_that_was_away_knows_the_time_again() {
    let (mut event_loop, mut echo) = fixture();
    let before = Instant::now();
    assert!(event_loop.context().now() >= before);
    let token = Token::new(TIMER, 0, 0);
    event_loop.context().arm(token, Duration::from_millis(20));
    while echo.expired.is_empty() {
        event_loop.turn(&mut echo, LONG).unwrap();
    }
    assert!(echo.expired[0].1.duration_since(before) >= Duration::from_millis(20));
}

#[test]
fn a_deadline_rearmed_by_its_own_expiry_waits_for_a_later_turn() {
    let (mut event_loop, mut echo) = fixture();
    let token = Token::new(TIMER, 0, 0);
    echo.rearm = Some(token);
    event_loop.context().arm(token, Duration::ZERO);
    while echo.expired.is_empty() {
        event_loop.turn(&mut echo, LONG).unwrap();
    }
    assert_eq!(echo.expired.len(), 1, "one turn expires a deadline once");
    event_loop.context().disarm(token);
    event_loop.turn(&mut echo, Some(Duration::ZERO)).unwrap();
    assert_eq!(echo.expired.len(), 1);
}

#[test]
fn a_watched_signal_is_told_and_ends_the_wait() {
    let (mut event_loop, mut echo) = fixture();
    event_loop
        .watch_signal(signal_hook::consts::SIGUSR1)
        .unwrap();
    signal_hook::low_level::raise(signal_hook::consts::SIGUSR1).unwrap();
    while echo.signals.is_empty() {
        event_loop.turn(&mut echo, LONG).unwrap();
    }
    assert_eq!(echo.signals, [signal_hook::consts::SIGUSR1]);
}

#[test]
fn what_is_put_back_is_delivered_once_in_the_next_turn() {
    struct PutBack(u32);
    impl Driver for PutBack {
        type Message = ();
        fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
            self.0 += 1;
            if self.0 < 3 {
                context.again(token, readiness);
            }
        }
        fn expired(&mut self, _: &mut Context, _: Token) {}
        fn message(&mut self, _: &mut Context, (): ()) {}
    }
    let mut event_loop = EventLoop::new().unwrap();
    let mut driver = PutBack(0);
    event_loop
        .context()
        .again(Token::new(1, 0, 0), Readiness::READABLE);
    for seen in 1..=3 {
        event_loop.turn(&mut driver, LONG).unwrap();
        assert_eq!(driver.0, seen);
    }
    event_loop.turn(&mut driver, Some(Duration::ZERO)).unwrap();
    assert_eq!(driver.0, 3);
}
