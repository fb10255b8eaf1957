//! One loop of the edge on a simulated network, turned by the test: it opens no socket, and its
//! time passes only when it waits.

use crate::config;
use crate::event_loop::{EdgeLoop, Message};
use crate::process::single_loop;
use dwell_evloop::EventLoop;
use dwell_store::{Expiry, Store};
use dwell_testkit::Script;
use dwell_testkit::sim::{Link, SimListener, SimMemcached, SimNet, SimScripted, SimStream};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Simulated time for things that are not expected to take any.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Turns for things that are not expected to take many.
const TURNS_MAX: usize = 100_000;
/// The seed of the orders in which the tests run.
const SEED: u64 = 1;

/// The network of the test: it begins with the first thing that needs it, and ends with the last.
fn network() -> Rc<SimNet> {
    network_of(SEED)
}

fn network_of(seed: u64) -> Rc<SimNet> {
    thread_local! {
        static NETWORK: RefCell<Weak<SimNet>> = const { RefCell::new(Weak::new()) };
    }
    NETWORK.with_borrow_mut(|known| {
        known.upgrade().unwrap_or_else(|| {
            let network = Rc::new(SimNet::new(seed));
            *known = Rc::downgrade(&network);
            network
        })
    })
}

/// Begins a network whose orders this seed chooses, for a test that needs no other.
pub(super) fn rough_network(seed: u64) -> Rc<SimNet> {
    let network = network_of(seed);
    network.set_link(Link::rough());
    network
}

/// A memcached.
pub(super) fn memcached() -> SimMemcached {
    SimMemcached::start(&network())
}

/// A memcached that counts no cas uniques.
pub(super) fn memcached_without_cas() -> SimMemcached {
    SimMemcached::start_without_cas(&network())
}

/// A server whose connections follow scripts.
pub(super) fn scripted<const COUNT: usize>(scripts: [Script; COUNT]) -> SimScripted {
    SimScripted::start(&network(), scripts)
}

pub(super) struct Edge {
    pub(super) event_loop: EventLoop<Message>,
    pub(super) driver: EdgeLoop,
    address: String,
    network: Rc<SimNet>,
}

impl Edge {
    /// An edge of one loop; `options` are lines of its configuration file.
    pub(super) fn new(options: &str) -> Self {
        let network = network();
        // One that nothing listens on any more.
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = network.listen(any).unwrap();
        let address = listener.address().to_string();
        drop(listener);
        let text = format!(
            "server.listen = \"{address}\"\nserver.admin = \"off\"\nserver.pollers = 1\n\
             store.listen = \"off\"\n{options}\n"
        );
        let config = config::parse("test.toml", &text, &[])
            .unwrap_or_else(|error| panic!("{}", error.render(false)));
        let (event_loop, driver) = single_loop(config).unwrap();
        Self {
            event_loop,
            driver,
            address,
            network,
        }
    }

    /// An edge before the application that `app` is.
    pub(super) fn before(app: &App, options: &str) -> Self {
        Self::new(&format!(
            "upstream.url = \"http://{}\"\n{options}",
            app.address()
        ))
    }

    /// Simulated time since the test began.
    pub(super) fn elapsed(&self) -> Duration {
        self.network.elapsed()
    }

    /// The time of the loop.
    pub(super) fn now(&mut self) -> Instant {
        self.event_loop.context().now()
    }

    pub(super) fn turn(&mut self) {
        let wait = Some(Duration::from_millis(5));
        self.event_loop.turn(&mut self.driver, wait).unwrap();
        // What was written comes to its clients, and time passes for those that never wait.
        self.network.pass(Duration::from_millis(1));
    }

    #[track_caller]
    pub(super) fn turn_until(&mut self, mut is_so: impl FnMut(&mut EdgeLoop) -> bool) {
        let end = self.elapsed() + PATIENCE;
        let mut turns = 0;
        while !is_so(&mut self.driver) {
            let polls = &self.driver.front.polls;
            let tables = (
                &polls.waiters.polls(),
                &polls.waiters.keys,
                polls.lookups.len(),
                &polls.misses,
            );
            let is_in_time = self.elapsed() < end && turns < TURNS_MAX;
            turns += 1;
            assert!(is_in_time, "nothing came of it: {tables:?}");
            self.turn();
        }
    }

    pub(super) fn connect(&self) -> Client {
        Client {
            socket: self.network.connect(self.address.parse().unwrap()),
            received: Vec::new(),
            looked_at: None,
        }
    }

    /// A new client whose socket has room for little.
    pub(super) fn connect_with_window(&self, bytes: usize) -> Client {
        let client = self.connect();
        client.socket.set_window(bytes);
        client
    }

    /// A new client that asks; `request` is a method and a target, and perhaps field lines.
    pub(super) fn ask(&self, request: &str) -> Client {
        let mut client = self.connect();
        client.send(request);
        client
    }

    /// The status and body of the next answer to `client`.
    #[track_caller]
    pub(super) fn answer(&mut self, client: &mut Client) -> (u16, String) {
        let mut answer = None;
        self.turn_until(|_| {
            answer = client.take_answer();
            answer.is_some()
        });
        answer.unwrap()
    }

    /// Turns until so many polls wait for a change.
    #[track_caller]
    pub(super) fn turn_until_waiting(&mut self, count: usize) {
        self.turn_until(|edge| {
            edge.front.polls.waiting() == count && edge.front.polls.lookups.is_empty()
        });
    }

    pub(super) fn store(&self) -> Arc<Store> {
        Arc::clone(self.driver.cache.store().expect("an embedded store"))
    }

    pub(super) fn set(&mut self, key: &str, value: &str) {
        let now = self.event_loop.context().steady_seconds() as u32;
        let (key, value) = (key.as_bytes(), value.as_bytes());
        self.store().set(key, 0, Expiry::NEVER, value, now);
    }

    pub(super) fn is_stored(&mut self, key: &str) -> bool {
        let now = self.event_loop.context().steady_seconds() as u32;
        self.store().get(key.as_bytes(), now).is_some()
    }

    pub(super) fn delete(&mut self, key: &str) {
        let now = self.event_loop.context().steady_seconds() as u32;
        assert!(self.store().delete(key.as_bytes(), now));
    }

    /// Turns until no table holds anything, which it must come to.
    #[track_caller]
    pub(super) fn assert_nothing_left(&mut self) {
        self.turn_until(|edge| edge.front.polls.is_empty() && edge.front.proxy.is_idle());
        if let Some(store) = self.driver.cache.store() {
            assert_eq!(store.statistics().watched_keys, 0, "watches of the store");
        }
    }
}

pub(super) struct Client {
    pub(super) socket: SimStream,
    pub(super) received: Vec<u8>,
    /// Bytes that were no whole answer.
    looked_at: Option<usize>,
}

impl Client {
    /// Leaves with a reset; a client that only closes may still be reading.
    pub(super) fn reset(self) {
        self.socket.reset();
    }

    pub(super) fn send(&mut self, request: &str) {
        let (line, fields) = request.split_once('\n').unwrap_or((request, ""));
        let text = format!("{line} HTTP/1.1\r\nHost: edge\r\n{fields}\r\n");
        self.socket.write_all(text.as_bytes()).unwrap();
    }

    /// Takes what has come; true at the end of the stream.
    pub(super) fn receive(&mut self) -> bool {
        !self.socket.read_all(&mut self.received)
    }

    /// The next answer, if it is all here; an end of the stream is an answer of status 0.
    pub(super) fn take_answer(&mut self) -> Option<(u16, String)> {
        let has_ended = self.receive();
        let is_known = self.looked_at.replace(self.received.len()) == Some(self.received.len());
        if is_known && !has_ended {
            return None;
        }
        let text = std::str::from_utf8(&self.received).unwrap();
        let Some((head, rest)) = text.split_once("\r\n\r\n") else {
            return has_ended.then(|| (0, text.to_owned()));
        };
        let length = |line: &str| line.strip_prefix("Content-Length: ")?.parse().ok();
        let length: usize = head.split("\r\n").find_map(length).unwrap_or(0);
        let body = rest.get(..length)?.to_owned();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let whole = head.len() + 4 + length;
        self.received.drain(..whole);
        self.looked_at = None;
        Some((status, body))
    }
}

/// The cursor of a value, for `?since=`.
pub(super) fn cursor(value: &str) -> String {
    let text = crate::cursor::Cursor::of(value.as_bytes(), 0).text();
    String::from_utf8(text.bare().to_vec()).unwrap()
}

/// An application that answers what the test says.
pub(super) struct App {
    listener: SimListener,
    _network: Rc<SimNet>,
}

/// One connection to it.
pub(super) struct Exchange(SimStream);

impl App {
    pub(super) fn start() -> Self {
        let network = network();
        let any = "127.0.0.1:0".parse().unwrap();
        Self {
            listener: network.listen(any).unwrap(),
            _network: network,
        }
    }

    pub(super) fn address(&self) -> impl std::fmt::Display {
        self.listener.address()
    }

    /// The next connection, and the request line that comes on it.
    #[track_caller]
    pub(super) fn accept(&self, edge: &mut Edge) -> (Exchange, String) {
        let mut exchange = self.connection(edge);
        let line = exchange.request(edge);
        (exchange, line)
    }

    /// The next connection.
    #[track_caller]
    pub(super) fn connection(&self, edge: &mut Edge) -> Exchange {
        let mut accepted = None;
        edge.turn_until(|_| {
            accepted = self.listener.accept();
            accepted.is_some()
        });
        Exchange(accepted.unwrap())
    }
}

impl Exchange {
    /// The line of the next request on this connection.
    #[track_caller]
    pub(super) fn request(&mut self, edge: &mut Edge) -> String {
        let text = self.read_until(edge, "\r\n\r\n");
        text.lines().next().unwrap().to_owned()
    }

    /// What comes on this connection, at least until that has come.
    #[track_caller]
    pub(super) fn read_until(&mut self, edge: &mut Edge, end: &str) -> String {
        let mut text = String::new();
        edge.turn_until(|_| {
            let mut buffer = [0; 4096];
            let read = self.0.read(&mut buffer).unwrap_or(0);
            text.push_str(&String::from_utf8_lossy(&buffer[..read]));
            text.contains(end)
        });
        text
    }

    /// Sends a part of an answer, as it is.
    pub(super) fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    /// Answers with a status, field lines and a body.
    pub(super) fn answer(&mut self, status: u16, fields: &str, body: &str) {
        let length = body.len();
        let text = format!("HTTP/1.1 {status} X\r\n{fields}Content-Length: {length}\r\n\r\n{body}");
        self.0.write_all(text.as_bytes()).unwrap();
    }
}
