use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use dwell_evloop::{
    Context, Driver, EventLoop, ListenOptions, Readiness, Stream, Token, bind_group,
};

use super::*;
use crate::connection::Connection;
use crate::{Kinds, StoreServer};

/// A server and its loop, turned by the test itself.
pub(super) struct Rig {
    event_loop: EventLoop<()>,
    driver: Server,
    pub(super) service: Arc<StoreService>,
    pub(super) address: SocketAddr,
}

struct Server(StoreServer);

impl Driver for Server {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.0.ready(context, token, readiness);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.0.expired(context, token);
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}

impl Rig {
    pub(super) fn new(limits: StoreServerLimits) -> Self {
        let mut event_loop = EventLoop::new().unwrap();
        let service = service_with(limits);
        let mut server = StoreServer::new(
            Kinds {
                listener: 1,
                connection: 2,
            },
            Arc::clone(&service),
            Arc::clone(&service.loops[0]),
        );
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = bind_group(any, 1, ListenOptions::default())
            .unwrap()
            .remove(0);
        let address = server
            .listen(event_loop.context(), listener)
            .unwrap()
            .unwrap();
        Self {
            event_loop,
            driver: Server(server),
            service,
            address,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// A client whose socket takes some hundred KiB, whatever the system makes of others.
    fn connect_narrow(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let stream = Stream::from_descriptor(ours.into()).unwrap();
        let context = self.event_loop.context();
        self.driver.0.adopt(context, stream, Vec::new(), false);
        theirs
    }

    /// The only connection that is open.
    fn only(&mut self) -> (Token, &mut Connection) {
        let connections = &mut self.driver.0.connections;
        let tokens: Vec<_> = connections.tokens().collect();
        let [token] = tokens[..] else {
            panic!("{tokens:?}")
        };
        (token, connections.get_mut(token).unwrap())
    }

    /// The bytes that wait for the only client, and those that were written for it so far.
    fn unread(&mut self) -> (usize, u64) {
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let written = self.service.counters.bytes_written.load(relaxed);
        (self.only().1.peer.stream.queued_bytes(), written)
    }

    /// Takes the deadline of the only connection away, so that it is seen when it begins again.
    fn disarm(&mut self) {
        let (token, _) = self.only();
        self.event_loop.context().disarm(token);
        assert_eq!(self.armed(), 0);
    }

    /// Turns the loop once, for a moment at most.
    fn turn(&mut self) {
        self.event_loop
            .turn(&mut self.driver, Some(Duration::from_millis(2)))
            .unwrap();
    }

    /// Turns for ever.
    pub(super) fn run(&mut self) {
        self.event_loop.run(&mut self.driver).unwrap();
    }

    /// Turns until `done` says so.
    fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let give_up = Instant::now() + Duration::from_secs(30);
        while !done(self) {
            assert!(Instant::now() < give_up, "nothing happens any more");
            self.turn();
        }
    }

    /// Turns until the loop finds nothing to do.
    fn until_quiet(&mut self) {
        let read = |rig: &Self| {
            let counters = &rig.service.counters;
            let relaxed = std::sync::atomic::Ordering::Relaxed;
            (
                counters.bytes_read.load(relaxed),
                counters.bytes_written.load(relaxed),
            )
        };
        for _ in 0..1000 {
            let before = read(self);
            for _ in 0..3 {
                self.turn();
            }
            if read(self) == before {
                return;
            }
        }
        panic!("the loop does not come to rest");
    }

    /// Sends `input` and reads until the replies end with `end`; nothing is left to read then.
    fn exchange(&mut self, stream: &mut (impl Read + Write), input: &[u8], end: &[u8]) -> Vec<u8> {
        let mut sent = 0;
        let mut replies = Vec::new();
        self.until(|_| {
            sent += send_some(stream, &input[sent..]);
            let closed = receive_some(stream, &mut replies);
            assert!(
                !closed || end.is_empty(),
                "closed after {}",
                replies.escape_ascii()
            );
            closed || (sent == input.len() && !end.is_empty() && replies.ends_with(end))
        });
        replies
    }

    /// Stores a value of 1 MB as `big`.
    fn store_big(&mut self, stream: &mut (impl Read + Write)) {
        let data = vec![b'x'; 1_000_000];
        let set = [b"set big 0 0 1000000\r\n", &data[..], b"\r\n"].concat();
        self.exchange(stream, &set, b"STORED\r\n");
    }

    /// Reads until the server closes.
    fn rest(&mut self, stream: &mut TcpStream) -> Vec<u8> {
        self.exchange(stream, b"", b"")
    }

    fn open(&self) -> usize {
        self.driver.0.connections()
    }

    fn armed(&mut self) -> usize {
        self.event_loop.context().armed()
    }
}

fn send_some(stream: &mut impl Write, bytes: &[u8]) -> usize {
    if bytes.is_empty() {
        return 0;
    }
    match stream.write(bytes) {
        Ok(sent) => sent,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    }
}

/// Whether the stream has ended.
fn receive_some(stream: &mut impl Read, replies: &mut Vec<u8>) -> bool {
    let mut buffer = vec![0; 65536];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(read) => replies.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_pipeline_is_answered_in_order_over_several_turns() {
    let mut rig = Rig::new(StoreServerLimits::default());
    let mut stream = rig.connect();
    let mut input = Vec::new();
    let mut expected = Vec::new();
    for n in 0..5000 {
        input.extend_from_slice(format!("set k{n} 0 0 4\r\n{n:04}\r\nget k{n}\r\n").as_bytes());
        let reply = format!("STORED\r\nVALUE k{n} 0 4\r\n{n:04}\r\nEND\r\n");
        expected.extend_from_slice(reply.as_bytes());
    }
    input.extend_from_slice(b"mn\r\n");
    expected.extend_from_slice(b"MN\r\n");
    let replies = rig.exchange(&mut stream, &input, b"MN\r\n");
    assert!(replies == expected);
}

#[test]
fn a_command_may_come_byte_by_byte() {
    let mut rig = Rig::new(StoreServerLimits::default());
    let mut stream = rig.connect();
    let (last, first) = b"set a 0 0 3\r\nabc\r\nget a\r\n".split_last().unwrap();
    for byte in first {
        stream.write_all(&[*byte]).unwrap();
        rig.turn();
    }
    let replies = rig.exchange(&mut stream, &[*last], b"END\r\n");
    assert_eq!(replies, b"STORED\r\nVALUE a 0 3\r\nabc\r\nEND\r\n");
}

#[test]
fn the_largest_value_goes_in_and_comes_out() {
    let mut rig = Rig::new(StoreServerLimits::default());
    let mut stream = rig.connect();
    let data = vec![b'\n'; 1_048_516];
    let set = [b"set z 0 0 1048516\r\n", &data[..], b"\r\n"].concat();
    assert_eq!(
        rig.exchange(&mut stream, &set, b"STORED\r\n"),
        b"STORED\r\n"
    );
    let replies = rig.exchange(&mut stream, b"get z\r\n", b"END\r\n");
    assert!(replies == [b"VALUE z 0 1048516\r\n", &data[..], b"\r\nEND\r\n"].concat());
}

#[test]
fn who_does_not_read_is_not_served_any_further() {
    let mut rig = Rig::new(StoreServerLimits::default());
    let mut stream = rig.connect();
    let data = vec![b'x'; 500_000];
    let set = [b"set big 0 0 500000\r\n", &data[..], b"\r\n"].concat();
    rig.exchange(&mut stream, &set, b"STORED\r\n");
    let gets = 200;
    stream.write_all(&b"get big\r\n".repeat(gets)).unwrap();
    rig.until_quiet();
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let written = rig.service.counters.bytes_written.load(relaxed) as usize;
    // What the kernel holds for both sides, and one value in the queue.
    assert!(written < 20_000_000, "{written} of {}", gets * data.len());
    assert_eq!(rig.armed(), 1, "its time is limited");
    // Others are served meanwhile.
    let mut other = rig.connect();
    assert_eq!(rig.exchange(&mut other, b"mn\r\n", b"MN\r\n"), b"MN\r\n");
    // And when it reads at last, nothing is missing.
    let replies = rig.exchange(&mut stream, b"mn\r\n", b"MN\r\n");
    let value = [b"VALUE big 0 500000\r\n", &data[..], b"\r\nEND\r\n"].concat();
    assert_eq!(replies.len(), gets * value.len() + 4);
    assert!(
        replies
            .chunks(value.len())
            .take(gets)
            .all(|reply| reply == value)
    );
    assert_eq!(rig.armed(), 0);
}

#[test]
fn who_takes_too_little_is_given_no_more_time() {
    // Within a timeout 400,000 bytes are to be taken, of which nothing is seen but by taking them.
    let mut rig = Rig::new(StoreServerLimits {
        stall_timeout: Duration::from_secs(100),
        write_rate_min: 4000,
        ..StoreServerLimits::default()
    });
    let mut stream = rig.connect_narrow();
    rig.store_big(&mut stream);
    stream.write_all(b"get big\r\n").unwrap();
    rig.until(|rig| rig.armed() == 1);
    rig.until_quiet();
    let (waiting, _) = rig.unread();
    rig.disarm();
    // It takes a drip at a time, until its socket has taken so much.
    let mut take = |rig: &mut Rig, bytes: usize| {
        rig.until(|rig| {
            let _ = stream.read(&mut [0; 4096]);
            waiting - rig.unread().0 >= bytes
        });
        waiting - rig.unread().0
    };
    for bytes in [1, 100_000] {
        let taken = take(&mut rig, bytes);
        assert!(taken < 400_000, "{taken}");
        assert_eq!(rig.armed(), 0, "{taken} bytes are too few");
    }
    let taken = take(&mut rig, 400_000);
    assert!(taken < waiting, "{taken}");
    assert_eq!(rig.armed(), 1, "{taken} bytes are enough");
}

#[test]
fn who_takes_all_that_waits_is_given_time_for_what_follows() {
    let mut rig = Rig::new(StoreServerLimits {
        write_rate_min: u32::MAX,
        ..StoreServerLimits::default()
    });
    let mut stream = rig.connect_narrow();
    rig.store_big(&mut stream);
    stream.write_all(&b"get big\r\n".repeat(3)).unwrap();
    rig.until(|rig| rig.armed() == 1);
    rig.until_quiet();
    for _ in 0..2 {
        rig.disarm();
        let (_, written) = rig.unread();
        rig.until(|rig| {
            let _ = stream.read(&mut [0; 4096]);
            rig.unread().1 > written
        });
        assert!(rig.unread().0 > 0, "the next reply waits");
        assert_eq!(rig.armed(), 1);
    }
}

#[test]
fn one_connection_too_many_is_told_so() {
    let limits = StoreServerLimits {
        connections_max: 2,
        ..StoreServerLimits::default()
    };
    let mut rig = Rig::new(limits);
    let mut first = rig.connect();
    let mut second = rig.connect();
    rig.exchange(&mut first, b"mn\r\n", b"MN\r\n");
    rig.exchange(&mut second, b"mn\r\n", b"MN\r\n");
    let mut third = rig.connect();
    assert_eq!(rig.rest(&mut third), b"ERROR Too many open connections\r\n");
    let stats = rig.exchange(&mut first, b"stats\r\n", b"END\r\n");
    let stats = String::from_utf8(stats).unwrap();
    assert!(stats.contains("STAT curr_connections 2\r\n"), "{stats}");
    assert!(stats.contains("STAT rejected_connections 1\r\n"), "{stats}");
    drop(second);
    rig.until(|rig| rig.open() == 1);
    let mut fourth = rig.connect();
    assert_eq!(rig.exchange(&mut fourth, b"mn\r\n", b"MN\r\n"), b"MN\r\n");
    assert_eq!(rig.service.connections(), 2);
}

#[test]
fn what_was_sent_before_the_end_is_executed() {
    let mut rig = Rig::new(StoreServerLimits::default());
    let mut stream = rig.connect();
    stream
        .write_all(b"set a 0 0 1 noreply\r\n1\r\nget a\r\n")
        .unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rig.rest(&mut stream), b"VALUE a 0 1\r\n1\r\nEND\r\n");
    let mut hasty = rig.connect();
    hasty
        .write_all(b"mn\r\nset b 0 0 1 noreply\r\n2\r\n")
        .unwrap();
    drop(hasty);
    rig.until(|rig| rig.open() == 0);
    let mut reader = rig.connect();
    let replies = rig.exchange(&mut reader, b"get b\r\n", b"END\r\n");
    assert_eq!(replies, b"VALUE b 0 1\r\n2\r\nEND\r\n");
}

#[test]
fn the_last_replies_reach_a_client_that_says_goodbye() {
    let mut rig = Rig::new(StoreServerLimits::default());
    let mut stream = rig.connect();
    rig.store_big(&mut stream);
    stream
        .write_all(&[&b"get big\r\n".repeat(20)[..], b"quit\r\nmn\r\n"].concat())
        .unwrap();
    rig.until_quiet();
    let replies = rig.rest(&mut stream);
    assert_eq!(
        replies.len(),
        20 * (1_000_000 + "VALUE big 0 1000000\r\n\r\nEND\r\n".len())
    );
    rig.until(|rig| rig.open() == 0);
}

#[test]
fn an_unfinished_command_has_a_deadline_and_an_idle_connection_none() {
    let mut rig = Rig::new(StoreServerLimits::default());
    let mut stream = rig.connect();
    rig.exchange(&mut stream, b"mn\r\n", b"MN\r\n");
    assert_eq!(rig.armed(), 0);
    for (begun, rest) in [
        (&b"get"[..], &b" a\r\n"[..]),
        (b"set a 0 0 5\r\nab", b"cde\r\n"),
        (b"set a 0 0 9999999 noreply\r\nab", b""),
    ] {
        stream.write_all(begun).unwrap();
        rig.until(|rig| rig.armed() == 1);
        let rest = if rest.is_empty() {
            vec![b'x'; 9_999_999]
        } else {
            rest.to_vec()
        };
        rig.exchange(&mut stream, &[&rest[..], b"mn\r\n"].concat(), b"MN\r\n");
        assert_eq!(rig.armed(), 0);
    }
}

#[test]
fn an_idle_timeout_closes_silent_connections() {
    let timeout = Some(Duration::from_millis(10));
    let limits = StoreServerLimits {
        idle_timeout: timeout,
        ..StoreServerLimits::default()
    };
    let mut rig = Rig::new(limits);
    let mut silent = rig.connect();
    assert_eq!(rig.rest(&mut silent), b"");
    let mut spoken = rig.connect();
    rig.exchange(&mut spoken, b"mn\r\n", b"MN\r\n");
    assert_eq!(rig.rest(&mut spoken), b"");
    assert_eq!(rig.service.connections(), 0);
    let mut asking = rig.connect();
    let stats = rig.exchange(&mut asking, b"stats\r\n", b"END\r\n");
    assert!(
        String::from_utf8(stats)
            .unwrap()
            .contains("STAT idle_kicks 2\r\n")
    );
}

#[test]
fn pieces_of_a_line_are_no_command() {
    let limits = StoreServerLimits {
        idle_timeout: Some(Duration::from_millis(10)),
        ..StoreServerLimits::default()
    };
    let mut rig = Rig::new(limits);
    let mut dripping = rig.connect();
    let mut replies = Vec::new();
    let (began, mut sent) = (Instant::now(), 0);
    rig.until(|_| {
        // A byte each 20 ms, so that the line stays far from its limit.
        if began.elapsed().as_millis() / 20 > sent {
            sent += 1;
            send_some(&mut dripping, b"x");
        }
        receive_some(&mut dripping, &mut replies)
    });
    assert_eq!(replies, b"");
    let counters = &rig.service.counters;
    assert_eq!(
        counters
            .idle_kicks
            .load(std::sync::atomic::Ordering::Relaxed),
        1
    );
    // A value has as long as it takes, while it moves.
    let mut storing = rig.connect();
    rig.exchange(&mut storing, b"mn\r\n", b"MN\r\n");
    storing.write_all(b"set a 0 0 3\r\na").unwrap();
    rig.until(|rig| rig.driver.0.tail_bytes() > 0);
    let record = |rig: &Rig| rig.service.records().values().next().unwrap().state();
    rig.until(|rig| record(rig) == "conn_nread");
    let limits = rig.service.limits.clone();
    for passed in [0, 2, 1000] {
        let seconds = rig.event_loop.context().steady_seconds() as Seconds + passed;
        let moment = Moment {
            steady: seconds,
            unix: seconds,
        };
        let timeout = rig.only().1.timeout(&limits, moment);
        assert_eq!(timeout, Some(limits.stall_timeout));
    }
    rig.exchange(&mut storing, b"bc\r\n", b"STORED\r\n");
}

#[test]
fn the_states_of_connections_are_shown() {
    let mut rig = Rig::new(StoreServerLimits::default());
    let mut streams: Vec<_> = (0..5).map(|_| rig.connect()).collect();
    let [waiting, storing, refused, unread, asking] = &mut streams[..] else {
        unreachable!()
    };
    for stream in [&mut *waiting, &mut *storing, &mut *refused, &mut *unread] {
        rig.exchange(stream, b"mn\r\n", b"MN\r\n");
    }
    storing.write_all(b"set a 0 0 6\r\nabc").unwrap();
    refused.write_all(b"set a 0 0 2000000\r\nabc").unwrap();
    rig.until_quiet();
    let shown = rig.exchange(asking, b"stats conns\r\n", b"END\r\n");
    let shown = String::from_utf8(shown).unwrap();
    let states: Vec<_> = shown
        .lines()
        .filter_map(|line| line.split_once(":state "))
        .collect();
    let states: Vec<_> = states.into_iter().map(|(_, state)| state).collect();
    let expected = [
        "conn_read",
        "conn_nread",
        "conn_swallow",
        "conn_read",
        "conn_parse_cmd",
    ];
    assert_eq!(states, expected, "{shown}");
}

#[test]
fn draining_lets_what_has_begun_end() {
    let mut rig = Rig::new(StoreServerLimits::default());
    let mut idle = rig.connect();
    let mut busy = rig.connect();
    rig.exchange(&mut idle, b"mn\r\n", b"MN\r\n");
    busy.write_all(b"set a 0 0 3\r\na").unwrap();
    rig.until(|rig| rig.armed() == 1);
    let Rig {
        event_loop, driver, ..
    } = &mut rig;
    driver.0.drain(event_loop.context());
    assert_eq!(rig.open(), 1);
    assert_eq!(rig.rest(&mut idle), b"");
    assert_eq!(
        TcpStream::connect(rig.address).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    busy.write_all(b"bc\r\n").unwrap();
    assert_eq!(rig.rest(&mut busy), b"STORED\r\n");
    assert_eq!(rig.open(), 0);
    let Rig {
        event_loop, driver, ..
    } = &mut rig;
    driver.0.close_all(event_loop.context());
    assert_eq!(rig.service.connections(), 0);
}

#[test]
fn memory_of_a_finished_command_is_given_back() {
    let mut rig = Rig::new(StoreServerLimits::default());
    let mut stream = rig.connect();
    let data = vec![b'x'; 900_000];
    let set = [b"set z 0 0 900000\r\n", &data[..], b"\r\nget "].concat();
    rig.exchange(&mut stream, &set, b"STORED\r\n");
    assert!(
        rig.driver.0.tail_bytes() < 100,
        "{}",
        rig.driver.0.tail_bytes()
    );
    rig.exchange(&mut stream, b"z2\r\n", b"END\r\n");
    assert_eq!(rig.driver.0.tail_bytes(), 0);
}

#[test]
fn an_idle_connection_is_small() {
    // The table's entry is all it owns: its tail and its queue are empty.
    let bytes = StoreServer::connection_bytes();
    assert!(bytes <= 192, "{bytes}");
}

#[test]
fn clients_for_whom_there_is_no_room_wait_and_are_closed_by_a_drain() {
    let mut rig = Rig::new(StoreServerLimits::default());
    let mut clients: Vec<_> = (0..3).map(|_| rig.connect_narrow()).collect();
    rig.until_quiet();
    let (context, server) = (rig.event_loop.context(), &mut rig.driver.0);
    server.hand_over(context);
    let counts = [0, 1].map(|count_max| server.take_leaving(context, count_max).len());
    assert_eq!(counts, [0, 1]);
    // Commands that come meanwhile are executed by nobody here, and make no second place.
    for command in [&b"set a 0 0 1\r\n"[..], b"1\r\n"] {
        clients.iter_mut().skip(1).for_each(|client| {
            client.write_all(command).unwrap();
        });
        rig.until_quiet();
    }
    let server = &mut rig.driver.0;
    assert_eq!((server.connections(), server.leaving.len()), (2, 2));
    server.drain(rig.event_loop.context());
    assert!(server.is_left() && server.leaving.is_empty());
    assert!(rig.service.store().get(b"a", NOW).is_none());
    for client in &mut clients {
        // Where commands were not read, the system tells so.
        let ended = client.read(&mut [0]);
        assert!(!matches!(&ended, Err(error) if error.kind() == ErrorKind::WouldBlock));
    }
}
