//! Servers that are slow, silent, wrong or gone.

use std::io::{Read, Write};
use std::thread::JoinHandle;
use std::time::Duration;

use dwell_memcache::{Client, ClientOptions, Culprit, Error, Exptime};
use dwell_testkit::{Memcached, Script, ScriptedServer};

use crate::support::{
    EVERY_WATCH, IN_TIME, TIMEOUT, client, patient, patient_meta, timed, watched,
};

fn with_server(script: Script, options: ClientOptions) -> (Client, ScriptedServer) {
    let server = ScriptedServer::start([script]);
    (client(&[server.address()], options), server)
}

/// The operation ends in a timeout of the right length that says where it was.
fn assert_times_out(client: &Client, work: impl FnOnce(&Client) -> Result<(), Error>) {
    let (result, took) = timed(|| work(client));
    let error = result.unwrap_err();
    assert!(
        matches!(error, Error::Timeout { written: true, .. }),
        "{error}"
    );
    assert!(error.is_ambiguous() && error.fault() == Culprit::Peer);
    let place = error.place().unwrap();
    assert_eq!(place.limit, Some(TIMEOUT));
    assert!(place.elapsed >= TIMEOUT, "{error}");
    assert_eq!(place.server, client.statuses()[0].server);
    assert!(took < IN_TIME, "{took:?}");
    assert_eq!(client.statuses()[0].idle_connections, 0);
}

fn get(client: &Client) -> Result<(), Error> {
    client.get("a").map(drop)
}

const HIT: &str = "VALUE a 0 20\r\nxxxxxxxxxxxxxxxxxxxx\r\nEND\r\n";
const PAUSE: Duration = Duration::from_millis(150);

#[test]
fn a_server_that_never_answers_is_given_up_in_time() {
    for timeouts in EVERY_WATCH {
        let (client, _server) = with_server(Script::new().hang(), watched(timeouts));
        assert_times_out(&client, get);
    }
}

#[test]
fn a_server_that_drips_is_given_up_in_time() {
    for timeouts in EVERY_WATCH {
        let script = Script::new().expect("get a\r\n").drip(HIT, PAUSE);
        let (client, _server) = with_server(script, watched(timeouts));
        assert_times_out(&client, get);
    }
}

#[test]
fn on_a_connection_that_was_used_before_too() {
    for timeouts in EVERY_WATCH {
        let script = Script::new().expect("get a\r\n").send(HIT);
        let script = script.expect("get a\r\n").drip(HIT, PAUSE);
        let (client, _server) = with_server(script, watched(timeouts));
        get(&client).unwrap();
        assert_times_out(&client, get);
    }
    for timeouts in EVERY_WATCH {
        let script = Script::new().expect("get a\r\n").send(HIT);
        let (client, _server) = with_server(script.expect("get a\r\n").hang(), watched(timeouts));
        get(&client).unwrap();
        assert_times_out(&client, get);
    }
}

#[test]
fn half_a_reply_is_no_reply() {
    for timeouts in EVERY_WATCH {
        let script = Script::new()
            .expect("get a\r\n")
            .send(&HIT[..HIT.len() - 5])
            .hang();
        let (client, _server) = with_server(script, watched(timeouts));
        assert_times_out(&client, get);
        let script = Script::new().expect("get a\r\n").send(&HIT[..30]);
        let (client, _server) = with_server(script, watched(timeouts));
        let error = get(&client).unwrap_err();
        assert!(
            matches!(error, Error::Closed { written: true, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_line_without_an_end_is_bounded_too() {
    for timeouts in EVERY_WATCH {
        let script = Script::new()
            .expect("set a 0 0 1\r\n1\r\n")
            .drip("STORED\r\n", PAUSE);
        let (client, _server) = with_server(script, watched(timeouts));
        assert_times_out(&client, |client| client.set("a", "1", Exptime::Never));
    }
}

#[test]
fn a_late_reply_is_never_anothers() {
    for timeouts in EVERY_WATCH {
        let late = Script::new()
            .expect("get a\r\n")
            .drip("VALUE a 0 3\r\nold\r\nEND\r\n", TIMEOUT / 8);
        let good = Script::new()
            .expect("get a\r\n")
            .send("VALUE a 0 3\r\nnew\r\nEND\r\n");
        let server = ScriptedServer::start([late, good.hang()]);
        let client = client(&[server.address()], watched(timeouts));
        assert!(get(&client).is_err());
        assert_eq!(client.get("a").unwrap().unwrap().data, b"new");
        assert_eq!(server.connections(), 2);
    }
}

#[test]
fn a_wrong_reply_is_an_error_and_ends_the_connection() {
    for reply in [
        "VALUE b 0 1\r\n1\r\nEND\r\n",
        "VALUE a 0 1\r\n1\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
        "STORED\r\n",
        "HD O1\r\n",
        "VALUE a 0 1\r\n1\r\nEND\r\nEND\r\n",
        "VALUE a 0 1\r\n123\r\nEND\r\n",
        "VALUE a 0 99999999999\r\n",
        "nonsense\r\n",
        "END\n",
    ] {
        let script = Script::new().expect("get a\r\n").send(reply).expect_end();
        let (client, server) = with_server(script, patient());
        let error = get(&client).unwrap_err();
        let is_wrong = matches!(error, Error::Unexpected { .. } | Error::Malformed { .. });
        assert!(is_wrong && error.is_ambiguous(), "{reply:?}: {error}");
        assert_eq!(error.fault(), Culprit::Peer);
        drop(client);
        server.finish();
    }
}

#[test]
fn a_meta_reply_carries_the_opaque_of_its_request() {
    for reply in [
        "VA 1 f0 O2\r\n1\r\n",
        "VA 1 f0\r\n1\r\n",
        "EN O7\r\n",
        "END\r\n",
    ] {
        let script = Script::new().read_until("\r\n").send(reply).expect_end();
        let (client, server) = with_server(script, patient_meta());
        let error = get(&client).unwrap_err();
        assert!(
            matches!(error, Error::Unexpected { .. }),
            "{reply:?}: {error}"
        );
        drop(client);
        server.finish();
    }
}

#[test]
fn too_many_connections_is_not_an_unknown_command() {
    let refuse = || Script::new().send("ERROR Too many open connections\r\n");
    let (client, _server) = with_server(refuse(), patient());
    let error = get(&client).unwrap_err();
    assert!(matches!(error, Error::TooManyConnections { .. }), "{error}");
    assert_eq!(error.fault(), Culprit::Peer);
}

#[test]
fn a_full_memcached_says_so() {
    let memcached = Memcached::start_with(&["-c", "40"]);
    let held = memcached.fill();
    let client = client(&[memcached.address()], patient());
    let error = get(&client).unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooManyConnections { .. } | Error::Closed { .. }
        ),
        "{error}"
    );
    drop(held);
}

#[test]
fn an_error_line_names_what_the_server_says() {
    let script = Script::new()
        .expect("get a\r\n")
        .send("SERVER_ERROR out of memory\r\n")
        .expect("get a\r\n")
        .send("END\r\n");
    let (client, server) = with_server(script, patient());
    let error = get(&client).unwrap_err().to_string();
    assert!(error.starts_with("get on 127.0.0.1:"), "{error}");
    assert!(
        error.ends_with("server answered SERVER_ERROR out of memory"),
        "{error}"
    );
    get(&client).unwrap();
    drop(client);
    server.finish();
}

#[test]
fn data_that_was_refused_is_not_taken_for_commands() {
    let script = Script::new()
        .read_until("1\r\n1\r\n")
        .send("CLIENT_ERROR bad data chunk\r\n")
        .expect_end();
    let (client, server) = with_server(script, patient());
    let error = client.set("a", "1", Exptime::Never).unwrap_err();
    assert!(matches!(error, Error::ErrorLine { .. }), "{error}");
    drop(client);
    server.finish();
}

#[test]
fn a_frozen_server_is_given_up_in_time_and_used_again() {
    for timeouts in EVERY_WATCH {
        let memcached = Memcached::start();
        let client = client(&[memcached.address()], watched(timeouts));
        client.set("a", "1", Exptime::Never).unwrap();
        memcached.stop();
        assert_times_out(&client, get);
        memcached.cont();
        assert_eq!(client.get("a").unwrap().unwrap().data, b"1");
    }
}

#[test]
fn a_restarted_server_is_noticed_without_an_error() {
    let mut memcached = Memcached::start();
    let client = client(&[memcached.address()], patient());
    client.set("a", "1", Exptime::Never).unwrap();
    memcached.restart();
    assert_eq!(client.get("a").unwrap(), None);
    client.set("a", "2", Exptime::Never).unwrap();
    memcached.restart();
    client.set("a", "3", Exptime::Never).unwrap();
    assert_eq!(client.get("a").unwrap().unwrap().data, b"3");
}

#[test]
fn what_cannot_be_repeated_is_not() {
    let first = Script::new()
        .expect("get a\r\n")
        .send("END\r\n")
        .expect("incr a 1\r\n");
    let server = ScriptedServer::start([first]);
    let client = client(&[server.address()], patient());
    get(&client).unwrap();
    let error = client.incr("a", 1).unwrap_err();
    assert!(
        matches!(error, Error::Closed { written: true, .. }),
        "{error}"
    );
    assert_eq!(server.connections(), 1);
    server.finish();
}

#[test]
fn a_full_backlog_bounds_the_connection_attempt() {
    use socket2::{Domain, Socket, Type};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full");
    let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    let address = socket2::SockAddr::unix(&path).unwrap();
    listener.bind(&address).unwrap();
    listener.listen(0).unwrap();
    // Fills the backlog: nobody accepts.
    let mut waiting = Vec::new();
    loop {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        if socket.connect(&address).is_err() {
            break;
        }
        waiting.push(socket);
    }
    let server = path.to_str().unwrap().parse().unwrap();
    let options = ClientOptions {
        connect_timeout: TIMEOUT,
        ..watched(dwell_memcache::Timeouts::Kernel)
    };
    let client = Client::new(&[server], options).unwrap();
    let (result, took) = timed(|| get(&client));
    let error = result.unwrap_err();
    assert!(
        matches!(error, Error::Timeout { written: false, .. }),
        "{error}"
    );
    assert!(!error.is_ambiguous());
    assert!(took >= TIMEOUT && took < IN_TIME, "{took:?}");
}

#[test]
fn unix_sockets_are_servers_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memcached");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let answered = answer_one_get(move || listener.accept().unwrap().0);
    let server = path.to_str().unwrap().parse().unwrap();
    let client = Client::new(&[server], patient()).unwrap();
    assert_eq!(client.get("a").unwrap(), None);
    answered.join().unwrap();
}

#[test]
fn ipv6_and_names_are_looked_up_and_connected_to() {
    let listener = std::net::TcpListener::bind("[::1]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answered = answer_one_get(move || listener.accept().unwrap().0);
    let server = format!("[::1]:{port}").parse().unwrap();
    let client = Client::new(&[server], patient()).unwrap();
    assert_eq!(client.get("a").unwrap(), None);
    answered.join().unwrap();

    let memcached = Memcached::start();
    let server = format!("localhost:{}", memcached.port()).parse().unwrap();
    let client = Client::new(&[server], patient()).unwrap();
    client.set("a", "1", Exptime::Never).unwrap();
    assert_eq!(client.get("a").unwrap().unwrap().data, b"1");

    let server = "no-such-host.invalid".parse().unwrap();
    let client = Client::new(&[server], patient()).unwrap();
    let error = get(&client).unwrap_err();
    assert!(matches!(error, Error::Resolve { .. }), "{error}");
    assert_eq!(error.fault(), Culprit::System);
}

fn answer_one_get<S: Read + Write>(accept: impl FnOnce() -> S + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut stream = accept();
        let mut request = [0; 7];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(&request, b"get a\r\n");
        stream.write_all(b"END\r\n").unwrap();
    })
}
