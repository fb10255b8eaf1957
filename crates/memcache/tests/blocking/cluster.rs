//! Several servers: placement, failures, and the way back.

use std::time::{Duration, Instant};

use dwell_memcache::{Client, ClientOptions, Culprit, Distribution, Error, Exptime, Timeouts};
use dwell_testkit::{Memcached, Script, ScriptedServer, free_port, wait_until};

use crate::support::{IN_TIME, PATIENCE, TIMEOUT, client, patient, timed, watched};

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("key{n}")).collect()
}

#[test]
fn keys_are_spread_and_found_again() {
    for name in Distribution::names() {
        // New ones each time: a server goes on counting what `flush_all` has emptied.
        let servers = [Memcached::start(), Memcached::start(), Memcached::start()];
        let addresses = servers.each_ref().map(Memcached::address);
        let options = ClientOptions {
            distribution: name.parse().unwrap(),
            ..patient()
        };
        let client = client(&addresses, options);
        let keys = keys(300);
        for key in &keys {
            client.set(key, key, Exptime::Never).unwrap();
        }
        for (key, found) in keys.iter().zip(client.get_multi(&keys)) {
            assert_eq!(found.unwrap().unwrap().data, key.as_bytes(), "{name}");
        }
        let held: Vec<u64> = (client.stats(None).unwrap().into_iter())
            .map(|(_, stats)| {
                let stats = stats.unwrap();
                let items = stats.iter().find(|(name, _)| name == "curr_items");
                items.unwrap().1.parse().unwrap()
            })
            .collect();
        assert_eq!(held.iter().sum::<u64>(), 300, "{name}");
        assert!(held.iter().all(|held| *held > 30), "{name}: {held:?}");
    }
}

#[test]
fn a_server_that_is_gone_takes_only_its_own_keys() {
    let (one, mut other) = (Memcached::start(), Memcached::start());
    let client = client(&[one.address(), other.address()], patient());
    let keys = keys(100);
    for key in &keys {
        client.set(key, "1", Exptime::Never).unwrap();
    }
    other.kill();
    for (key, found) in keys.iter().zip(client.get_multi(&keys)) {
        if client.server_of(key) == 0 {
            assert!(found.unwrap().is_some());
        } else {
            let error = found.unwrap_err();
            assert_eq!(error.fault(), Culprit::Peer);
            assert_eq!(&*error.place().unwrap().server, other.address().to_string());
        }
    }
}

#[test]
fn a_server_that_fails_is_left_alone_and_comes_back() {
    let mut memcached = Memcached::start();
    let client = client(&[memcached.address()], patient());
    client.set("a", "1", Exptime::Never).unwrap();
    memcached.kill();
    for _ in 0..3 {
        let error = client.get("a").unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
    }
    let error = client.get("a").unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(client.statuses()[0].is_ejected);
    memcached.restart();
    assert!(wait_until(|| client.set("a", "2", Exptime::Never).is_ok()));
    assert!(!client.statuses()[0].is_ejected);
    assert_eq!(client.statuses()[0].failures_in_row, 0);
}

#[test]
fn keys_of_a_server_that_is_down_move_on_if_they_may() {
    for name in Distribution::names() {
        let (one, two) = (Memcached::start(), Memcached::start());
        let gone = format!("127.0.0.1:{}", free_port()).parse().unwrap();
        let options = ClientOptions {
            failover: true,
            distribution: name.parse().unwrap(),
            ..patient()
        };
        let client = client(&[one.address(), gone, two.address()], options);
        let keys = keys(60);
        assert!(keys.iter().any(|key| client.server_of(key) == 1), "{name}");
        for key in &keys {
            client.set(key, key, Exptime::Never).unwrap();
        }
        for key in &keys {
            assert_eq!(
                client.get(key).unwrap().unwrap().data,
                key.as_bytes(),
                "{name}"
            );
        }
        assert!(client.statuses()[1].is_ejected, "{name}");
        assert!(client.get_multi(&keys).iter().all(Result::is_ok), "{name}");
    }
}

#[test]
fn a_multi_get_is_bounded_as_a_whole_and_loses_no_answer() {
    for timeouts in [Timeouts::Kernel, Timeouts::Reaper, Timeouts::Strict] {
        let good = Memcached::start();
        let silent = ScriptedServer::start([Script::new().hang()]);
        let client = client(&[silent.address(), good.address()], watched(timeouts));
        let keys = keys(50);
        let mine: Vec<_> = keys
            .iter()
            .filter(|key| client.server_of(key) == 1)
            .collect();
        for key in &mine {
            client.set(key, "1", Exptime::Never).unwrap();
        }
        let (found, took) = timed(|| client.get_multi(&keys));
        assert!(took >= TIMEOUT && took < IN_TIME, "{took:?}");
        for (key, found) in keys.iter().zip(found) {
            match found {
                Ok(value) => assert!(mine.contains(&key) && value.is_some()),
                Err(error) => {
                    assert!(!mine.contains(&key));
                    assert!(
                        matches!(*error, Error::Timeout { written: true, .. }),
                        "{error}"
                    );
                }
            }
        }
    }
}

#[test]
fn nothing_is_tried_for_a_server_that_is_left_alone() {
    let gone = format!("127.0.0.1:{}", free_port()).parse().unwrap();
    let options = ClientOptions {
        retry_delay_min: Duration::from_secs(3600),
        retry_delay_max: Duration::from_secs(3600),
        ..patient()
    };
    let client = client(&[gone], options);
    let started = Instant::now();
    let failed = (0..50).filter(|_| client.get("a").is_err()).count();
    assert_eq!(failed, 50);
    assert_eq!(client.statuses()[0].failures_in_row, 3);
    assert!(started.elapsed() < PATIENCE);
    let found = client.get_multi(&["a"]);
    let error = found[0].as_ref().unwrap_err();
    assert!(matches!(**error, Error::Unavailable { .. }), "{error}");
    let mut pipeline = client.pipeline();
    pipeline.get(b"a");
    assert!(pipeline.run()[0].is_err());
}

/// A multi-get that has to connect first shares its time among the connections.
#[test]
fn servers_that_cannot_be_connected_to_leave_time_for_the_others() {
    use socket2::{Domain, Socket, Type};
    let folder = tempfile::tempdir().unwrap();
    let mut held = Vec::new();
    let mut servers = Vec::new();
    for name in ["one", "two"] {
        let path = folder.path().join(name);
        let address = socket2::SockAddr::unix(&path).unwrap();
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&address).unwrap();
        listener.listen(0).unwrap();
        held.push(listener);
        // Fills the backlog: nobody accepts.
        loop {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            if socket.connect(&address).is_err() {
                break;
            }
            held.push(socket);
        }
        servers.push(path.to_str().unwrap().parse().unwrap());
    }
    let good = Memcached::start();
    servers.push(good.address().to_string().parse().unwrap());
    let client = Client::new(&servers, watched(Timeouts::Kernel)).unwrap();
    let keys = keys(50);
    let (found, took) = timed(|| client.get_multi(&keys));
    assert!(took < IN_TIME, "{took:?}");
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.is_ok(), client.server_of(key) == 2, "{found:?}");
    }
}
