//! Servers whose names lead elsewhere now.

use crate::fakes::{Fake, Gate, all_slots, bulk, greeted};
use crate::harness::{Harness, Server, options, with_each};
use dwell_redis::{ClientOptions, Endpoint};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

impl Harness {
    fn turn_to(&mut self, endpoint: &Endpoint) {
        let context = self.event_loop.context();
        self.app.client.turn_to(context, endpoint);
    }
}

/// A server that has the same value for every key.
fn server_of(value: &'static str) -> Fake {
    Fake::start(move |words, address| {
        greeted(words, "master").unwrap_or_else(|| match words {
            "CLUSTER SLOTS" => all_slots(address),
            _ if words.starts_with("CLUSTER") => "-ERR unknown\r\n".to_owned(),
            _ => bulk(value),
        })
    })
}

fn sentinel_of(primary: SocketAddr) -> Fake {
    let (host, port) = (primary.ip().to_string(), primary.port().to_string());
    Fake::start(move |_, _| format!("*2\r\n{}{}", bulk(&host), bulk(&port)))
}

#[test]
fn keys_that_are_waited_for_are_read_where_the_server_is_now() {
    with_each(|program| {
        let servers = [0, 1].map(|_| Server::start(program, &[]));
        let mut others = [&servers[0], &servers[1]].map(Server::other);
        others[0].ask("SET a one");
        others[1].ask("SET a two");
        let mut harness = Harness::new(&servers[0], options());
        harness.wait("a", 7);
        harness.wait("absent", 8);
        harness.turn_until_last(7, "one");
        harness.turn_until(|app| app.client.is_armed(b"absent") == Some(true));
        harness.turn_to(&Endpoint::Unix(servers[1].socket()));
        harness.turn_until_last(7, "two");
        others[1].ask("SET a three");
        others[1].ask("SET absent first");
        harness.turn_until_last(7, "three");
        harness.turn_until_last(8, "first");
        assert_eq!(harness.get("a"), "three");
        // Nothing is left where it was.
        let clients = others[0].ask("CLIENT LIST");
        assert_eq!(clients.lines().count(), 1, "{clients}");
        // And back, under the tokens of the beginning.
        harness.turn_to(&Endpoint::Unix(servers[0].socket()));
        harness.turn_until_last(7, "one");
        others[0].ask("SET a four");
        harness.turn_until_last(7, "four");
    });
}

#[test]
fn what_was_sent_is_answered_by_the_server_before() {
    let (gate, asked) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let (may_reply, counted) = (gate.clone(), Arc::clone(&asked));
    let before = Fake::start(move |words, _| {
        greeted(words, "master").unwrap_or_else(|| {
            counted.fetch_add(1, Ordering::SeqCst);
            may_reply.wait();
            bulk("before")
        })
    });
    let after = server_of("after");
    let mut harness = Harness::of(Endpoint::Tcp(before.address), options());
    let (client, context) = (&mut harness.app.client, harness.event_loop.context());
    client.get(context, b"a", 1).unwrap();
    client.wait(b"b", 7);
    client.read(context, b"b", 2).unwrap();
    harness.turn_until(|_| asked.load(Ordering::SeqCst) == 2);
    harness.turn_to(&Endpoint::Tcp(after.address));
    assert_eq!(
        harness.end_of(3, |client, context| client.get(context, b"c", 3).unwrap()),
        "after"
    );
    // One that registers a key is of no use where nothing is announced any more.
    harness.turn_until(|app| app.last(2) == Some("after"));
    harness.turn_until_last(7, "after");
    assert_eq!(harness.app.count(1), 0, "the server before has not replied");
    gate.open();
    harness.turn_until(|app| app.last(1) == Some("before"));
    harness.turn_until(|_| before.open.load(Ordering::SeqCst) == 0);
    assert_eq!(harness.app.last(7), Some("after"));
}

#[test]
fn what_a_server_out_of_reach_was_to_be_sent_goes_where_it_is_now() {
    // It accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let after = server_of("after");
    let endpoint = Endpoint::Tcp(silent.local_addr().unwrap());
    let mut harness = Harness::of(endpoint, options());
    let (client, context) = (&mut harness.app.client, harness.event_loop.context());
    client.get(context, b"a", 1).unwrap();
    client.wait(b"b", 7);
    client.read(context, b"b", 2).unwrap();
    harness.turn();
    harness.turn_to(&Endpoint::Tcp(after.address));
    for tag in [1, 2, 7] {
        harness.turn_until_last(tag, "after");
    }
}

#[test]
fn a_cluster_is_asked_where_its_names_lead_unless_its_primaries_are_up() {
    let quick = ClientOptions {
        topology_interval: Duration::from_millis(20),
        timeout: Duration::from_millis(500),
        ..options()
    };
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = nobody.local_addr().unwrap();
    drop(nobody);
    let is_gone = Arc::new(AtomicBool::new(false));
    let gone = Arc::clone(&is_gone);
    let first = Fake::start(move |words, address| {
        if gone.load(Ordering::SeqCst) {
            // It is no protocol, so the connection ends.
            return "gone\r\n".to_owned();
        }
        greeted(words, "master").unwrap_or_else(|| match words {
            "CLUSTER SLOTS" => all_slots(address),
            _ if words.starts_with("CLUSTER") => "-ERR unknown\r\n".to_owned(),
            _ => bulk("first"),
        })
    });
    let second = server_of("second");
    let mut harness = Harness::of(Endpoint::Cluster(vec![dead]), quick);
    harness.app.client.wait(b"a", 7);
    assert_ne!(harness.get("a"), "first");
    harness.turn_to(&Endpoint::Cluster(vec![first.address]));
    harness.turn_until_last(7, "first");
    harness.turn_until(|app| app.client.cluster().is_some_and(|it| it.primaries == 1));
    assert_eq!(harness.get("a"), "first");
    harness.turn_to(&Endpoint::Cluster(vec![second.address]));
    assert_eq!(harness.get("a"), "first", "the cluster tells where it goes");
    assert_eq!(second.open.load(Ordering::SeqCst), 0);
    is_gone.store(true, Ordering::SeqCst);
    harness.turn_until_last(7, "second");
    assert_eq!(harness.get("a"), "second");
}

#[test]
fn other_sentinels_are_asked_from_the_next_connection_on() {
    let is_gone = Arc::new(AtomicBool::new(false));
    let gone = Arc::clone(&is_gone);
    let first = Fake::start(move |words, _| {
        if gone.load(Ordering::SeqCst) {
            // It is no protocol, so the connection ends.
            return "gone\r\n".to_owned();
        }
        greeted(words, "master").unwrap_or_else(|| bulk("first"))
    });
    let second = server_of("second");
    let sentinels = [first.address, second.address].map(sentinel_of);
    let asked_at = |sentinel: &Fake| Endpoint::Primary {
        name: "mine".to_owned(),
        sentinels: vec![sentinel.address],
    };
    let mut harness = Harness::of(asked_at(&sentinels[0]), options());
    harness.app.client.wait(b"a", 7);
    harness.turn_until_last(7, "first");
    assert_eq!(harness.get("a"), "first");
    harness.turn_to(&asked_at(&sentinels[1]));
    assert_eq!(harness.get("a"), "first", "the primary stays");
    is_gone.store(true, Ordering::SeqCst);
    harness.turn_until_last(7, "second");
    // The connection for reads and writes has not heard yet that the server is gone.
    harness.get("a");
    harness.turn_until(|app| app.client.status().primary == Some(second.address));
    assert_eq!(harness.get("a"), "second");
}
