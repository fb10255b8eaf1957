use dwell_memcache::on_loop::{Client, ClientOptions, Error, ServerOptions};

use crate::harness::{End, Harness, patient};

#[test]
fn keys_that_cannot_be_sent_are_refused_at_once() {
    let (mut harness, _listener, mut peer) = Harness::connected(patient());
    let client = &mut harness.app.client;
    for key in [
        "",
        "a b",
        "a\r\nflush_all",
        "tab\t",
        "nul\0",
        "\x7f",
        &"k".repeat(251),
    ] {
        assert!(
            matches!(client.get(key.as_bytes(), 0), Err(Error::Key(_))),
            "{key:?}"
        );
        assert!(
            matches!(client.version(key.as_bytes(), 0), Err(Error::Key(_))),
            "{key:?}"
        );
    }
    let longest = "k".repeat(250);
    harness.get(&longest, 0);
    harness.get("käse", 1);
    harness.turn();
    peer.expect(&format!("gets {longest} käse\r\n"));
    peer.send("END\r\n");
    assert_eq!(harness.wait_for_ends(2), [End::Miss, End::Miss]);
}

#[test]
fn lines_are_bounded_in_keys_and_bytes() {
    let (mut harness, _listener, mut peer) = Harness::connected(ClientOptions {
        line_keys_max: 3,
        ..patient()
    });
    for tag in 0..7 {
        harness.get(&format!("k{tag}"), tag);
    }
    harness.turn();
    peer.expect("gets k0 k1 k2\r\ngets k3 k4 k5\r\ngets k6\r\n");
    peer.send("END\r\nVALUE k4 0 1 1\r\nx\r\nEND\r\nEND\r\n");
    let tags: Vec<_> = harness
        .wait_for(7)
        .into_iter()
        .map(|ended| ended.tag)
        .collect();
    assert_eq!(tags, [0, 1, 2, 3, 4, 5, 6]);

    let (mut harness, _listener, mut peer) = Harness::connected(ClientOptions {
        line_keys_max: 1000,
        ..patient()
    });
    for tag in 0..100 {
        harness.get(&format!("{tag:0>250}"), tag);
    }
    harness.turn();
    let mut lines = 0;
    let mut tag = 0;
    while tag < 100 {
        peer.expect("gets");
        let mut length = 4;
        while tag < 100 && length + 251 <= 8190 {
            peer.expect(&format!(" {tag:0>250}"));
            (tag, length) = (tag + 1, length + 251);
        }
        peer.expect("\r\n");
        peer.send("END\r\n");
        lines += 1;
    }
    assert!(lines > 1);
    harness.wait_for(100);
}

#[test]
fn what_waits_is_bounded() {
    let (mut harness, _listener, mut peer) = Harness::connected(ClientOptions {
        operations_max: 2,
        ..patient()
    });
    harness.get("a", 0);
    harness.turn();
    harness.version("b", 1);
    let refused = harness.app.client.get(b"c", 2);
    assert_eq!(refused, Err(Error::TooManyOperations { limit: 2 }));
    harness.turn();
    peer.send("END\r\nMN\r\n");
    harness.wait_for(2);
    harness.get("c", 2);

    let (mut harness, _listener, mut peer) = Harness::connected(ClientOptions {
        request_bytes_max: 300,
        ..patient()
    });
    harness.get(&"k".repeat(250), 0);
    let refused = harness.app.client.get(&[b'k'; 40], 1);
    assert!(
        matches!(refused, Err(Error::TooManyRequestBytes { limit: 300, .. })),
        "{refused:?}"
    );
    harness.turn();
    peer.send("END\r\n");
    harness.wait_for(1);
    harness.get(&"k".repeat(250), 0);
}

/// A peer that never reads: what its socket refuses is queued, up to the bound, and then written.
#[test]
fn requests_the_socket_refuses_are_sent_later() {
    let (mut harness, _listener, mut peer) = Harness::connected(ClientOptions {
        operations_max: usize::MAX,
        request_bytes_max: 16 << 20,
        ..patient()
    });
    let mut asked = 0;
    while harness
        .app
        .client
        .get(format!("{asked:0>250}").as_bytes(), asked)
        .is_ok()
    {
        asked += 1;
        if asked % 1000 == 0 {
            harness.turn();
        }
    }
    assert!(asked > 60_000, "{asked}");
    harness.turn();
    let server = std::thread::spawn(move || {
        let mut tag = 0;
        while tag < asked {
            peer.expect("gets");
            // Each turn's thousand keys are cut into full lines and a rest.
            let mut length = 4;
            while tag < asked && length <= 8192 - 250 && (length == 4 || tag % 1000 != 0) {
                peer.expect(&format!(" {tag:0>250}"));
                (tag, length) = (tag + 1, length + 251);
            }
            peer.expect("\r\n");
            peer.send("END\r\n");
        }
    });
    harness.turn_until(|app| app.ended.len() as u64 == asked);
    assert!(harness.app.ended.iter().all(|ended| ended.end == End::Miss));
    server.join().unwrap();
    assert_eq!(harness.app.client.operations(), 0);
}

#[test]
fn wrong_options_are_refused() {
    let server = || ServerOptions::new("127.0.0.1:1".parse().unwrap());
    let make = |servers: &[ServerOptions], options| Client::new(1, servers, options).err();
    assert_eq!(make(&[], ClientOptions::default()), Some(Error::NoServers));
    let weightless = ServerOptions {
        weight: 0,
        ..server()
    };
    let refused = make(&[server(), weightless], ClientOptions::default());
    assert_eq!(refused, Some(Error::ZeroWeight { server: 1 }));
    let options = ClientOptions {
        failures_max: 0,
        ..ClientOptions::default()
    };
    let refused = make(&[server()], options).unwrap();
    assert_eq!(refused.to_string(), "failures_max is 0");
    assert!(make(&[server()], ClientOptions::default()).is_none());
}
