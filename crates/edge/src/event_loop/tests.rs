//! The loop with all its components on a simulated network: events by the kind of their token, and
//! the end of the loop.

use super::tokens::HISTORY;
use super::{EdgeLoop, Message, Settings, kind};
use crate::config::{self, Config};
use crate::cursor::Cursor;
use crate::ops::dashboard::HISTORY_INTERVAL;
use crate::process::single_loop;
use crate::published::Published;
use dwell_evloop::{Driver, EventLoop, Lifecycle, Readiness, Token};
use dwell_store::Expiry;
use dwell_testkit::Rig;
use dwell_testkit::sim::{SimNet, SimStream};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// One loop with every listener.
struct Edge {
    event_loop: EventLoop<Message>,
    driver: EdgeLoop,
    clients: SocketAddr,
    admin: SocketAddr,
    store: SocketAddr,
    network: SimNet,
}

impl Rig for Edge {
    type Driver = EdgeLoop;

    const WAIT: Duration = Duration::from_millis(5);

    fn parts(&mut self) -> (&mut EventLoop<Message>, &mut EdgeLoop) {
        (&mut self.event_loop, &mut self.driver)
    }

    fn turn_for(&mut self, timeout: Duration) {
        let turned = self.event_loop.turn(&mut self.driver, Some(timeout));
        turned.unwrap();
        self.network.pass(Duration::from_millis(1));
    }
}

impl Edge {
    /// `options` are lines of its configuration file.
    fn new(options: &str) -> Self {
        let network = SimNet::new(1);
        let any = "127.0.0.1:0".parse().unwrap();
        let listeners = [(); 3].map(|()| network.listen(any).unwrap());
        let [clients, admin, store] = listeners.map(|listener| listener.address());
        let text = format!(
            "server.listen = \"{clients}\"\nserver.admin = \"{admin}\"\nserver.pollers = 1\n\
             store.listen = \"{store}\"\n{options}\n"
        );
        let config = config::parse("test.toml", &text, &[]);
        let config = config.unwrap_or_else(|error| panic!("{}", error.render(false)));
        let (event_loop, driver) = single_loop(config).unwrap();
        Self {
            event_loop,
            driver,
            clients,
            admin,
            store,
            network,
        }
    }

    /// A connection that has sent this.
    fn connect(&self, address: SocketAddr, text: &str) -> SimStream {
        let mut client = self.network.connect(address);
        client.write_all(text.as_bytes()).unwrap();
        client
    }

    /// Polls that wait for a change.
    fn wait(&mut self, count: usize) -> Vec<SimStream> {
        let now = self.event_loop.context().steady_seconds() as u32;
        let store = self.driver.cache.store().unwrap();
        store.set(b"/poll/a", 0, Expiry::NEVER, b"one", now);
        let cursor = Cursor::of(b"one", 0).text();
        let cursor = std::str::from_utf8(cursor.bare()).unwrap();
        let poll = format!("GET /poll/a?since={cursor}&wait=50s HTTP/1.1\r\nHost: a\r\n\r\n");
        let clients = (0..count).map(|_| self.connect(self.clients, &poll));
        let clients = clients.collect();
        self.turn_until("they wait", |edge| edge.front.polls.waiting() == count);
        clients
    }

    /// The bytes that a connection gets until `end`, or its own end.
    #[track_caller]
    fn read(&mut self, client: &mut SimStream, end: &str) -> String {
        let mut received = Vec::new();
        self.turn_for_client("the answer", || {
            let is_open = client.read_all(&mut received);
            (!is_open || received.ends_with(end.as_bytes())).then_some(())
        });
        String::from_utf8(received).unwrap()
    }

    /// Turns until so much simulated time has passed.
    fn pass(&mut self, time: Duration) {
        let end = self.network.elapsed() + time;
        while self.network.elapsed() < end {
            self.turn_for(Self::WAIT);
        }
    }

    fn signal(&mut self) {
        self.driver.signal(self.event_loop.context(), 15);
        // A signal ends the wait of its turn.
        self.turn_for(Duration::ZERO);
    }

    /// Has the loop run by another configuration, as a reload does.
    fn reload(&mut self, change: impl FnOnce(&mut Config)) {
        let newest = self.driver.settings.newest();
        let mut config = (*newest.config).clone();
        change(&mut config);
        let config = Arc::new(config);
        let published = Published::new(Settings::default());
        self.driver.settings = published.follow();
        published.publish(Settings {
            config,
            upstream: newest.upstream.clone(),
            ..Settings::default()
        });
        self.turn_for(Duration::ZERO);
    }

    fn is_stopped(&mut self) -> bool {
        self.event_loop.context().is_stopped()
    }
}

const GET: &str = "GET /elsewhere HTTP/1.1\r\nHost: localhost\r\n\r\n";
const NOWHERE: &str = "no route and no upstream\n";

#[test]
fn each_listener_and_its_connections_have_their_own_component() {
    let mut edge = Edge::new("");
    let (clients, admin, store) = (edge.clients, edge.admin, edge.store);
    let mut client = edge.connect(clients, GET);
    assert!(edge.read(&mut client, NOWHERE).starts_with("HTTP/1.1 404 "));
    let health = "GET /-/health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut operator = edge.connect(admin, health);
    assert!(edge.read(&mut operator, "}\n").starts_with("HTTP/1.1 200 "));
    let set = "set /poll/a 0 0 3\r\none\r\n";
    let mut publisher = edge.connect(store, set);
    assert_eq!(edge.read(&mut publisher, "\r\n"), "STORED\r\n");
    // Each goes on with what it has.
    client
        .write_all(b"GET /poll/a HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(edge.read(&mut client, "one").starts_with("HTTP/1.1 200 "));
    operator.write_all(health.as_bytes()).unwrap();
    assert!(edge.read(&mut operator, "}\n").starts_with("HTTP/1.1 200 "));
    publisher.write_all(b"get /poll/a\r\n").unwrap();
    let reply = "VALUE /poll/a 0 3\r\none\r\nEND\r\n";
    assert_eq!(edge.read(&mut publisher, "END\r\n"), reply);
}

#[test]
fn deadlines_come_to_the_component_of_their_connection() {
    let mut edge = Edge::new("limits.idle_timeout = \"3s\"\nlimits.header_timeout = \"2s\"");
    let mut late = edge.connect(edge.clients, "GET / HT");
    let mut idle = edge.connect(edge.clients, GET);
    edge.read(&mut idle, NOWHERE);
    let text = edge.read(&mut late, "@");
    assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
    assert!(edge.network.elapsed() >= Duration::from_secs(2));
    assert_eq!(edge.read(&mut idle, "@"), "");
    assert!(edge.network.elapsed() >= Duration::from_secs(3));
}

#[test]
fn tokens_of_nothing_and_of_no_component_are_ignored() {
    let mut edge = Edge::new("");
    let mut client = edge.connect(edge.clients, GET);
    edge.read(&mut client, NOWHERE);
    let armed = edge.event_loop.context().armed();
    let known = [kind::STORE, kind::STORE_LISTENER];
    for kind in (0..Token::RESERVED_KIND).filter(|kind| !known.contains(kind)) {
        let token = Token::new(kind, 77, 999);
        let context = edge.event_loop.context();
        let readiness = Readiness::READABLE.and(Readiness::WRITABLE);
        edge.driver.ready(context, token, readiness);
        edge.driver.expired(context, token);
        assert_eq!(context.armed(), armed, "{kind}");
    }
    client.write_all(GET.as_bytes()).unwrap();
    edge.read(&mut client, NOWHERE);
    assert_eq!(edge.driver.servers.http.connections(), 1);
}

#[test]
fn a_drain_ends_waits_in_shares_and_the_loop_with_its_last_client() {
    let mut edge = Edge::new("limits.drain_timeout = \"4s\"\nlimits.connections_max = 2000");
    let mut waiting = edge.wait(1000);
    edge.signal();
    assert_eq!(edge.driver.fleet.lifecycle(), Lifecycle::Drain);
    // 256 at once, and as many with each step of 100 ms.
    assert_eq!(edge.driver.front.polls.waiting(), 744);
    let late = edge.connect(edge.clients, GET);
    edge.pass(Duration::from_millis(110));
    assert_eq!(edge.driver.front.polls.waiting(), 488);
    assert!(late.has_ended(), "its listener is closed");
    edge.pass(Duration::from_millis(300));
    assert_eq!(edge.driver.front.polls.waiting(), 0);
    for client in &mut waiting {
        let text = edge.read(client, "@");
        assert!(text.starts_with("HTTP/1.1 "), "{text}");
        assert!(text.contains("Connection: close\r\n"), "{text}");
    }
    edge.turn_for(Duration::ZERO);
    assert!(edge.is_stopped());
}

#[test]
fn connections_that_are_left_when_the_time_is_over_are_closed() {
    let upstream = "upstream.url = \"http://127.0.0.1:9\"";
    let mut edge = Edge::new(&format!("limits.drain_timeout = \"4s\"\n{upstream}"));
    // The application accepts, and never answers.
    let at = "127.0.0.1:9".parse().unwrap();
    let application = edge.network.listen(at).unwrap();
    let mut client = edge.connect(edge.clients, GET);
    let mut asked = None;
    edge.turn_for_client("the application is asked", || {
        asked = application.accept();
        asked.is_some().then_some(())
    });
    edge.signal();
    edge.pass(Duration::from_millis(3900));
    assert!(!edge.is_stopped() && !client.has_ended(), "there is time");
    edge.pass(Duration::from_millis(200));
    assert!(edge.is_stopped());
    assert_eq!(edge.read(&mut client, "@"), "");
}

#[test]
fn a_higher_bound_on_connections_is_that_of_websockets_too() {
    let mut edge = Edge::new("limits.connections_max = 1");
    edge.reload(|config| config.limits.connections_max = 3);
    let handshake = "GET /poll/a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\
                     Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut clients = [(); 3].map(|()| edge.connect(edge.clients, handshake));
    for client in &mut clients {
        let head = edge.read(client, "\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    }
    edge.pass(Duration::from_millis(20));
    assert_eq!(edge.driver.servers.websockets.connections(), 3);
    assert!(clients.iter().all(|client| !client.has_ended()));
}

#[test]
fn a_second_signal_stops_the_loop_at_once() {
    let mut edge = Edge::new("");
    let _waiting = edge.wait(300);
    edge.signal();
    assert!(!edge.is_stopped());
    edge.signal();
    assert_eq!(edge.driver.fleet.lifecycle(), Lifecycle::Stop);
    assert!(edge.is_stopped());
}

#[test]
fn a_memcached_client_that_asks_for_it_drains_the_loop() {
    let mut edge = Edge::new("store.shutdown = true");
    let _asks = edge.connect(edge.store, "shutdown\r\n");
    edge.turn_until("the loop drains", |edge| edge.ending.has_begun());
    assert_eq!(edge.driver.fleet.lifecycle(), Lifecycle::Drain);
}

#[test]
fn an_idle_process_has_no_timer_and_its_history_no_gap() {
    let mut edge = Edge::new("");
    let (context, driver) = (edge.event_loop.context(), &mut edge.driver);
    driver.supervise(context);
    edge.turn_for(Duration::ZERO);
    let mut turns = 0;
    while let Some(due) = edge.event_loop.due_in() {
        edge.network.pass(due);
        edge.turn_for(Duration::ZERO);
        turns += 1;
        assert!(turns < 10);
    }
    let rested_after = edge.network.elapsed();
    assert!(rested_after >= HISTORY_INTERVAL && rested_after < 2 * HISTORY_INTERVAL);
    edge.network.pass(5 * HISTORY_INTERVAL);
    // A turn of another loop ends the rest as well, and wakes this one.
    assert!(edge.driver.history.end_rest());
    edge.turn_for(Duration::ZERO);
    assert!(edge.event_loop.context().is_armed(HISTORY));
    let request = "GET /-/history HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut operator = edge.connect(edge.admin, request);
    let response = edge.read(&mut operator, "]}\n");
    assert_eq!(response.matches("\"at\":").count(), 8, "{response}");
}
