//! A real memcached of the machine's own package.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{GUARD, free_port, loopback, wait_until};

/// Ports tried before giving up, because another process may take one between our looks.
const ATTEMPTS: usize = 5;

/// Connections that no server which [`Memcached::fill`] fills may serve.
const MANY: usize = 1000;

/// A memcached process on a loopback port, ended when dropped.
///
/// ```no_run
/// let mut memcached = dwell_testkit::Memcached::start();
/// let address = memcached.address();
/// memcached.stop(); // it accepts connections and answers nothing
/// memcached.cont();
/// memcached.kill();
/// memcached.restart(); // empty, on the same port
/// assert_eq!(memcached.address(), address);
/// ```
#[derive(Debug)]
pub struct Memcached {
    child: Option<Child>,
    port: u16,
    arguments: Vec<String>,
    /// Asks the server at an address for its process id.
    ask: fn(SocketAddr) -> Option<u32>,
}

impl Memcached {
    /// Starts memcached on a free port and waits until it answers.
    ///
    /// # Panics
    /// If the binary is missing, naming the package to install, or if it does not start.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts memcached with more arguments.
    ///
    /// # Panics
    /// As [`Memcached::start`].
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_asked(arguments, answering_pid)
    }

    /// Starts memcached with more arguments, and waits until `ask` gets its process id: for a
    /// server that speaks TLS.
    ///
    /// # Panics
    /// As [`Memcached::start`].
    pub fn start_asked(arguments: &[&str], ask: fn(SocketAddr) -> Option<u32>) -> Self {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        for _ in 0..ATTEMPTS {
            let port = free_port();
            if let Some(child) = launch(port, &arguments, ask) {
                return Self {
                    child: Some(child),
                    port,
                    arguments,
                    ask,
                };
            }
        }
        panic!("memcached did not start on any of {ATTEMPTS} free ports, with {arguments:?}");
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        loopback(self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A connection to it.
    ///
    /// # Panics
    /// If it refuses.
    pub fn connect(&self) -> TcpStream {
        connect(self.port).unwrap_or_else(|error| panic!("memcached refuses: {error}"))
    }

    /// Opens connections until it has no room for one more, and returns those that it serves.
    ///
    /// Each is answered before the next is opened: memcached accepts in one thread and counts a
    /// connection in another, so a burst of connections goes beyond its limit (`-c`).
    ///
    /// # Panics
    /// If it serves too many connections, or answers neither a version nor the refusal.
    pub fn fill(&self) -> Vec<TcpStream> {
        let mut served = Vec::new();
        loop {
            let mut stream = self.connect();
            let line = version_line(&mut stream);
            if line.starts_with("ERROR Too many open connections") {
                return served;
            }
            assert!(line.starts_with("VERSION "), "{line:?}");
            served.push(stream);
            assert!(served.len() < MANY, "memcached serves {MANY} connections");
        }
    }

    /// Freezes the process (SIGSTOP): the kernel still accepts, nobody answers.
    ///
    /// # Panics
    /// If it does not run, or cannot be stopped.
    pub fn stop(&self) {
        self.signal("STOP");
        // The command returns before every thread of the process has stopped.
        assert!(
            wait_until(|| self.is_stopped() != Some(false)),
            "memcached did not stop"
        );
    }

    /// Lets a frozen process go on (SIGCONT).
    ///
    /// # Panics
    /// If it does not run.
    pub fn cont(&self) {
        self.signal("CONT");
    }

    /// Ends the process at once (SIGKILL); the port then refuses.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Failing here means that it has ended already.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Starts it again, empty, on the same port, after ending it if it still runs.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        self.child = launch(self.port, &self.arguments, self.ask);
        assert!(
            self.child.is_some(),
            "memcached did not start again on port {}",
            self.port
        );
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns true if all threads of the process are frozen; `None` where the system can't tell.
    fn is_stopped(&self) -> Option<bool> {
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.pid()?)).ok()? {
            // The process's own file tells of its first thread alone.
            let stat = std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
            let (_, after_name) = stat.rsplit_once(')')?;
            if !after_name.trim_start().starts_with('T') {
                return Some(false);
            }
        }
        Some(true)
    }

    fn signal(&self, name: &str) {
        let Some(pid) = self.pid() else {
            panic!("memcached does not run")
        };
        let status = Command::new("sh")
            .args(["-c", &format!("kill -{name} {pid}")])
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "kill -{name} {pid} failed"
        );
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the process; `None` if it ended at once, as it does when its port is taken.
fn launch(port: u16, arguments: &[String], ask: fn(SocketAddr) -> Option<u32>) -> Option<Child> {
    let mut command = Command::new("memcached");
    command
        .args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0"])
        // Only heeded for root, and then required.
        .args(["-u", "nobody"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("memcached is not installed: apt-get install memcached")
        }
        Err(error) => panic!("memcached cannot be started: {error}"),
    };
    let pid = child.id();
    let mut ended = false;
    let answers = wait_until(|| {
        ended = !matches!(child.try_wait(), Ok(None));
        ended || ask(loopback(port)) == Some(pid)
    });
    if answers && !ended {
        return Some(child);
    }
    drop(child.kill());
    drop(child.wait());
    assert!(
        ended,
        "memcached did not answer on port {port} within {GUARD:?}"
    );
    None
}

fn connect(port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&loopback(port), GUARD)?;
    stream.set_read_timeout(Some(GUARD))?;
    stream.set_write_timeout(Some(GUARD))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The process that answers on the port: it may be another one that took it first.
fn answering_pid(address: SocketAddr) -> Option<u32> {
    let mut stream = connect(address.port()).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(b"stats\r\n").ok()?;
    for line in BufReader::new(stream).lines() {
        let line = line.ok()?;
        if let Some(pid) = line.strip_prefix("STAT pid ") {
            return pid.trim().parse().ok();
        }
        if line == "END" {
            return None;
        }
    }
    None
}

/// The first line of the answer to `version`: a refusal, where there are too many connections.
fn version_line(stream: &mut TcpStream) -> String {
    let mut line = String::new();
    let answered = stream
        .write_all(b"version\r\n")
        .and_then(|()| BufReader::new(stream).read_line(&mut line));
    if let Err(error) = answered {
        panic!("memcached does not answer version: {error}");
    }
    line
}
