//! A manager whose handler writes down what it is told, and clients on plain sockets.

use dwell_engine::manager::{Conn, Event, Manager, ManagerOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What handlers wrote down, as `id event`.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<(u64, String)>>>);

impl Log {
    pub(crate) fn add(&self, id: u64, line: impl Into<String>) {
        self.0.lock().unwrap().push((id, line.into()));
    }

    /// What happened on connection `id`.
    pub(crate) fn of(&self, id: u64) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let lines = lines.iter().filter(|(of, _)| *of == id);
        lines.map(|(_, line)| line.clone()).collect()
    }

    /// How often `line` was written.
    pub(crate) fn count(&self, line: &str) -> usize {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|(_, seen)| seen == line).count()
    }

    /// The connection of the first such line.
    pub(crate) fn id_of(&self, line: &str) -> Option<u64> {
        let lines = self.0.lock().unwrap();
        lines
            .iter()
            .find(|(_, seen)| seen == line)
            .map(|(id, _)| *id)
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.count(line) > 0
    }

    pub(crate) fn all(&self) -> Vec<(u64, String)> {
        self.0.lock().unwrap().clone()
    }
}

/// An event in one line.
pub(crate) fn line(event: &Event<'_>) -> String {
    match event {
        Event::Error(text) => format!("error: {text}"),
        Event::Read { bytes, data } => format!("read {bytes} '{}'", data.escape_ascii()),
        Event::HttpHeaders(message) => {
            format!("headers {} {}", message.method(), message.target())
        }
        Event::HttpMessage(message) => match message.status() {
            Some(status) => format!("response {status} '{}'", message.text()),
            None => format!("message {} '{}'", message.target(), message.text()),
        },
        Event::HttpBody { data, is_last } => {
            let last = if *is_last { " last" } else { "" };
            format!("body {}{last}", data.len())
        }
        Event::WebSocketMessage { is_text, data } => {
            let kind = if *is_text { "text" } else { "binary" };
            format!("{kind} '{}'", data.escape_ascii())
        }
        Event::WebSocketControl { opcode, data } => {
            format!("control {opcode} '{}'", data.escape_ascii())
        }
        Event::Wakeup(data) => format!("wakeup '{}'", data.escape_ascii()),
        other => format!("{:?}", other.kind()).to_lowercase(),
    }
}

/// A manager, its log, and one listener.
pub(crate) struct Fixture {
    pub(crate) manager: Manager,
    pub(crate) log: Log,
    pub(crate) listener: u64,
    pub(crate) address: SocketAddr,
}

impl Fixture {
    /// Listens on `scheme://127.0.0.1:0`; `handler` runs after the event was written down.
    pub(crate) fn new(
        scheme: &str,
        handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static,
    ) -> Self {
        Self::with_options(scheme, ManagerOptions::default(), handler)
    }

    #[expect(
        clippy::large_types_passed_by_value,
        reason = "as Manager::with_options"
    )]
    pub(crate) fn with_options(
        scheme: &str,
        options: ManagerOptions,
        mut handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static,
    ) -> Self {
        let log = Log::default();
        let written = log.clone();
        let mut manager = Manager::with_options(options, move |conn, event| {
            written.add(conn.id(), line(&event));
            handler(conn, event);
        })
        .unwrap();
        let listener = manager.listen(&format!("{scheme}://127.0.0.1:0")).unwrap();
        let address = manager.conn(listener).unwrap().local_address().unwrap();
        Self {
            manager,
            log,
            listener,
            address,
        }
    }

    pub(crate) fn poll(&mut self) {
        self.manager.poll(Duration::ZERO).unwrap();
    }

    /// Polls until `condition` holds.
    pub(crate) fn until(&mut self, what: &str, mut condition: impl FnMut(&Log) -> bool) {
        let begun = Instant::now();
        while !condition(&self.log) {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            assert!(!left.is_zero(), "in vain: {what}: {:?}", self.log.all());
            self.manager.poll(left).unwrap();
        }
    }

    /// Polls until `line` was written.
    pub(crate) fn until_line(&mut self, line: &str) {
        self.until(line, |log| log.has(line));
    }

    /// A client that was accepted, and its id.
    pub(crate) fn client(&mut self) -> (Client, u64) {
        let before = self.log.count("accept");
        let client = Client::connect(self.address);
        self.until("a client is accepted", |log| log.count("accept") > before);
        let all = self.log.all();
        let accepted = all.iter().rev().find(|(_, line)| line == "accept");
        (client, accepted.unwrap().0)
    }

    /// Polls until the client has received `end`, and returns all up to it.
    pub(crate) fn receive(&mut self, client: &mut Client, end: &str) -> String {
        let begun = Instant::now();
        loop {
            client.read();
            if let Some(text) = client.take_through(end) {
                return text;
            }
            let received = String::from_utf8_lossy(&client.received);
            assert!(!client.ended, "ended without '{end}': {received}");
            assert!(begun.elapsed() < PATIENCE, "no '{end}': {received}");
            self.manager.poll(Duration::from_millis(2)).unwrap();
        }
    }

    /// Polls until the connection ends; returns what came before.
    pub(crate) fn rest(&mut self, client: &mut Client) -> String {
        let begun = Instant::now();
        while !client.ended {
            client.read();
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            self.manager.poll(Duration::from_millis(2)).unwrap();
        }
        String::from_utf8_lossy(&client.received).into_owned()
    }
}

/// A socket that never blocks.
pub(crate) struct Client {
    stream: TcpStream,
    pub(crate) received: Vec<u8>,
    pub(crate) ended: bool,
    /// It ended by a reset.
    pub(crate) was_reset: bool,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        Self {
            stream,
            received: Vec::new(),
            ended: false,
            was_reset: false,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.stream.local_addr().unwrap()
    }

    /// Sends what the kernel takes, which is all that tests send at once.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends as much as the kernel takes; returns how much.
    pub(crate) fn offer(&mut self, bytes: &[u8]) -> usize {
        self.stream.write(bytes).unwrap_or(0)
    }

    pub(crate) fn shutdown(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// As [`shutdown`](Self::shutdown), of a connection that may be over.
    pub(crate) fn try_shutdown(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        let linger = Some(Duration::ZERO);
        socket2::SockRef::from(&self.stream)
            .set_linger(linger)
            .unwrap();
    }

    pub(crate) fn read(&mut self) {
        let mut buffer = vec![0; 1 << 20];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(read) => {
                    self.received.extend_from_slice(&buffer[..read]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => {
                    self.ended = true;
                    self.was_reset = error.kind() == ErrorKind::ConnectionReset;
                }
            }
            return;
        }
    }

    fn take_through(&mut self, end: &str) -> Option<String> {
        let mut windows = self.received.windows(end.len());
        let at = windows.position(|window| window == end.as_bytes())?;
        let text: Vec<_> = self.received.drain(..at + end.len()).collect();
        Some(String::from_utf8(text).unwrap())
    }
}

/// A request for `target`.
pub(crate) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n")
}

/// Answers every request with its target.
#[expect(
    clippy::needless_pass_by_value,
    reason = "handlers are given their event"
)]
pub(crate) fn answer(conn: &mut Conn<'_>, event: Event<'_>) {
    if let Event::HttpMessage(message) = event
        && message.status().is_none()
    {
        let body = format!("you asked for {}.", message.target());
        conn.reply(200, &[], body.as_bytes()).unwrap();
    }
}
