//! A peer that does exactly what a test tells it to.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{GUARD, loopback, port_of};

/// The steps of one connection, which is closed at the end.
///
/// ```
/// use std::time::Duration;
///
/// use dwell_testkit::Script;
///
/// let slow_hit = Script::new()
///     .expect("get k\r\n")
///     .drip("VALUE k 0 1\r\nv\r\nEND\r\n", Duration::from_millis(1))
///     .hang();
/// # drop(slow_hit);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Script(pub(crate) Vec<Step>);

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Expect(Vec<u8>),
    ReadUntil(Vec<u8>),
    ReadBytes(usize),
    Send(Vec<u8>),
    Drip(Vec<u8>, Duration),
    ExpectEnd,
    CloseWriting,
    Hang,
}

impl Script {
    /// A script that closes the connection at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads exactly these bytes; anything else fails the test.
    pub fn expect(self, bytes: impl AsRef<[u8]>) -> Self {
        self.then(Step::Expect(bytes.as_ref().to_vec()))
    }

    /// Reads until these bytes have come, whatever is in front of them.
    pub fn read_until(self, end: impl AsRef<[u8]>) -> Self {
        self.then(Step::ReadUntil(end.as_ref().to_vec()))
    }

    /// Reads this many bytes, whatever they are.
    pub fn read_bytes(self, count: usize) -> Self {
        self.then(Step::ReadBytes(count))
    }

    /// Sends these bytes.
    pub fn send(self, bytes: impl AsRef<[u8]>) -> Self {
        self.then(Step::Send(bytes.as_ref().to_vec()))
    }

    /// Sends these bytes one at a time, with a pause after each.
    pub fn drip(self, bytes: impl AsRef<[u8]>, pause: Duration) -> Self {
        self.then(Step::Drip(bytes.as_ref().to_vec(), pause))
    }

    /// Waits for the peer to end its side; bytes fail the test.
    pub fn expect_end(self) -> Self {
        self.then(Step::ExpectEnd)
    }

    /// Ends our side and goes on reading.
    pub fn close_writing(self) -> Self {
        self.then(Step::CloseWriting)
    }

    /// Does nothing until the peer closes or the server is dropped; what comes is read and dropped.
    pub fn hang(self) -> Self {
        self.then(Step::Hang)
    }

    fn then(mut self, step: Step) -> Self {
        self.0.push(step);
        self
    }
}

/// A server on a loopback port whose connections follow scripts.
///
/// Shape: the first connection follows the first script, and so on, each on a thread of its own;
/// connections beyond the last script are closed at once. Dropping the server ends it.
///
/// # Panics
/// When dropped or finished after a peer did something else than its script expects.
#[derive(Debug)]
pub struct ScriptedServer {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    ending: AtomicBool,
    accepted: Mutex<Vec<TcpStream>>,
    failures: Mutex<Vec<String>>,
}

impl ScriptedServer {
    /// Starts a server for as many connections as there are scripts.
    ///
    /// # Panics
    /// If no port can be bound.
    pub fn start(scripts: impl IntoIterator<Item = Script>) -> Self {
        Self::start_on(0, scripts)
    }

    /// Starts a server on a chosen port, 0 for any.
    ///
    /// # Panics
    /// If the port cannot be bound.
    pub fn start_on(port: u16, scripts: impl IntoIterator<Item = Script>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .unwrap_or_else(|error| panic!("port {port} cannot be bound: {error}"));
        let port = port_of(&listener);
        let shared = Arc::new(Shared::default());
        let scripts: Vec<Script> = scripts.into_iter().collect();
        let acceptor = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&listener, scripts, &shared))
        };
        Self {
            port,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        loopback(self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of connections accepted so far.
    pub fn connections(&self) -> usize {
        locked(&self.shared.accepted).len()
    }

    /// Waits for every script to run to its end, which all of them must have begun.
    ///
    /// # Panics
    /// If a peer did something else than its script expects.
    pub fn finish(mut self) {
        self.join();
    }

    /// Joins the threads and reports their failures.
    fn join(&mut self) {
        let Some(acceptor) = self.acceptor.take() else {
            return;
        };
        let ended = acceptor.join();
        if thread::panicking() {
            return;
        }
        assert!(ended.is_ok(), "a scripted connection panicked");
        let failures = std::mem::take(&mut *locked(&self.shared.failures));
        assert!(
            failures.is_empty(),
            "scripted server: {}",
            failures.join("; ")
        );
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        if self.acceptor.is_none() {
            return;
        }
        self.shared.ending.store(true, Ordering::Release);
        for stream in locked(&self.shared.accepted).iter() {
            // Failing here means that the peer has closed already.
            drop(stream.shutdown(Shutdown::Both));
        }
        // Wakes the acceptor.
        drop(TcpStream::connect(self.address()));
        self.join();
    }
}

fn accept(listener: &TcpListener, scripts: Vec<Script>, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    for (index, script) in scripts.into_iter().enumerate() {
        let Ok((stream, _)) = listener.accept() else {
            break;
        };
        if shared.ending.load(Ordering::Acquire) {
            break;
        }
        let Ok(kept) = stream.try_clone() else { break };
        locked(&shared.accepted).push(kept);
        let shared = Arc::clone(shared);
        threads.push(thread::spawn(move || {
            let outcome = run(stream, script);
            if let (Err(failure), false) = (outcome, shared.ending.load(Ordering::Acquire)) {
                locked(&shared.failures).push(format!("connection {index}: {failure}"));
            }
        }));
    }
    for thread in threads {
        if thread.join().is_err() {
            locked(&shared.failures).push("a connection's thread panicked".to_owned());
        }
    }
}

fn run(mut stream: TcpStream, script: Script) -> Result<(), String> {
    let describe = |error: std::io::Error| error.to_string();
    stream.set_read_timeout(Some(GUARD)).map_err(describe)?;
    stream.set_write_timeout(Some(GUARD)).map_err(describe)?;
    stream.set_nodelay(true).map_err(describe)?;
    for step in script.0 {
        match step {
            Step::Expect(bytes) => expect(&mut stream, &bytes)?,
            Step::ReadUntil(end) => read_until(&mut stream, &end)?,
            Step::ReadBytes(count) => {
                let mut bytes = vec![0; count];
                stream.read_exact(&mut bytes).map_err(describe)?;
            }
            Step::Send(bytes) => stream.write_all(&bytes).map_err(describe)?,
            Step::Drip(bytes, pause) => {
                for byte in bytes {
                    stream.write_all(&[byte]).map_err(describe)?;
                    thread::sleep(pause);
                }
            }
            Step::ExpectEnd => match next_byte(&mut stream)? {
                None => {}
                Some(byte) => return Err(format!("expected the end, got {:?}", char::from(byte))),
            },
            Step::CloseWriting => stream.shutdown(Shutdown::Write).map_err(describe)?,
            Step::Hang => hang(&mut stream),
        }
    }
    // The clone kept for the drop would otherwise hold the connection open.
    drop(stream.shutdown(Shutdown::Both));
    Ok(())
}

/// Reads one byte at a time, so that nothing of the next step is swallowed.
fn next_byte(stream: &mut TcpStream) -> Result<Option<u8>, String> {
    let mut byte = [0];
    loop {
        return match stream.read(&mut byte) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(byte[0])),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(error.to_string()),
        };
    }
}

fn expect(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), String> {
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        match next_byte(stream).map_err(|error| mismatch(bytes, &got, &error))? {
            Some(byte) => got.push(byte),
            None => return Err(mismatch(bytes, &got, "the end")),
        }
        if !bytes.starts_with(&got) {
            return Err(mismatch(bytes, &got, "different"));
        }
    }
    Ok(())
}

pub(crate) fn mismatch(expected: &[u8], got: &[u8], then: &str) -> String {
    let (expected, got) = (expected.escape_ascii(), got.escape_ascii());
    format!("expected \"{expected}\", got \"{got}\" ({then})")
}

fn read_until(stream: &mut TcpStream, end: &[u8]) -> Result<(), String> {
    let mut got = Vec::new();
    while !got.ends_with(end) {
        match next_byte(stream)? {
            Some(byte) => got.push(byte),
            None => return Err(mismatch(end, &got, "the end")),
        }
    }
    Ok(())
}

fn hang(stream: &mut TcpStream) {
    // A test may let a peer wait longer than the guard; the drop of the server ends this.
    drop(stream.set_read_timeout(None));
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
