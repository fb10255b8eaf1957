//! A client on a loop that the test turns, and servers whose side the test plays.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use dwell_evloop::{Context, Driver, EventLoop, Readiness, Token};
use dwell_memcache::on_loop::{
    Answer, Client, ClientOptions, Completion, Failure, Outcome, ServerOptions, ServerStatus, State,
};
use dwell_proto::memcache::StoreVerb;
use dwell_proto::memcache::encode::request::StoreOptions;

/// Nothing a test waits for takes this long unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const KIND: u8 = 3;

/// A completion that owns what it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) tag: u64,
    pub(crate) server: usize,
    pub(crate) epoch: u64,
    pub(crate) end: End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Hit(Vec<u8>, u32, u64),
    Version(u64),
    /// An [`Answer`](dwell_memcache::on_loop::Answer) in words.
    Answer(String),
    Miss,
    Failed(Failure),
}

pub(crate) fn hit(value: &[u8], flags: u32, cas_unique: u64) -> End {
    End::Hit(value.to_vec(), flags, cas_unique)
}

pub(crate) struct App {
    pub(crate) client: Client,
    pub(crate) ended: Vec<Ended>,
}

pub(crate) struct Harness {
    pub(crate) event_loop: EventLoop<()>,
    pub(crate) app: App,
}

/// Options that make the tests quick, under which every turn sends what it asks for.
///
/// The timeouts are longer than a machine halts, as most answers here do come.
pub(crate) fn options() -> ClientOptions {
    ClientOptions {
        timeout: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(1),
        reconnect_delay_min: Duration::from_millis(20),
        reconnect_delay_max: Duration::from_millis(80),
        held_max: 1,
        ..ClientOptions::default()
    }
}

/// Options under which nothing times out.
pub(crate) fn patient() -> ClientOptions {
    ClientOptions {
        timeout: PATIENCE,
        connect_timeout: PATIENCE,
        ..options()
    }
}

impl Harness {
    pub(crate) fn new(addresses: &[SocketAddr], options: ClientOptions) -> Self {
        let servers: Vec<_> = addresses.iter().copied().map(ServerOptions::new).collect();
        Self::with_servers(&servers, options)
    }

    pub(crate) fn with_servers(servers: &[ServerOptions], options: ClientOptions) -> Self {
        let client = Client::new(KIND, servers, options).unwrap();
        let mut harness = Self {
            event_loop: EventLoop::new().unwrap(),
            app: App {
                client,
                ended: Vec::new(),
            },
        };
        harness.app.turn_end(harness.event_loop.context());
        harness
    }

    /// A client and the server's end of its one connection, the probe answered.
    pub(crate) fn connected(options: ClientOptions) -> (Self, TcpListener, Peer) {
        let (listener, address) = listen();
        let mut harness = Self::new(&[address], options);
        let mut peer = Peer::accept(&listener);
        harness.turn_until(|app| status(app).state == State::Up);
        peer.answer_probe();
        (harness, listener, peer)
    }

    /// One turn that waits for nothing.
    pub(crate) fn turn(&mut self) {
        self.turn_for(Duration::ZERO);
    }

    /// One turn that waits for at most so long.
    pub(crate) fn turn_for(&mut self, timeout: Duration) {
        self.event_loop.turn(&mut self.app, Some(timeout)).unwrap();
    }

    /// Turns until `is_reached`, or panics when it is not within reason.
    pub(crate) fn turn_until(&mut self, is_reached: impl Fn(&App) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_reached(&self.app) {
            let statuses: Vec<_> = self.app.client.statuses().collect();
            assert!(Instant::now() < end, "{:?} {statuses:?}", self.app.ended);
            self.turn_for(Duration::from_millis(100));
        }
    }

    /// Turns until so many operations have ended; takes them.
    pub(crate) fn wait_for(&mut self, count: usize) -> Vec<Ended> {
        self.turn_until(|app| app.ended.len() >= count);
        let ended = std::mem::take(&mut self.app.ended);
        assert_eq!(ended.len(), count, "{ended:?}");
        ended
    }

    /// As [`wait_for`](Self::wait_for), without tags and the rest.
    pub(crate) fn wait_for_ends(&mut self, count: usize) -> Vec<End> {
        self.wait_for(count)
            .into_iter()
            .map(|ended| ended.end)
            .collect()
    }

    pub(crate) fn get(&mut self, key: &str, tag: u64) {
        self.app.client.get(key.as_bytes(), tag).unwrap();
    }

    pub(crate) fn set(&mut self, key: &str, value: &str, tag: u64) {
        self.store(StoreVerb::Set, key, value, tag);
    }

    pub(crate) fn store(&mut self, verb: StoreVerb, key: &str, value: &str, tag: u64) {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        let options = StoreOptions::default();
        let client = &mut self.app.client;
        client.store(verb, key, value, options, tag).unwrap();
    }

    pub(crate) fn version(&mut self, key: &str, tag: u64) {
        self.app.client.version(key.as_bytes(), tag).unwrap();
    }

    pub(crate) fn status(&self) -> ServerStatus {
        status(&self.app)
    }
}

/// The status of the first server.
pub(crate) fn status(app: &App) -> ServerStatus {
    app.client.statuses().next().unwrap()
}

impl Driver for App {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        assert_eq!(token.kind(), KIND);
        let Self { client, ended } = self;
        client.ready(context, token, readiness, &mut |_, completion| {
            note(ended, &completion);
        });
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        let Self { client, ended } = self;
        client.expired(context, token, &mut |_, completion| {
            note(ended, &completion);
        });
    }

    fn message(&mut self, _: &mut Context, (): ()) {}

    fn turn_end(&mut self, context: &mut Context) {
        let Self { client, ended } = self;
        client.flush(context, &mut |_, completion| note(ended, &completion));
    }
}

fn note(ended: &mut Vec<Ended>, completion: &Completion<'_>) {
    let end = match completion.outcome {
        Outcome::Hit {
            value,
            flags,
            cas_unique,
        } => hit(value, flags, cas_unique),
        Outcome::Version { cas_unique } => End::Version(cas_unique),
        Outcome::Answer(Answer::Meta {
            status,
            flags,
            value,
        }) => {
            let letters = flags.iter().map(|flag| char::from(flag.letter));
            let value = value.map(<[u8]>::escape_ascii).map(|text| text.to_string());
            End::Answer(format!(
                "{status:?} {} {value:?}",
                letters.collect::<String>()
            ))
        }
        Outcome::Answer(answer) => End::Answer(format!("{answer:?}")),
        Outcome::Miss => End::Miss,
        Outcome::Failed(failure) => End::Failed(failure),
    };
    let Completion {
        tag, server, epoch, ..
    } = *completion;
    ended.push(Ended {
        tag,
        server,
        epoch,
        end,
    });
}

pub(crate) fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The server's end of a connection.
pub(crate) struct Peer(TcpStream);

impl Peer {
    pub(crate) fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// Accepts a connection that takes turns to come about.
    pub(crate) fn accept_while(listener: &TcpListener, harness: &mut Harness) -> Self {
        listener.set_nonblocking(true).unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    listener.set_nonblocking(false).unwrap();
                    stream.set_nonblocking(false).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    return Self(stream);
                }
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            harness.turn_for(Duration::from_millis(5));
        }
    }

    /// Reads exactly `request`, which takes turns to be sent.
    pub(crate) fn expect_while(&mut self, request: &str, harness: &mut Harness) {
        let end = Instant::now() + PATIENCE;
        let mut seen = vec![0; request.len()];
        self.0.set_nonblocking(true).unwrap();
        while self.0.peek(&mut seen).unwrap_or(0) < request.len() {
            assert!(Instant::now() < end);
            harness.turn();
        }
        self.0.set_nonblocking(false).unwrap();
        self.expect(request);
    }

    /// Reads exactly `request`.
    pub(crate) fn expect(&mut self, request: &str) {
        let mut read = vec![0; request.len()];
        self.0.read_exact(&mut read).unwrap();
        assert_eq!(String::from_utf8_lossy(&read), request);
    }

    pub(crate) fn send(&mut self, reply: impl AsRef<[u8]>) {
        self.0.write_all(reply.as_ref()).unwrap();
    }

    /// Sends and says whether the client still listens.
    pub(crate) fn try_send(&mut self, reply: &[u8]) -> bool {
        self.0.write_all(reply).is_ok()
    }

    pub(crate) fn answer_probe(&mut self) {
        self.expect("version\r\n");
        self.send("VERSION 1.6.18\r\n");
    }

    /// Panics unless the client has ended the connection.
    pub(crate) fn expect_end(&mut self) {
        let mut rest = Vec::new();
        // A reset is an end, too: the client leaves replies unread.
        let _ = self.0.read_to_end(&mut rest);
        let mut byte = [0];
        assert_eq!(self.0.read(&mut byte).unwrap_or(0), 0);
    }
}
