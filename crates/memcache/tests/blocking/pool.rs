//! Threads that share a client, and the connections they leave behind.

use std::time::Duration;

use dwell_memcache::{ClientOptions, Exptime, Timeouts};
use dwell_testkit::{Memcached, Script, ScriptedServer};

use crate::support::{EVERY_WATCH, client, patient};

#[test]
fn threads_share_a_client() {
    for timeouts in EVERY_WATCH {
        let memcached = Memcached::start();
        let options = ClientOptions {
            timeouts,
            ..patient()
        };
        let client = client(&[memcached.address()], options);
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let client = client.clone();
                scope.spawn(move || {
                    for n in 0..200 {
                        let key = format!("{thread}-{n}");
                        client.set(&key, &key, Exptime::Never).unwrap();
                        let value = client.get(&key).unwrap().unwrap();
                        assert_eq!(value.data, key.as_bytes());
                    }
                });
            }
        });
        assert!(client.statuses()[0].idle_connections <= 8);
    }
}

#[test]
fn a_connection_is_used_again() {
    let script = (0..10).fold(Script::new(), |script, _| {
        script.expect("get a\r\n").send("END\r\n")
    });
    let server = ScriptedServer::start([script]);
    let client = client(&[server.address()], patient());
    for _ in 0..10 {
        assert_eq!(client.get("a").unwrap(), None);
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn one_that_was_idle_too_long_is_not() {
    let script = || Script::new().expect("get a\r\n").send("END\r\n").hang();
    let server = ScriptedServer::start([script(), script()]);
    let options = ClientOptions {
        idle_timeout: Duration::ZERO,
        ..patient()
    };
    let client = client(&[server.address()], options);
    for _ in 0..2 {
        assert_eq!(client.get("a").unwrap(), None);
    }
    assert_eq!(server.connections(), 2);
}

#[test]
fn another_timeout_for_some_operations() {
    for timeouts in EVERY_WATCH {
        let script = Script::new().expect("get a\r\n").send("END\r\n");
        let server = ScriptedServer::start([script.hang()]);
        let options = ClientOptions {
            timeouts,
            ..patient()
        };
        let client = client(&[server.address()], options);
        assert_eq!(client.get("a").unwrap(), None);
        let hasty = client.with_timeout(Some(Duration::from_millis(50)));
        assert!(hasty.get("a").is_err());
    }
}

#[test]
fn a_client_may_be_shared() {
    fn is_shared<T: Send + Sync + Clone + 'static>() {}
    is_shared::<dwell_memcache::Client>();
    assert_eq!(Timeouts::default(), Timeouts::Kernel);
}
