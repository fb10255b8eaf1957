//! Servers under TLS: the real memcached, and one that leaves within the handshake.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use dwell_evloop::{ClientTls, Connector, HandshakeFailure, Roots};
use dwell_memcache::on_loop::{ClientOptions, Failure, ServerOptions};
use dwell_memcache::{Client, ClientOptions as BlockingOptions, Tls};
use dwell_testkit::Memcached;

use crate::harness::{End, Harness, listen, patient, status};

/// A certificate for 127.0.0.1, dwell.test and localhost.
const CERTIFICATE: &[u8] = include_bytes!("../../../tls/tests/data/certificate.pem");

fn settings() -> ClientTls {
    ClientTls::new(&Roots::from_pem(CERTIFICATE).unwrap(), None, &[]).unwrap()
}

fn pid_of(address: SocketAddr) -> Option<u32> {
    let options = BlockingOptions {
        tls: Some(Tls::new(settings())),
        ..BlockingOptions::default()
    };
    let client = Client::new(&[address.to_string().parse().ok()?], options).ok()?;
    let (_, stats) = client.stats(None).ok()?.pop()?;
    let pid = stats.ok()?.into_iter().find(|(name, _)| name == "pid")?;
    pid.1.parse().ok()
}

fn secure_memcached() -> Memcached {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../tls/tests/data");
    let chain = format!("ssl_chain_cert={data}/certificate.pem");
    let key = format!("ssl_key={data}/key.pem");
    Memcached::start_asked(&["-Z", "-o", &chain, "-o", &key], pid_of)
}

fn secured(address: SocketAddr, options: ClientOptions) -> Harness {
    let connector: Connector = settings().connector("127.0.0.1").unwrap();
    let server = ServerOptions {
        tls: Some(connector),
        ..ServerOptions::new(address)
    };
    Harness::with_servers(&[server], options)
}

/// memcached leaves what its buffer of 16 KiB has no room for in OpenSSL, and waits for its socket.
#[test]
fn a_turn_of_many_records_is_answered() {
    let server = secure_memcached();
    let mut harness = secured(server.address(), patient());
    for size in [1_000, 16_000, 20_000, 50_000, 150_000] {
        let value = "v".repeat(size);
        for (tag, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
            harness.set(key, &value, tag as u64);
        }
        for (tag, key) in ["d", "c", "b", "a"].into_iter().enumerate() {
            harness.get(key, 4 + tag as u64);
        }
        let ends = harness.wait_for_ends(8);
        let is_it = |end: &End| matches!(end, End::Hit(found, ..) if found == value.as_bytes());
        assert!(ends[4..].iter().all(is_it), "{size}");
    }
    let keys: Vec<_> = (0..2_000).map(|number| format!("{number:0200}")).collect();
    for (tag, key) in keys.iter().enumerate() {
        harness.get(key, tag as u64);
    }
    assert_eq!(harness.wait_for_ends(2_000), vec![End::Miss; 2_000]);
}

/// The end comes with the beginning of a record, and no further readiness tells of it.
#[test]
fn a_server_that_leaves_within_the_handshake_is_given_up_at_once() {
    let (listener, address) = listen();
    let mut harness = secured(
        address,
        ClientOptions {
            connect_timeout: Duration::from_secs(600),
            ..patient()
        },
    );
    leave_within_the_handshake(&listener, || harness.turn());
    harness.turn_until(|app| status(app).statistics.failures > 0);
    assert_eq!(harness.status().last_failure, Some(Failure::Handshake));
    let reasons: Vec<_> = harness.app.client.handshake_errors().collect();
    assert_eq!(reasons, [Some("connection closed by the server")]);
    let counts = harness.app.client.take_handshakes();
    let failed: Vec<_> = counts.failed().collect();
    assert_eq!(failed, [(HandshakeFailure::Closed, 1)]);
}

fn leave_within_the_handshake(listener: &TcpListener, mut turn: impl FnMut()) {
    let (mut stream, _) = listener.accept().unwrap();
    turn();
    let mut header = [0; 5];
    stream.read_exact(&mut header).unwrap();
    let length = u16::from_be_bytes([header[3], header[4]]);
    stream
        .read_exact(&mut vec![0; usize::from(length)])
        .unwrap();
    stream.write_all(&[22, 3, 3, 0, 100, 2]).unwrap();
}
