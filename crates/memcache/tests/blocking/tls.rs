//! The real memcached under TLS, and servers that stall or are others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dwell_memcache::{
    Carried, Certificate, Client, ClientOptions, ClientTls, Culprit, Error, Exchange, Exptime,
    Interruption, Roots, SecureFault, Secured, Timeouts, Tls,
};
use dwell_testkit::{GUARD, Memcached, Script, ScriptedServer};

use crate::support::{EVERY_WATCH, IN_TIME, TIMEOUT, client, patient, timed, watched};

/// A certificate for 127.0.0.1, dwell.test and localhost.
const CERTIFICATE: &[u8] = include_bytes!("../../../tls/tests/data/certificate.pem");
const KEY: &[u8] = include_bytes!("../../../tls/tests/data/key.pem");
const OTHER: &[u8] = include_bytes!("../../../tls/tests/data/other.pem");

/// A memcached that speaks TLS alone.
pub(crate) fn secure_memcached() -> Memcached {
    start_with(&["-I", "4m"])
}

fn start_with(arguments: &[&str]) -> Memcached {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../tls/tests/data");
    let chain = format!("ssl_chain_cert={data}/certificate.pem");
    let key = format!("ssl_key={data}/key.pem");
    let secure = ["-Z", "-o", &*chain, "-o", &*key];
    Memcached::start_asked(&[arguments, &secure].concat(), pid_of)
}

fn pid_of(address: SocketAddr) -> Option<u32> {
    let (_, stats) = client(&[address], secure()).stats(None).ok()?.pop()?;
    let pid = stats.ok()?.into_iter().find(|(name, _)| name == "pid")?;
    pid.1.parse().ok()
}

fn trusting(roots: &[u8]) -> Tls {
    Tls::new(ClientTls::new(&Roots::from_pem(roots).unwrap(), None, &[]).unwrap())
}

/// Options under which nothing times out.
pub(crate) fn secure() -> ClientOptions {
    ClientOptions {
        tls: Some(trusting(CERTIFICATE)),
        ..patient()
    }
}

/// Options under which operations time out, and connections do not.
fn secure_watched(timeouts: Timeouts) -> ClientOptions {
    ClientOptions {
        tls: Some(trusting(CERTIFICATE)),
        ..watched(timeouts)
    }
}

fn get(client: &Client) -> Result<(), Error> {
    client.get("a").map(drop)
}

#[test]
fn operations_of_every_size_are_answered() {
    let servers = [secure_memcached(), secure_memcached()];
    let addresses: Vec<_> = servers.iter().map(Memcached::address).collect();
    for timeouts in EVERY_WATCH {
        let options = ClientOptions {
            timeouts,
            ..secure()
        };
        let client = client(&addresses, options);
        for length in [0, 1, 16_000, 16_384, 50_000, 1 << 20] {
            let value = vec![b'x'; length - usize::from(length == 1 << 20) * 1024];
            client.set("a", &value, Exptime::Never).unwrap();
            assert!(client.get("a").unwrap().unwrap().data == value, "{length}");
        }
        let keys: Vec<_> = (0..500).map(|number| format!("key-{number}")).collect();
        let value = vec![b'y'; 2_000];
        let mut pipeline = client.pipeline();
        for key in &keys {
            pipeline.set(key.as_bytes(), &value, Exptime::Never.into());
        }
        assert!(pipeline.run().iter().all(Result::is_ok));
        let found = client.get_multi(&keys);
        assert!(
            found
                .into_iter()
                .all(|found| found.unwrap().unwrap().data == value)
        );
        let idle: Vec<_> = client.statuses();
        assert!(idle.iter().all(|status| status.idle_connections == 1));
    }
}

#[test]
fn a_certificate_for_another_name_is_refused_and_told() {
    let memcached = secure_memcached();
    let named = |name: &str| ClientOptions {
        tls: Some(trusting(CERTIFICATE).with_server_name(name)),
        ..secure()
    };
    get(&client(&[memcached.address()], named("dwell.test"))).unwrap();
    let client = client(&[memcached.address()], named("elsewhere.test"));
    let error = get(&client).unwrap_err();
    let Error::Certificate { host, reason, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(&**host, "elsewhere.test");
    assert!(reason.starts_with("it is for other names: "), "{reason}");
    let told = "certificate of elsewhere.test is refused: it is for other names: ";
    assert!(error.to_string().contains(told), "{error}");
    assert_eq!(
        (error.fault(), error.is_ambiguous()),
        (Culprit::Peer, false)
    );
    assert_eq!(client.statuses()[0].idle_connections, 0);
    assert_eq!(client.statuses()[0].failures_in_row, 1);
}

#[test]
fn a_certificate_of_an_unknown_issuer_is_refused() {
    let memcached = secure_memcached();
    let options = ClientOptions {
        tls: Some(trusting(OTHER)),
        ..secure()
    };
    let error = get(&client(&[memcached.address()], options)).unwrap_err();
    let Error::Certificate { host, reason, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(&**host, "127.0.0.1");
    assert!(reason.contains("not trusted"), "{reason}");
}

#[test]
fn a_server_that_asks_is_shown_a_certificate() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../tls/tests/data");
    let authority = format!("ssl_ca_cert={data}/certificate.pem");
    let memcached = start_with(&["-o", &authority, "-o", "ssl_verify_mode=1"]);
    let identity = Certificate::from_pem(CERTIFICATE, KEY).unwrap();
    let roots = Roots::from_pem(CERTIFICATE).unwrap();
    let settings = ClientTls::new(&roots, Some(&identity), &[]).unwrap();
    let options = ClientOptions {
        tls: Some(Tls::new(settings)),
        ..patient()
    };
    let client = client(&[memcached.address()], options);
    client.set("a", "1", Exptime::Never).unwrap();
    assert_eq!(client.get("a").unwrap().unwrap().data, b"1");
}

#[test]
fn a_host_that_no_certificate_can_be_for_makes_no_client() {
    let error = Client::new(&["/run/memcached".parse().unwrap()], secure()).unwrap_err();
    assert!(matches!(error, Error::ServerName { .. }), "{error}");
    assert_eq!(error.fault(), Culprit::Caller);
}

#[test]
fn a_server_without_tls_is_told_apart() {
    let server = ScriptedServer::start([Script::new().read_bytes(1).send("ERROR\r\n").hang()]);
    let error = get(&client(&[server.address()], secure())).unwrap_err();
    assert!(
        matches!(error, Error::Tls { written: false, .. }),
        "{error}"
    );
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "127.0.0.1 does not speak TLS");
}

#[test]
fn a_handshake_that_stalls_or_drips_ends_with_the_time_to_connect() {
    let drip = [[22, 3, 3, 64, 0].as_slice(), &[0; 100]].concat();
    for script in [
        Script::new().hang(),
        Script::new().drip(drip, Duration::from_millis(150)),
    ] {
        let server = ScriptedServer::start([script]);
        let options = ClientOptions {
            connect_timeout: TIMEOUT,
            ..secure()
        };
        let client = client(&[server.address()], options);
        let (result, took) = timed(|| get(&client));
        let error = result.unwrap_err();
        assert!(
            matches!(error, Error::Timeout { written: false, .. }),
            "{error}"
        );
        assert!(took >= TIMEOUT && took < IN_TIME, "{took:?}");
    }
}

#[test]
fn a_server_that_leaves_within_the_handshake_is_a_closed_one() {
    let server = ScriptedServer::start([Script::new().read_bytes(1)]);
    let error = get(&client(&[server.address()], secure())).unwrap_err();
    assert!(
        matches!(error, Error::Closed { written: false, .. }),
        "{error}"
    );
}

/// The operation ends in a timeout of the right length, and its connection with it.
fn assert_times_out(client: &Client) {
    let (result, took) = timed(|| get(client));
    let error = result.unwrap_err();
    assert!(
        matches!(error, Error::Timeout { written: true, .. }),
        "{error}"
    );
    assert!(error.place().unwrap().elapsed >= TIMEOUT, "{error}");
    assert!(took < IN_TIME, "{took:?}");
    assert_eq!(client.statuses()[0].idle_connections, 0);
}

#[test]
fn a_frozen_server_is_given_up_in_time_and_used_again() {
    for timeouts in EVERY_WATCH {
        let memcached = secure_memcached();
        let client = client(&[memcached.address()], secure_watched(timeouts));
        client
            .with_timeout(Some(GUARD))
            .set("a", "1", Exptime::Never)
            .unwrap();
        memcached.stop();
        assert_times_out(&client);
        memcached.cont();
        let value = client.with_timeout(Some(GUARD)).get("a").unwrap();
        assert_eq!(value.unwrap().data, b"1");
    }
}

#[test]
fn records_that_drip_are_given_up_in_time() {
    for timeouts in EVERY_WATCH {
        let memcached = secure_memcached();
        let relay = Relay::start(memcached.address());
        let client = client(&[relay.address], secure_watched(timeouts));
        client
            .with_timeout(Some(GUARD))
            .set("a", "1", Exptime::Never)
            .unwrap();
        relay.drips.store(true, Ordering::SeqCst);
        assert_times_out(&client);
    }
}

#[test]
fn a_restarted_server_is_noticed_without_an_error() {
    let mut memcached = secure_memcached();
    let client = client(&[memcached.address()], secure());
    client.set("a", "1", Exptime::Never).unwrap();
    memcached.restart();
    assert_eq!(client.get("a").unwrap(), None);
}

/// Carries the exchanges of one operation over TLS, in pieces of this size.
fn carry_exchanges(
    exchanges: &mut [Exchange],
    secured: &mut Secured,
    socket: &mut TcpStream,
    size: usize,
) -> Result<(), SecureFault> {
    let mut input = vec![0; 64 * 1024];
    let mut asked = false;
    while !exchanges[0].is_over() {
        if secured.is_ready() && !asked {
            secured.seal(exchanges[0].request())?;
            asked = true;
        }
        socket.write_all(&secured.transmit()).unwrap();
        if secured.is_ready() && !asked {
            continue;
        }
        let count = socket.read(&mut input).unwrap();
        assert!(count > 0, "memcached has left");
        for piece in input[..count].chunks(size) {
            let data = secured.receive(piece);
            socket.write_all(&secured.transmit()).unwrap();
            match data? {
                data if data.is_empty() => {}
                data => drop(exchanges[0].receive(&data)),
            }
        }
    }
    Ok(())
}

#[test]
fn bytes_that_the_caller_carries_are_under_tls() {
    let memcached = secure_memcached();
    let client = client(&[memcached.address()], secure());
    let value: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
    client.set("a", &value, Exptime::Never).unwrap();
    for size in [1, 5, 1000, 64 * 1024] {
        let mut socket = TcpStream::connect(memcached.address()).unwrap();
        let mut secured = Carried::of(&client).secure(0).unwrap().unwrap();
        assert!(!secured.is_ready() && secured.seal(b"get a\r\n").is_err());
        // The second one begins with what the first has left.
        for _ in 0..2 {
            let (mut exchanges, finish) = Carried::of(&client).get(b"a").unwrap().into_parts();
            carry_exchanges(&mut exchanges, &mut secured, &mut socket, size).unwrap();
            assert!(finish(exchanges).unwrap().unwrap().data == value, "{size}");
        }
        assert!(!secured.is_ended());
        secured.close();
        socket.write_all(&secured.transmit()).unwrap();
        let mut rest = Vec::new();
        assert!(socket.read_to_end(&mut rest).is_ok(), "memcached hears it");
    }
}

#[test]
fn a_fault_of_tls_ends_an_exchange_that_the_caller_carries() {
    let memcached = secure_memcached();
    let options = ClientOptions {
        tls: Some(trusting(OTHER)),
        ..secure()
    };
    let other = client(&[memcached.address()], options);
    let mut socket = TcpStream::connect(memcached.address()).unwrap();
    let mut secured = Carried::of(&other).secure(0).unwrap().unwrap();
    let (mut exchanges, finish) = Carried::of(&other).get(b"a").unwrap().into_parts();
    let fault = carry_exchanges(&mut exchanges, &mut secured, &mut socket, 4096).unwrap_err();
    assert_eq!(fault.to_string(), "handshake of TLS failed");
    assert!(secured.receive(b"more").unwrap().is_empty());
    exchanges[0].interrupt(Interruption::Tls(fault), false);
    let error = finish(exchanges).unwrap_err();
    assert!(matches!(error, Error::Certificate { .. }), "{error}");

    let plain = client(&[memcached.address()], patient());
    assert!(Carried::of(&plain).secure(0).is_none());
}

/// Carries the bytes of one connection, those to the client one at a time once it drips.
struct Relay {
    address: SocketAddr,
    drips: Arc<AtomicBool>,
}

impl Relay {
    fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let drips = Arc::new(AtomicBool::new(false));
        let is_slow = Arc::clone(&drips);
        std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(server).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            // Either end closing ends it.
            let _ = carry(server, client, &is_slow);
        });
        Self { address, drips }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_slow: &AtomicBool) -> std::io::Result<()> {
    let mut bytes = [0; 16 * 1024];
    to.set_nodelay(true)?;
    loop {
        let count = from.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        if !is_slow.load(Ordering::SeqCst) {
            to.write_all(&bytes[..count])?;
            continue;
        }
        for byte in &bytes[..count] {
            to.write_all(&[*byte])?;
            std::thread::sleep(Duration::from_millis(150));
        }
    }
}
