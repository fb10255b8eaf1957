//! Servers whose names lead elsewhere now.

use crate::fakes::{Fake, Gate, all_slots, bulk, greeted};
use crate::harness::{App, Harness, PATIENCE, Server, options, with_each};
use dwell_redis::{Announced, ClientOptions, Endpoint, SetOptions};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

impl Harness {
    /// Reads a key again and again until its outcome is one that is waited for.
    fn turn_until_get(&mut self, key: &str, is_it: impl Fn(&str) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let value = self.get(key);
            if is_it(&value) {
                return;
            }
            assert!(Instant::now() < end, "{value}");
            // Where there is no connection, it fails at once.
            self.event_loop
                .turn(&mut self.app, Some(Duration::from_millis(10)))
                .unwrap();
        }
    }

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

/// A server that has this reply to every command, once the gate is open; counts the commands.
fn slow_server(reply: String) -> (Fake, Gate, Arc<AtomicUsize>) {
    let (gate, asked) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let (may_reply, counted) = (gate.clone(), Arc::clone(&asked));
    let server = Fake::start(move |words, _| {
        greeted(words, "master").unwrap_or_else(|| {
            counted.fetch_add(1, Ordering::SeqCst);
            may_reply.wait();
            reply.clone()
        })
    });
    (server, gate, asked)
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
    let (before, gate, asked) = slow_server(bulk("before"));
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
fn a_command_without_time_fails_alone_where_it_waits_for_the_new_place() {
    // It accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (gate, asked) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let (may_greet, counted) = (gate.clone(), Arc::clone(&asked));
    let after = Fake::start(move |words, _| {
        may_greet.wait();
        greeted(words, "master").unwrap_or_else(|| {
            counted.fetch_add(1, Ordering::SeqCst);
            bulk("after")
        })
    });
    let endpoint = Endpoint::Tcp(silent.local_addr().unwrap());
    let timeout = Duration::from_secs(2);
    let short = ClientOptions {
        timeout,
        connect_timeout: PATIENCE,
        ..options()
    };
    let mut harness = Harness::of(endpoint, short);
    let (client, context) = (&mut harness.app.client, harness.event_loop.context());
    client.read(context, b"a", 1).unwrap();
    client.get(context, b"a", 2).unwrap();
    // The greeting of the other one has half of its time left when theirs is over.
    let half = Instant::now() + timeout / 2;
    harness.turn_until(|_| Instant::now() >= half);
    harness.turn_to(&Endpoint::Tcp(after.address));
    harness.turn_until(|app| app.last(1).is_some() && app.last(2).is_some());
    for tag in [1, 2] {
        assert_eq!(harness.app.last(tag), Some("Failed(Connect)"));
    }
    let (client, context) = (&mut harness.app.client, harness.event_loop.context());
    client.get(context, b"b", 3).unwrap();
    gate.open();
    harness.turn_until(|app| app.last(3).is_some());
    assert_eq!(harness.app.last(3), Some("after"));
    assert_eq!(asked.load(Ordering::SeqCst), 1, "the others were not sent");
    assert_eq!(after.open.load(Ordering::SeqCst), 1);
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
fn a_seed_that_does_not_reply_gives_its_place_to_another_name() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = nobody.local_addr().unwrap();
    drop(nobody);
    let second = server_of("second");
    // The names of all others had no address at the start.
    let mut harness = Harness::of(Endpoint::Cluster(vec![dead]), options());
    harness.app.client.wait(b"a", 7);
    harness.turn_to(&Endpoint::Cluster(vec![dead, second.address]));
    harness.turn_until_last(7, "second");
}

/// A primary of half of the slots; the other one has the other half.
struct Half {
    /// The lower half of the slots.
    is_lower: bool,
    other: Arc<OnceLock<SocketAddr>>,
    is_gone: Arc<AtomicBool>,
    /// Questions for the topology.
    asked: Arc<AtomicUsize>,
}

impl Half {
    fn start(self, value: &'static str) -> Fake {
        Fake::start(move |words, address| {
            if self.is_gone.load(Ordering::SeqCst) {
                // It is no protocol, so the connection ends.
                return "gone\r\n".to_owned();
            }
            greeted(words, "master").unwrap_or_else(|| match words {
                "CLUSTER SLOTS" => {
                    self.asked.fetch_add(1, Ordering::SeqCst);
                    let other = *self.other.get().unwrap();
                    let (lower, upper) = if self.is_lower {
                        (address, other)
                    } else {
                        (other, address)
                    };
                    let half = |first: u16, last: u16, of: SocketAddr| {
                        let (host, port) = (bulk(&of.ip().to_string()), of.port());
                        format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n{host}:{port}\r\n")
                    };
                    let halves = half(0, 8191, lower) + &half(8192, 16383, upper);
                    format!("*2\r\n{halves}")
                }
                _ if words.starts_with("CLUSTER") => "-ERR unknown\r\n".to_owned(),
                _ => bulk(value),
            })
        })
    }
}

#[test]
fn a_primary_that_is_down_for_a_while_stays_where_the_cluster_has_it() {
    let quick = ClientOptions {
        topology_interval: Duration::from_millis(20),
        timeout: Duration::from_millis(500),
        ..options()
    };
    let is_gone = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicUsize::new(0));
    let places: [Arc<OnceLock<SocketAddr>>; 2] = Default::default();
    let half = |is_lower: bool, is_gone: &Arc<AtomicBool>| Half {
        is_lower,
        other: Arc::clone(&places[usize::from(is_lower)]),
        is_gone: Arc::clone(is_gone),
        asked: Arc::clone(&asked),
    };
    // The slot of `a` is 15495, that of `b` 3300.
    let upper = half(false, &is_gone).start("of the upper half");
    let lower = half(true, &Arc::default()).start("of the lower half");
    places[0].set(lower.address).unwrap();
    places[1].set(upper.address).unwrap();
    let elsewhere = server_of("elsewhere");
    let named = vec![upper.address, lower.address];
    let mut harness = Harness::of(Endpoint::Cluster(named), quick);
    harness.app.client.wait(b"a", 7);
    harness.turn_until_last(7, "of the upper half");
    harness.turn_until(|app| app.client.cluster().is_some_and(|it| it.primaries == 2));
    let named = vec![elsewhere.address, lower.address];
    harness.turn_to(&Endpoint::Cluster(named));
    is_gone.store(true, Ordering::SeqCst);
    harness.turn_until_get("a", |value| value.starts_with("Failed"));
    let questions = asked.load(Ordering::SeqCst);
    harness.turn_until(|_| asked.load(Ordering::SeqCst) > questions + 3);
    assert_eq!(harness.get("b"), "of the lower half");
    is_gone.store(false, Ordering::SeqCst);
    harness.turn_until_get("a", |value| value == "of the upper half");
    assert_eq!(elsewhere.open.load(Ordering::SeqCst), 0);
}

#[test]
fn what_a_place_owes_that_is_left_twice_may_have_been_done() {
    let (before, gate, asked) = slow_server(bulk("before"));
    let [between, after] = ["between", "after"].map(server_of);
    let mut harness = Harness::of(Endpoint::Tcp(before.address), options());
    let (client, context) = (&mut harness.app.client, harness.event_loop.context());
    let set = SetOptions::default();
    client.set(context, b"a", b"x", set, 1).unwrap();
    harness.turn_until(|_| asked.load(Ordering::SeqCst) == 1);
    harness.turn_to(&Endpoint::Tcp(between.address));
    harness.turn_to(&Endpoint::Tcp(after.address));
    harness.turn_until(|app| app.last(1) == Some("Failed(Closed)"));
    assert_eq!(harness.get("a"), "after");
    gate.open();
}

#[test]
fn a_replica_at_the_place_before_is_none_at_the_place_after() {
    let read_only = || "-READONLY You can't write against a read only replica.\r\n".to_owned();
    let (before, gate, asked) = slow_server(read_only());
    let after = Fake::start(move |words, _| greeted(words, "master").unwrap_or_else(read_only));
    let mut harness = Harness::of(Endpoint::Tcp(before.address), options());
    let set = SetOptions::default();
    let (client, context) = (&mut harness.app.client, harness.event_loop.context());
    client.set(context, b"a", b"x", set, 1).unwrap();
    harness.turn_until(|_| asked.load(Ordering::SeqCst) == 1);
    harness.turn_to(&Endpoint::Tcp(after.address));
    gate.open();
    harness.turn_until_last(1, "Failed(ReadOnly)");
    harness.turn_until(|app| app.client.status().connects == 1);
    // This server has become one at this moment: its connection is made again.
    let ended = harness.end_of(2, |client, context| {
        client.set(context, b"a", b"x", set, 2).unwrap();
    });
    assert_eq!(ended, "Failed(ReadOnly)");
    harness.turn_until(|app| app.client.status().connects == 2);
}

#[test]
fn an_older_value_of_a_key_that_is_waited_for_is_not_told_after_a_newer_one() {
    let (before, gate, asked) = slow_server(bulk("before"));
    let after = server_of("after");
    let untracked = ClientOptions {
        announced: Announced::Nothing,
        ..options()
    };
    let mut harness = Harness::of(Endpoint::Tcp(before.address), untracked);
    let (client, context) = (&mut harness.app.client, harness.event_loop.context());
    // A wait that begins after the read is told nothing older either.
    client.read(context, b"a", 2).unwrap();
    client.wait(b"a", 7);
    harness.turn_until(|_| asked.load(Ordering::SeqCst) > 0);
    harness.turn_to(&Endpoint::Tcp(after.address));
    harness.turn_until(|app| app.last(2).is_some());
    assert_eq!(harness.app.last(2), Some("after"));
    gate.open();
    harness.turn_until(|_| before.open.load(Ordering::SeqCst) == 0);
    assert_eq!(harness.app.count(2), 1);
}

#[test]
fn a_read_that_is_made_again_and_again_has_the_time_of_one() {
    let never = || slow_server(bulk("late"));
    let places = [never(), never()];
    let untracked = ClientOptions {
        announced: Announced::Nothing,
        timeout: Duration::from_secs(1),
        ..options()
    };
    let endpoints = [0, 1].map(|place: usize| Endpoint::Tcp(places[place].0.address));
    let mut harness = Harness::of(endpoints[0].clone(), untracked);
    let (client, context) = (&mut harness.app.client, harness.event_loop.context());
    client.read(context, b"a", 1).unwrap();
    let (mut moves, end) = (0, Instant::now() + PATIENCE);
    while harness.app.last(1).is_none() {
        assert!(Instant::now() < end, "{moves} moves");
        let asked = &places[moves % 2].2;
        harness.turn_until(|app| asked.load(Ordering::SeqCst) > 0 || app.last(1).is_some());
        asked.store(0, Ordering::SeqCst);
        moves += 1;
        harness.turn_to(&endpoints[moves % 2]);
        harness.turn();
    }
    let last = harness.app.last(1).unwrap();
    assert!(last.starts_with("Failed"), "{last}");
    for (_, gate, _) in &places {
        gate.open();
    }
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

#[test]
fn a_late_reply_leaves_no_deadline_of_a_key_that_has_moved() {
    let (gate, asked) = (Gate::default(), Arc::new(AtomicBool::new(false)));
    let has_moved = Arc::new(AtomicBool::new(false));
    let places = Arc::<OnceLock<[SocketAddr; 2]>>::default();
    let start = || {
        let (may_reply, is_asked) = (gate.clone(), Arc::clone(&asked));
        let (moved, places) = (Arc::clone(&has_moved), Arc::clone(&places));
        Fake::start(move |words, _| {
            let [before, after] = *places.get().unwrap();
            let range = |first, last, of: SocketAddr| {
                let (host, port) = (bulk(&of.ip().to_string()), of.port());
                format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n{host}:{port}\r\n")
            };
            match words {
                "PTTL a" => {
                    is_asked.store(true, Ordering::SeqCst);
                    may_reply.wait();
                    ":60000\r\n".to_owned()
                }
                // The slot of `a` is 15495.
                "CLUSTER SLOTS" if moved.load(Ordering::SeqCst) => {
                    let halves = range(0, 8191, before) + &range(8192, 16383, after);
                    format!("*2\r\n{halves}")
                }
                "CLUSTER SLOTS" => all_slots(before),
                _ if words.starts_with("CLUSTER") => "-ERR unknown\r\n".to_owned(),
                _ => greeted(words, "master").unwrap_or_else(|| bulk("before")),
            }
        })
    };
    let addresses = [start(), start()].map(|server| server.address);
    places.set(addresses).unwrap();
    let quick = ClientOptions {
        topology_interval: Duration::from_millis(20),
        probe: PATIENCE,
        ..options()
    };
    let mut harness = Harness::of(Endpoint::Cluster(vec![addresses[0]]), quick);
    let primaries = |count| move |app: &App| app.client.cluster().unwrap().primaries == count;
    harness.app.client.connect(harness.event_loop.context());
    harness.turn_until(primaries(1));
    let (client, context) = (&mut harness.app.client, harness.event_loop.context());
    client.read(context, b"a", 1).unwrap();
    harness.turn_until(|_| asked.load(Ordering::SeqCst));
    has_moved.store(true, Ordering::SeqCst);
    harness.turn_until(primaries(2));
    gate.open();
    harness.turn_until(|app| app.count(1) > 0);
    // Three connections, and the next question for the topology, which is there now and then.
    let armed = (0..200).map(|_| {
        harness.turn();
        harness.event_loop.context().armed()
    });
    let armed = armed.max().unwrap();
    assert!(armed <= 4, "{armed} deadlines");
}
