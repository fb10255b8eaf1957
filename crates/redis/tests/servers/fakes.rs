//! Servers that reply as a test says, where a real one could not be made to.

use crate::harness::{Harness, PATIENCE, options};
use dwell_proto::resp::{Decoded, Decoder, Limits, Message, Value};
use dwell_redis::{ClientOptions, Endpoint, Failure, SetOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A server on a port of its own.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    /// Its connections.
    pub(crate) open: Arc<AtomicUsize>,
}

impl Fake {
    /// Starts one; `reply` is given each command, its words joined by blanks, and its own address.
    pub(crate) fn start(
        reply: impl Fn(&str, SocketAddr) -> String + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, reply) = (listener.local_addr().unwrap(), Arc::new(reply));
        let open = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&open);
        // The threads end with the process, and those of connections with these.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (reply, counted) = (Arc::clone(&reply), Arc::clone(&counted));
                counted.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    serve(stream, &*reply, address);
                    counted.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, open }
    }
}

fn serve(mut stream: TcpStream, reply: &impl Fn(&str, SocketAddr) -> String, address: SocketAddr) {
    let (mut decoder, mut input) = (Decoder::new(Limits::default()), Vec::new());
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        input.extend_from_slice(&buffer[..length]);
        let mut replies = String::new();
        loop {
            let used = match decoder.decode(&input).unwrap() {
                Decoded::Message(used, Message::Value(Value::Array(words))) => {
                    let words = words.into_iter().map(|word| word.text().unwrap().to_vec());
                    let words: Vec<_> = words.collect();
                    let words = String::from_utf8(words.join(&b' ')).unwrap();
                    replies += &reply(&words, address);
                    used
                }
                Decoded::Message(_, message) => panic!("{message:?}"),
                Decoded::Incomplete(used) => {
                    input.drain(..used);
                    break;
                }
            };
            input.drain(..used);
        }
        if stream.write_all(replies.as_bytes()).is_err() {
            return;
        }
    }
}

/// The reply of every server to a command of a greeting, or to a probe.
pub(crate) fn greeted(words: &str, role: &str) -> Option<String> {
    match words.split(' ').next()? {
        "HELLO" => Some(format!("%1\r\n+role\r\n+{role}\r\n")),
        "CLIENT" => Some("+OK\r\n".to_owned()),
        "PING" => Some("+PONG\r\n".to_owned()),
        "PTTL" => Some(":-1\r\n".to_owned()),
        "CONFIG" | "INFO" => Some("-NOPERM no\r\n".to_owned()),
        _ => None,
    }
}

pub(crate) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The topology in which one server has all slots.
pub(crate) fn all_slots(of: SocketAddr) -> String {
    let (host, port) = (bulk(&of.ip().to_string()), of.port());
    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n{host}:{port}\r\n")
}

/// A word of the test that a server waits for before it replies.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        let (is_open, has_changed) = &*self.0;
        *is_open.lock().unwrap() = true;
        has_changed.notify_all();
    }

    pub(crate) fn wait(&self) {
        let (is_open, has_changed) = &*self.0;
        let is_open = is_open.lock().unwrap();
        drop(
            has_changed
                .wait_while(is_open, |is_open| !*is_open)
                .unwrap(),
        );
    }
}

#[test]
fn a_primary_that_refuses_to_be_followed_is_left_by_both_connections() {
    let is_demoted = Arc::new(AtomicBool::new(false));
    let role_of = Arc::clone(&is_demoted);
    let before = Fake::start(move |words, _| {
        let is_demoted = role_of.load(Ordering::SeqCst);
        let role = if is_demoted { "replica" } else { "master" };
        greeted(words, role).unwrap_or_else(|| bulk("before"))
    });
    let after = Fake::start(|words, _| greeted(words, "master").unwrap_or_else(|| bulk("after")));
    let (before, after) = (before.address, after.address);
    let has_failed_over = Arc::clone(&is_demoted);
    let sentinel = Fake::start(move |_, _| {
        let is_over = has_failed_over.load(Ordering::SeqCst);
        let primary = if is_over { after } else { before };
        let (host, port) = (primary.ip().to_string(), primary.port().to_string());
        format!("*2\r\n{}{}", bulk(&host), bulk(&port))
    });
    let endpoint = Endpoint::Primary {
        name: "mine".to_owned(),
        sentinels: vec![sentinel.address],
    };
    let mut harness = Harness::of(endpoint, options());
    // The plain connection alone is made, and stays when the server becomes a replica.
    assert_eq!(harness.get("a"), "before");
    is_demoted.store(true, Ordering::SeqCst);
    harness.app.client.wait(b"a", 7);
    harness.turn_until_last(7, "after");
    assert_eq!(harness.get("a"), "after");
    let status = harness.app.client.status();
    assert_eq!((status.primary, status.connects), (Some(after), 2));
}

#[test]
fn a_write_that_an_old_server_redirects_is_told_by_what_was_sent() {
    // The one knows no `GET` in `SET`, the other does, and has a value already.
    let new = Fake::start(|words, address| {
        let reply = match words {
            "SET a 1 NX" => "_\r\n".to_owned(),
            "SET a 1 GET" => bulk("0"),
            "CLUSTER SLOTS" => all_slots(address),
            _ => "-ERR unknown\r\n".to_owned(),
        };
        greeted(words, "master").unwrap_or(reply)
    });
    let new = new.address;
    let old = Fake::start(move |words, address| {
        let reply = match words {
            "SET a 1 NX" => format!("-MOVED 15495 {new}\r\n"),
            "SET a 1 GET" => "-ERR syntax error\r\n".to_owned(),
            "CLUSTER SLOTS" => all_slots(address),
            _ => "-ERR unknown\r\n".to_owned(),
        };
        greeted(words, "master").unwrap_or(reply)
    });
    let slow = ClientOptions {
        topology_interval: PATIENCE,
        ..options()
    };
    let mut harness = Harness::of(Endpoint::Cluster(vec![old.address]), slow);
    let mut swap = || {
        harness.end_of(1, |client, context| {
            client.swap(context, b"a", b"1", None, 1).unwrap();
        })
    };
    assert_eq!(swap(), "Unmet", "the old server is known from now on");
    assert_eq!(swap(), "Unmet", "nothing was stored");
}

#[test]
fn a_server_that_was_upgraded_is_asked_for_what_a_write_has_replaced() {
    let is_new = Arc::new(AtomicBool::new(false));
    let upgraded = Arc::clone(&is_new);
    let server = Fake::start(move |words, _| {
        let is_new = is_new.load(Ordering::SeqCst);
        let reply = match words {
            "SET a 1 GET" if is_new => bulk("0"),
            "SET a 1 GET" => "-ERR syntax error\r\n".to_owned(),
            "SET a 1 NX" => "_\r\n".to_owned(),
            // The connection is made anew for it.
            "GET a" => "no protocol".to_owned(),
            _ => "-ERR unknown\r\n".to_owned(),
        };
        greeted(words, "master").unwrap_or(reply)
    });
    let mut harness = Harness::of(Endpoint::Tcp(server.address), options());
    let swap = |harness: &mut Harness| {
        harness.end_of(1, |client, context| {
            client.swap(context, b"a", b"1", None, 1).unwrap();
        })
    };
    assert_eq!(swap(&mut harness), "Unmet");
    upgraded.store(true, Ordering::SeqCst);
    assert_eq!(swap(&mut harness), "Unmet", "as long as it is connected");
    harness.get("a");
    harness.turn_until(|app| app.client.status().connects == 2);
    assert_eq!(swap(&mut harness), "Done");
}

#[test]
fn an_operation_that_is_redirected_ends_in_time_and_its_connection_does_not() {
    for is_read in [false, true] {
        let (to_redirect, to_reply) = (Gate::default(), Gate::default());
        let (may_reply, greetings) = (to_reply.clone(), Arc::new(AtomicUsize::new(0)));
        let greeted_by = Arc::clone(&greetings);
        let after = Fake::start(move |words, address| {
            if words.starts_with("HELLO") {
                greeted_by.fetch_add(1, Ordering::SeqCst);
            }
            greeted(words, "master").unwrap_or_else(|| match words {
                "GET a" => {
                    may_reply.wait();
                    bulk("late")
                }
                "CLUSTER SLOTS" => all_slots(address),
                _ => bulk("after"),
            })
        });
        let (after, may_redirect) = (after.address, to_redirect.clone());
        let before = Fake::start(move |words, address| {
            greeted(words, "master").unwrap_or_else(|| match words {
                "GET a" => {
                    may_redirect.wait();
                    format!("-MOVED 15495 {after}\r\n")
                }
                "GET b" => format!("-MOVED 3300 {after}\r\n"),
                "CLUSTER SLOTS" => all_slots(address),
                _ => bulk("before"),
            })
        });
        let timeout = Duration::from_secs(1);
        let options = ClientOptions {
            timeout,
            topology_interval: PATIENCE,
            ..options()
        };
        let mut harness = Harness::of(Endpoint::Cluster(vec![before.address]), options);
        assert_eq!(harness.get("c"), "before");
        let ask = |harness: &mut Harness, key: &[u8], tag| {
            let context = harness.event_loop.context();
            let client = &mut harness.app.client;
            let asked = if is_read {
                client.read(context, key, tag)
            } else {
                client.get(context, key, tag)
            };
            asked.unwrap();
        };
        if is_read {
            harness.app.client.wait(b"a", 7);
        }
        ask(&mut harness, b"a", 5);
        let half = Instant::now() + timeout / 2;
        harness.turn_until(|_| Instant::now() >= half);
        to_redirect.open();
        ask(&mut harness, b"b", 2);
        harness.turn_until(|app| app.count(5) > 0);
        assert_eq!(harness.app.last(5), Some("Failed(Timeout)"));
        // The server has been asked late, and has time left.
        to_reply.open();
        harness.turn_until(|app| app.count(2) > 0);
        assert_eq!(harness.app.last(2), Some("after"));
        assert_eq!(harness.app.count(5), 1, "it has ended once");
        if is_read {
            harness.turn_until_last(7, "late");
        }
        assert_eq!(
            greetings.load(Ordering::SeqCst),
            1,
            "its connection has stayed"
        );
    }
}

#[test]
fn a_key_that_a_redirection_alone_has_moved_is_swept_there() {
    let greeted = |words: &str| match words {
        "CLIENT TRACKING ON" => Some("-NOPERM no\r\n".to_owned()),
        _ => greeted(words, "master"),
    };
    let after = Fake::start(move |words, _| greeted(words).unwrap_or_else(|| bulk("after")));
    let after = after.address;
    let before = Fake::start(move |words, address| {
        greeted(words).unwrap_or_else(|| match words {
            "GET a" => format!("-MOVED 15495 {after}\r\n"),
            "CLUSTER SLOTS" => all_slots(address),
            _ => bulk("before"),
        })
    });
    let mut harness = Harness::of(Endpoint::Cluster(vec![before.address]), options());
    assert_eq!(harness.get("c"), "before");
    harness.app.client.wait(b"a", 7);
    let end = Instant::now() + PATIENCE;
    while harness.app.last(7) != Some("after") {
        assert!(Instant::now() < end, "{:?}", harness.app.ended);
        harness
            .app
            .client
            .sweep_untold(harness.event_loop.context());
        harness.turn();
    }
}

#[test]
fn a_first_value_is_found_at_the_server_to_which_its_slot_is_about_to_move() {
    let after = Fake::start(|words, _| {
        let reply = match words {
            "ASKING" => "+OK\r\n".to_owned(),
            "GET a" => bulk("first"),
            _ => "-ERR unknown\r\n".to_owned(),
        };
        greeted(words, "master").unwrap_or(reply)
    });
    let (after, is_moving) = (after.address, Arc::new(AtomicBool::new(false)));
    let has_begun = Arc::clone(&is_moving);
    let before = Fake::start(move |words, address| {
        let is_moving = has_begun.load(Ordering::SeqCst);
        let moving = if is_moving { "[15495->-b]" } else { "" };
        greeted(words, "master").unwrap_or_else(|| match words {
            "GET a" if is_moving => format!("-ASK 15495 {after}\r\n"),
            "CLUSTER SLOTS" => all_slots(address),
            "CLUSTER NODES" => bulk(&format!(
                "a {address} myself,master - 0 0 1 connected 0-16383 {moving}\n"
            )),
            _ => "_\r\n".to_owned(),
        })
    });
    let options = ClientOptions {
        topology_interval: Duration::from_millis(20),
        ..options()
    };
    let mut harness = Harness::of(Endpoint::Cluster(vec![before.address]), options);
    // A key moves when its server becomes known, after which it is read.
    assert_eq!(harness.get("b"), "Missing");
    harness.turn_until(|app| app.client.cluster().is_some_and(|it| it.primaries == 1));
    harness.wait("a", 7);
    harness.turn_until(|app| app.client.is_armed(b"a") == Some(true));
    // The key is created at the other server, and nobody tells.
    is_moving.store(true, Ordering::SeqCst);
    harness.turn_until_last(7, "first");
}

#[test]
fn a_server_that_a_redirection_has_named_is_left_when_it_is_no_primary() {
    let other = Fake::start(|words, _| greeted(words, "master").unwrap_or_else(|| bulk("other")));
    let (named, is_asked) = (other.address, AtomicBool::new(false));
    let primary = Fake::start(move |words, address| {
        greeted(words, "master").unwrap_or_else(|| match words {
            "GET a" if !is_asked.swap(true, Ordering::SeqCst) => {
                format!("-MOVED 15495 {named}\r\n")
            }
            "CLUSTER SLOTS" => all_slots(address),
            _ => bulk("primary"),
        })
    });
    let options = ClientOptions {
        topology_interval: Duration::from_millis(20),
        ..options()
    };
    let mut harness = Harness::of(Endpoint::Cluster(vec![primary.address]), options);
    assert_eq!(harness.get("b"), "primary");
    harness.turn_until(|app| app.client.cluster().is_some_and(|it| it.primaries == 1));
    assert_eq!(harness.get("a"), "other");
    harness.turn_until(|_| other.open.load(Ordering::SeqCst) == 0);
    assert_eq!(harness.get("a"), "primary");
    assert_eq!(other.open.load(Ordering::SeqCst), 0);
}

#[test]
fn a_server_that_says_nothing_is_found_in_the_time_of_a_reply() {
    // It accepts connections, which the kernel alone makes.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ClientOptions {
        timeout: Duration::from_millis(50),
        connect_timeout: 10 * PATIENCE,
        failures_max: 2,
        ..options()
    };
    let mut harness = Harness::of(Endpoint::Tcp(silent.local_addr().unwrap()), options);
    harness.app.client.connect(harness.event_loop.context());
    let late = Some(Failure::Timeout);
    harness.turn_until(|app| app.client.status().last_failure == late);
    // After failures in a row operations fail at once.
    let end = Instant::now() + PATIENCE;
    while harness.get("a") != "Failed(Timeout)" {
        assert!(Instant::now() < end, "{:?}", harness.app.client.status());
    }
    assert_eq!(harness.app.client.status().connects, 0);
}

#[test]
fn what_comes_before_a_command_was_sent_is_no_reply_to_it() {
    for surplus in [bulk("surplus"), "-ERR surplus\r\n".to_owned()] {
        let is_first = AtomicBool::new(true);
        let server = Fake::start(move |words, _| match greeted(words, "master") {
            Some(reply) if words.starts_with("HELLO") && is_first.swap(false, Ordering::SeqCst) => {
                reply + &surplus
            }
            Some(reply) => reply,
            None => bulk("right"),
        });
        let mut harness = Harness::of(Endpoint::Tcp(server.address), options());
        assert_eq!(harness.get("a"), "Failed(Protocol)");
        harness.turn_until(|app| app.client.status().connects == 2);
        assert_eq!(harness.get("a"), "right");
        assert_eq!(harness.metrics.protocol_errors.value(), 1);
    }
}

#[test]
fn a_reply_to_a_command_that_is_still_being_sent_is_none() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The thread ends with the process, as it never reads on.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || reply_early(stream));
        }
    });
    let options = ClientOptions {
        request_bytes_max: 64 << 20,
        ..options()
    };
    let mut harness = Harness::of(Endpoint::Tcp(address), options);
    let large = vec![b'x'; 32 << 20];
    let ended = harness.end_of(1, |client, context| {
        let set = SetOptions::default();
        client.set(context, b"a", &large, set, 1).unwrap();
    });
    assert_eq!(ended, "Failed(Protocol)");
    assert_eq!(harness.metrics.protocol_errors.value(), 1);
}

/// Greets, and replies to a write whose beginning alone it reads.
fn reply_early(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        let verb = b"\r\nSET\r\n";
        let is_write = buffer[..length].windows(verb.len()).any(|it| it == verb);
        let reply = if is_write {
            "+OK\r\n".to_owned()
        } else {
            greeted("HELLO", "master").unwrap()
        };
        stream.write_all(reply.as_bytes()).unwrap();
        if is_write {
            return thread::sleep(PATIENCE);
        }
    }
}

#[test]
fn a_value_from_before_the_announcements_is_not_told_behind_a_newer_one() {
    for is_read in [false, true] {
        let (to_track, to_reply, never) = (Gate::default(), Gate::default(), Gate::default());
        let (may_track, may_reply) = (to_track.clone(), to_reply.clone());
        let [greetings, reads] = [(); 2].map(|()| Arc::<AtomicUsize>::default());
        let read_by = Arc::clone(&reads);
        let server = Fake::start(move |words, _| {
            let count = |of: &AtomicUsize| of.fetch_add(1, Ordering::SeqCst);
            match words {
                "CLIENT TRACKING ON" => match count(&greetings) {
                    0 => return "no protocol".to_owned(),
                    1 => may_track.wait(),
                    _ => never.wait(),
                },
                "GET a" if count(&reads) == 0 => {
                    may_reply.wait();
                    return bulk("old");
                }
                "GET x" => return "no protocol".to_owned(),
                _ => {}
            }
            greeted(words, "master").unwrap_or_else(|| bulk("new"))
        });
        // Reads go over the other connection behind the first failure.
        let options = ClientOptions {
            failures_max: 1,
            probe: PATIENCE,
            ..options()
        };
        let mut harness = Harness::of(Endpoint::Tcp(server.address), options);
        assert_eq!(harness.get("c"), "new");
        harness.app.client.wait(b"a", 7);
        let metrics = Arc::clone(&harness.metrics);
        harness.turn_until(|_| metrics.protocol_errors.value() == 1);
        let Harness {
            event_loop, app, ..
        } = &mut harness;
        if is_read {
            app.client.read(event_loop.context(), b"a", 1).unwrap();
        } else {
            app.client.sweep_untold(event_loop.context());
        }
        harness.turn_until(|_| read_by.load(Ordering::SeqCst) > 0);
        to_track.open();
        harness.turn_until_last(7, "new");
        // The connection with the announcements is lost, and nothing is known to have changed.
        let lost = harness.end_of(2, |client, context| client.read(context, b"x", 2).unwrap());
        assert_eq!(lost, "Failed(Protocol)");
        to_reply.open();
        assert_eq!(harness.get("c"), "new", "behind the other reply");
        let ended = &harness.app.ended;
        assert!(!ended.values().flatten().any(|it| it == "old"), "{ended:?}");
        assert_eq!(harness.app.count(1), 2 + usize::from(is_read));
    }
}
