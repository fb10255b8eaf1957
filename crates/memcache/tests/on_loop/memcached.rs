//! The real memcached, from the Debian package.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command};
use std::time::Instant;

use dwell_memcache::on_loop::{ClientOptions, Failure, State};

use crate::harness::{End, Harness, PATIENCE, hit, options, patient, status};

/// A memcached of the test's own, killed when it goes.
struct Memcached {
    process: Child,
    address: SocketAddr,
}

impl Memcached {
    /// Starts on a port of the system's choice.
    fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // memcached runs as another user, who must be able to write here.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(directory.path(), mode).unwrap();
        let path = directory.path().join("ports");
        let mut command = Self::command_line("-1", arguments);
        let process = command
            .env("MEMCACHED_PORT_FILENAME", &path)
            .spawn()
            .expect(INSTALLED);
        let end = Instant::now() + PATIENCE;
        // The file appears under its name when it is complete: "TCP INET: 34567".
        let ports = loop {
            match std::fs::read_to_string(&path) {
                Ok(ports) => break ports,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::yield_now();
        };
        let port = ports
            .lines()
            .find_map(|line| line.strip_prefix("TCP INET: "))
            .unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
        Self { process, address }
    }

    /// Starts where another was before.
    fn start_on(address: SocketAddr) -> Self {
        let port = address.port().to_string();
        let process = Self::command_line(&port, &[]).spawn().expect(INSTALLED);
        Self { process, address }
    }

    fn command_line(port: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("memcached");
        let fixed = [
            "-u",
            "nobody",
            "-U",
            "0",
            "-t",
            "1",
            "-l",
            "127.0.0.1",
            "-p",
            port,
        ];
        command.args(fixed).args(arguments);
        command
    }

    fn connect(&self) -> TcpStream {
        let end = Instant::now() + PATIENCE;
        loop {
            match TcpStream::connect(self.address) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    return stream;
                }
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::yield_now();
        }
    }

    /// Sends a command on a connection of its own and returns the first line of the answer.
    fn command(&self, command: &str) -> String {
        ask(&mut self.connect(), command)
    }

    fn set(&self, key: &str, flags: u32, value: &str) {
        let command = format!("set {key} {flags} 0 {}\r\n{value}\r\n", value.len());
        assert_eq!(self.command(&command), "STORED\r\n");
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Freezes it: the system still accepts for it, and nobody answers.
    fn stop(&self) {
        self.signal("-STOP");
        // The command returns before every thread of the process has stopped.
        let end = Instant::now() + PATIENCE;
        let threads = format!("/proc/{}/task", self.process.id());
        let is_stopped = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        };
        while !(std::fs::read_dir(&threads).unwrap()).all(|thread| is_stopped(thread.unwrap())) {
            assert!(Instant::now() < end, "memcached does not stop");
        }
    }

    fn client(&self, options: ClientOptions) -> Harness {
        let mut harness = Harness::new(&[self.address], options);
        harness.turn_until(|app| status(app).state == State::Up);
        harness
    }
}

/// Sends a command and returns the first line of the answer.
fn ask(stream: &mut TcpStream, command: &str) -> String {
    stream.write_all(command.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn hits_misses_and_versions() {
    let server = Memcached::start(&[]);
    let mut harness = server.client(patient());
    server.set("/poll/alice", 5, "hello");
    server.set("empty", 0, "");
    harness.get("/poll/alice", 0);
    harness.get("nobody", 1);
    harness.get("empty", 2);
    let ends = harness.wait_for_ends(3);
    let End::Hit(value, 5, cas_unique) = &ends[0] else {
        panic!("{ends:?}")
    };
    assert_eq!((value.as_slice(), &ends[1]), (&b"hello"[..], &End::Miss));
    assert!(matches!(&ends[2], End::Hit(value, 0, _) if value.is_empty()));

    harness.version("nobody", 0);
    harness.version("/poll/alice", 1);
    harness.version("neither", 2);
    let expected = [End::Miss, End::Version(*cas_unique), End::Miss];
    assert_eq!(harness.wait_for_ends(3), expected);

    server.set("/poll/alice", 5, "hello");
    harness.version("/poll/alice", 1);
    let ends = harness.wait_for_ends(1);
    assert!(
        matches!(ends[0], End::Version(later) if later > *cas_unique),
        "{ends:?}"
    );
}

#[test]
fn thousands_of_keys_in_a_turn_and_large_values() {
    let server = Memcached::start(&[]);
    let mut harness = server.client(patient());
    let large = "v".repeat(1_000_000);
    server.set("large", 1, &large);
    for index in (0..5000).step_by(500) {
        server.set(&format!("key{index}"), index, "x");
    }
    harness.get("large", 5000);
    for index in 0..5000_u32 {
        harness.get(&format!("key{index}"), u64::from(index));
    }
    for ended in harness.wait_for(5001) {
        match (ended.tag, ended.end) {
            (5000, End::Hit(value, 1, _)) => assert_eq!(value, large.as_bytes()),
            (tag, End::Hit(value, flags, _)) => {
                assert_eq!((u64::from(flags), value.as_slice()), (tag, &b"x"[..]));
            }
            (tag, end) => assert!(end == End::Miss && tag % 500 != 0, "{tag} {end:?}"),
        }
    }
    for index in 0..5000_u32 {
        harness.version(&format!("key{index}"), u64::from(index));
    }
    let found = harness.wait_for(5000);
    assert!(
        found
            .iter()
            .all(|ended| (ended.tag % 500 == 0) == (ended.end != End::Miss))
    );
}

#[test]
fn a_stopped_server_is_given_up_left_alone_and_found_again() {
    let server = Memcached::start(&[]);
    let mut harness = server.client(ClientOptions {
        failures_max: 2,
        ..options()
    });
    server.set("a", 0, "x");
    harness.get("a", 0);
    assert!(matches!(harness.wait_for_ends(1)[0], End::Hit(..)));

    server.stop();
    let begin = Instant::now();
    harness.get("a", 0);
    assert_eq!(harness.wait_for_ends(1), [End::Failed(Failure::Timeout)]);
    assert!(begin.elapsed() < PATIENCE / 2);
    // The system goes on accepting for a stopped process; only the probe tells.
    harness.turn_until(|app| status(app).state == State::Broken);
    harness.get("a", 0);
    assert_eq!(
        harness.wait_for_ends(1),
        [End::Failed(Failure::Unavailable)]
    );

    server.signal("-CONT");
    harness.turn_until(|app| status(app).state == State::Up);
    harness.get("a", 0);
    assert!(
        matches!(harness.wait_for_ends(1)[0], End::Hit(..)),
        "no late answer is taken for it"
    );
}

#[test]
fn a_killed_server_is_found_again_when_it_is_back() {
    let server = Memcached::start(&[]);
    let address = server.address;
    let mut harness = server.client(options());
    server.set("a", 0, "before");
    harness.get("a", 0);
    let epoch = harness.wait_for(1)[0].epoch;
    drop(server);
    harness.turn_until(|app| status(app).state == State::Broken);
    harness.get("a", 0);
    assert_eq!(
        harness.wait_for_ends(1),
        [End::Failed(Failure::Unavailable)]
    );

    let server = Memcached::start_on(address);
    server.set("a", 0, "after");
    harness.turn_until(|app| status(app).state == State::Up);
    harness.get("a", 0);
    let ended = harness.wait_for(1);
    assert!(
        matches!(&ended[0].end, End::Hit(value, 0, _) if value == b"after"),
        "{ended:?}"
    );
    assert!(ended[0].epoch > epoch);
}

#[test]
fn a_full_server_is_not_connected() {
    let server = Memcached::start(&["-c", "30"]);
    let mut others = Vec::new();
    loop {
        let mut other = server.connect();
        if ask(&mut other, "version\r\n").starts_with("ERROR Too many") {
            break;
        }
        others.push(other);
        assert!(others.len() < 100);
    }
    let mut harness = Harness::new(&[server.address], options());
    harness.turn_until(|app| status(app).state == State::Broken);
    assert_eq!(
        harness.status().last_failure,
        Some(Failure::TooManyConnections)
    );
    drop(others);
    harness.turn_until(|app| status(app).state == State::Up);
    harness.get("a", 0);
    assert_eq!(harness.wait_for_ends(1), [End::Miss]);
}

/// Cas uniques off (`-C`): every one is 0, and that is an answer.
#[test]
fn a_server_without_cas_uniques() {
    let server = Memcached::start(&["-C"]);
    server.set("a", 0, "x");
    let mut harness = server.client(patient());
    harness.get("a", 0);
    harness.version("a", 1);
    assert_eq!(harness.wait_for_ends(2), [hit(b"x", 0, 0), End::Version(0)]);
}

const INSTALLED: &str = "the Debian package memcached is installed";
