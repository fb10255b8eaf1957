//! What the program is told to do: typed, validated, with a default for everything.
//!
//! [`Config`] is plain data; it is made from a TOML file and flags, and every mistake in them is
//! reported with its line.

mod access;
mod address;
mod check;
mod codec;
mod live;
mod load;
mod options;
mod presence;
mod reference;
mod report;
mod route;
mod routes;
mod routing;
mod template;
mod units;

pub(crate) use access::check_token;
pub use access::{JwtConfig, Network, PublishConfig, Rate, RouteAccess};
pub use address::{AddressError, PeerAddress, UpstreamUrl};
pub use load::{FlagValue, load, parse};
pub use presence::PresenceConfig;
pub use reference::{example_file, reference_page};
pub use report::ConfigError;
pub use route::{EmptyAnswer, Methods, OnDelete, RouteConfig};
pub(crate) use routes::{RouteId, Routes};
pub(crate) use routing::{Ambiguous, Routing};
pub use template::{KeyError, KeyTemplate, TemplateError};
pub(crate) use template::{Requested, check_key, cookie_value, query_value};
pub use units::{UnitError, duration, show_duration, show_size, size};

use dwell_proto::memcache::Protocols;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Everything the program can be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Listeners and loops.
    pub server: ServerConfig,
    /// Bounds on what a client may send, hold and wait for.
    pub limits: LimitsConfig,
    /// The embedded store; used when [`MemcachedConfig::servers`] is empty.
    pub store: StoreConfig,
    /// The external memcached servers.
    pub memcached: MemcachedConfig,
    /// The application behind the edge.
    pub upstream: UpstreamConfig,
    /// Values stored and removed over HTTP.
    pub publish: PublishConfig,
    /// The tokens that routes may ask for.
    pub jwt: JwtConfig,
    /// Who is told when keys begin to be watched, and when they end to be.
    pub presence: PresenceConfig,
    /// Poll routes, the longest prefix first; never empty.
    pub routes: Vec<Arc<RouteConfig>>,
    /// Diagnostics and the access log.
    pub log: LogConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            server: ServerConfig::default(),
            limits: LimitsConfig::default(),
            store: StoreConfig::default(),
            memcached: MemcachedConfig::default(),
            upstream: UpstreamConfig::default(),
            publish: PublishConfig::default(),
            jwt: JwtConfig::default(),
            presence: PresenceConfig::default(),
            routes: vec![Arc::default()],
            log: LogConfig::default(),
        }
    }
}

impl Config {
    /// Whether values come from the embedded store rather than from memcached servers.
    pub fn uses_embedded_store(&self) -> bool {
        self.memcached.servers.is_empty()
    }

    /// Finds the route whose prefix starts `path`; the longest prefix wins.
    pub fn route(&self, path: &str) -> Option<&RouteConfig> {
        self.routes
            .iter()
            .find(|route| path.starts_with(&route.prefix))
            .map(|route| &**route)
    }
}

impl Config {
    /// Warnings of what is legal, and more open than may be meant.
    pub fn warnings(&self) -> Vec<String> {
        check::warnings(self)
    }

    /// Says in one line what the process will do.
    pub fn summary(&self) -> String {
        let joined = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(", ");
        let listen = joined(&mut self.server.listen.iter().map(ToString::to_string));
        let prefixes = joined(&mut self.routes.iter().map(|route| route.prefix.clone()));
        let servers = &mut self.memcached.servers.iter();
        let values = if self.uses_embedded_store() {
            let size = show_size(self.store.bytes_max as u64);
            let listen = self
                .store
                .listen
                .map_or_else(String::new, |at| format!(" at {at}"));
            format!("the embedded store ({size}){listen}")
        } else {
            format!(
                "memcached {}",
                joined(&mut servers.map(|server| server.address.to_string()))
            )
        };
        let rest = if self.upstream.url.is_empty() {
            "nothing else (no upstream)".to_owned()
        } else {
            let urls = &mut self.upstream.url.iter();
            format!("the rest by {}", joined(&mut urls.map(ToString::to_string)))
        };
        format!("polls under {prefixes} at {listen} answered from {values}, {rest}")
    }
}

/// `[server]`: listeners and loops.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Where clients connect; never empty.
    pub listen: Vec<SocketAddr>,
    /// Where health and metrics answer; `None` is `"off"`.
    pub admin: Option<SocketAddr>,
    /// Names of that listener, beside `localhost` and addresses.
    pub admin_hosts: Vec<String>,
    /// Number of loops; 0 is one per core. [`Self::loops`] resolves it.
    pub pollers: usize,
    /// Who to become when started as root, once every listener is there.
    pub user: Option<String>,
    /// Proxies whose fields tell who a client is, and what it asked for.
    pub trusted_proxies: Vec<Network>,
}

impl ServerConfig {
    /// Tells whether only this machine can reach the admin listener, if there is one.
    pub fn admin_is_local(&self) -> bool {
        self.admin.is_none_or(|at| check::is_loopback(at.ip()))
    }

    /// Number of loops to start: `pollers`, or one per core the process may use.
    pub fn loops(&self) -> usize {
        if self.pollers > 0 {
            return self.pollers;
        }
        std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: vec![loopback(8080)],
            admin: Some(loopback(9090)),
            admin_hosts: Vec::new(),
            pollers: 0,
            user: None,
            trusted_proxies: Vec::new(),
        }
    }
}

/// `[limits]`: bounds on what a client may send, hold and wait for.
///
/// Shape: maxima of connections and waiters are for the whole process; see [`share`].
#[derive(Clone, Debug, PartialEq)]
pub struct LimitsConfig {
    /// Request line and header section. Units: bytes. Beyond it: 431.
    pub head_bytes_max: usize,
    /// Request target. Units: bytes. Beyond it: 414.
    pub target_bytes_max: usize,
    /// Header fields in one request. Beyond it: 431.
    pub header_count_max: usize,
    /// Body of a forwarded request. Units: bytes. Beyond it: 413.
    pub body_bytes_max: u64,
    /// Body of a poll, kept so that a miss can be forwarded. Units: bytes. Beyond it: 413.
    pub poll_body_bytes_max: u64,
    /// What is gathered of requests that are not whole yet. Units: bytes. Beyond it: 503.
    pub gathered_bytes_max: usize,
    /// Open client connections. Beyond it new ones are closed.
    pub connections_max: usize,
    /// Open connections of one client address. Beyond it new ones are closed; `None` is `"off"`.
    pub connections_per_address: Option<usize>,
    /// Requests on one connection before it is closed.
    pub requests_per_connection_max: u64,
    /// Last known values with their overhead. Units: bytes.
    pub stale_bytes_max: usize,
    /// Held polls. Beyond it: 503 with Retry-After.
    pub waiters_max: usize,
    /// Clients and keys whose requests are counted at the same time.
    pub rate_buckets: usize,
    /// About how often a quiet stream of events shows that it is alive.
    pub stream_heartbeat: Duration,
    /// How long a stream of events lasts at most.
    pub stream_lifetime: Duration,
    /// One message of a WebSocket's client. Units: bytes. Beyond it: closed with 1009.
    pub websocket_message_bytes_max: usize,
    /// Messages of one WebSocket's client, by the keys that they name. Beyond it: closed with 1008.
    pub websocket_messages_rate: Option<Rate>,
    /// From the first byte of a request to the end of its header section. Beyond it: 408.
    pub header_timeout: Duration,
    /// How long a client may be behind `body_rate_min` with a body. Beyond it: 408.
    pub body_timeout: Duration,
    /// Lowest rate at which a client sends a body. Units: bytes per second.
    pub body_rate_min: u32,
    /// Between requests on a kept-alive connection. Beyond it: closed.
    pub idle_timeout: Duration,
    /// Without progress while an answer is being written. Beyond it: closed.
    pub write_timeout: Duration,
    /// Lowest rate at which a client takes it. Units: bytes per second. Below it: closed.
    pub write_rate_min: u32,
    /// Answers that wait for clients. Units: bytes. Beyond it the slowest are cut off.
    pub output_bytes_max: usize,
    /// From SIGTERM to exit, for requests and waits under way.
    pub drain_timeout: Duration,
    /// From SIGUSR2 until another process serves. Beyond it: this one goes on.
    pub upgrade_timeout: Duration,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            head_bytes_max: 16 * KIB,
            target_bytes_max: 8 * KIB,
            header_count_max: 100,
            body_bytes_max: 1 << 40,
            poll_body_bytes_max: 64 * KIB as u64,
            gathered_bytes_max: 256 * MIB,
            connections_max: 100_000,
            connections_per_address: None,
            requests_per_connection_max: 100_000,
            stale_bytes_max: 32 * MIB,
            waiters_max: 100_000,
            rate_buckets: 65_536,
            stream_heartbeat: Duration::from_secs(20),
            stream_lifetime: Duration::from_secs(3600),
            websocket_message_bytes_max: 64 * KIB,
            websocket_messages_rate: Some(Rate {
                count: 1000,
                per: Duration::from_secs(1),
            }),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_rate_min: 512,
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            write_rate_min: 512,
            output_bytes_max: 256 * MIB,
            drain_timeout: Duration::from_secs(10),
            upgrade_timeout: Duration::from_secs(30),
        }
    }
}

/// `[store]`: the embedded store and its memcached listener.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one option of the file, on or off"
)]
pub struct StoreConfig {
    /// Where the memcached protocol is spoken; `None` is `"off"`.
    pub listen: Option<SocketAddr>,
    /// More such addresses.
    pub listen_also: Vec<SocketAddr>,
    /// Whether `listen` may be an address other machines can reach.
    pub allow_remote: bool,
    /// A unix socket where it is spoken as well.
    pub unix_socket: Option<PathBuf>,
    /// Permission bits of that socket.
    pub unix_permissions: u32,
    /// Names and passwords of those who may use it; `None` is everybody who can connect.
    pub auth_file: Option<PathBuf>,
    /// Which protocols are spoken.
    pub protocols: Protocols,
    /// Items with their overhead. Units: bytes.
    pub bytes_max: usize,
    /// One value. Units: bytes. Beyond it: `SERVER_ERROR object too large for cache`.
    pub item_bytes_max: usize,
    /// Whether items are evicted to make room, rather than new ones refused.
    pub evictions: bool,
    /// Whether items have a cas unique.
    pub cas: bool,
    /// Whether clients may list keys.
    pub dump: bool,
    /// Whether clients may `flush_all`.
    pub flush_all: bool,
    /// Whether clients may `shutdown` the process.
    pub shutdown: bool,
    /// Open connections of memcached clients.
    pub connections_max: usize,
    /// Between commands of a connection; zero is for ever. Beyond it: closed.
    pub idle_timeout: Duration,
    /// Commands of one connection before another has its turn.
    pub commands_per_turn: usize,
    /// Connections that the kernel keeps until they are accepted.
    pub backlog: u16,
    /// Where the items are kept while the process does not run.
    pub snapshot: Option<PathBuf>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            listen: Some(loopback(11211)),
            listen_also: Vec::new(),
            allow_remote: false,
            unix_socket: None,
            unix_permissions: 0o700,
            auth_file: None,
            protocols: Protocols::Both,
            bytes_max: 64 * MIB,
            item_bytes_max: MIB,
            evictions: true,
            cas: true,
            dump: true,
            flush_all: true,
            shutdown: false,
            connections_max: 1024,
            idle_timeout: Duration::ZERO,
            commands_per_turn: 64,
            backlog: 4096,
            snapshot: None,
        }
    }
}

/// `[memcached]`: external servers.
#[derive(Clone, Debug, PartialEq)]
pub struct MemcachedConfig {
    /// The ring; empty means the embedded store.
    pub servers: Vec<MemcachedServer>,
    /// One lookup, from asking to answer. Beyond it: a miss.
    pub timeout: Duration,
    /// One connection attempt.
    pub connect_timeout: Duration,
    /// Between two looks at the keys that polls wait for.
    pub sweep_interval: Duration,
    /// Whether the servers are asked to tell of changes.
    pub watch: bool,
    /// Failures in a row after which a server is left alone for a while.
    pub failures_max: u32,
    /// The largest value a server may send; as large as its own `-I`. Units: bytes.
    pub value_bytes_max: usize,
}

impl Default for MemcachedConfig {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_millis(500),
            sweep_interval: Duration::from_millis(250),
            watch: false,
            failures_max: 3,
            value_bytes_max: 16 * MIB,
        }
    }
}

/// One memcached server of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemcachedServer {
    /// Where it listens; the name as written is what the ring hashes.
    pub address: PeerAddress,
    /// Its share of the keys relative to the other servers; at least 1.
    pub weight: u32,
}

/// `[upstream]`: the application that answers misses and everything that is not a poll.
///
/// Shape: maxima are for the whole process; see [`share`].
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamConfig {
    /// Where it is, each a server of its own; none answers 404 instead of forwarding.
    pub url: Vec<UpstreamUrl>,
    /// What stands in for the host that a client of HTTP/1.0 does not name.
    pub default_host: String,
    /// One connection attempt. Beyond it: 502.
    pub connect_timeout: Duration,
    /// From the request sent to the header section received. Beyond it: 504.
    pub header_timeout: Duration,
    /// One exchange. Beyond it: 504.
    pub total_timeout: Duration,
    /// Open connections to one server, without transfers. Beyond it requests queue.
    pub connections_max: usize,
    /// Connections to one server whose request or answer is on its way, which count apart.
    pub transfers_max: usize,
    /// Requests that wait for a connection to one server. Beyond it: 503.
    pub queue_max: usize,
    /// How long a request may wait for a connection. Beyond it: 503.
    pub queue_timeout: Duration,
    /// Connections kept open while unused.
    pub idle_max: usize,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// Failures after which a server is left out for a while.
    pub failures_max: u32,
    /// How long a request that got no answer counts against its server.
    pub failures_window: Duration,
    /// What servers are asked from time to time to see whether they are well; `None` is `"off"`.
    pub health_path: Option<String>,
    /// How often they are asked.
    pub health_interval: Duration,
    /// For which an answer that has begun may bring nothing, or a request body be taken by nobody.
    pub stall_timeout: Duration,
    /// For which nothing may pass a connection that was upgraded.
    pub tunnel_timeout: Duration,
    /// Body bytes of one message that may be on their way. Units: bytes.
    pub window_bytes: u64,
    /// Body of a request that is there before it takes a connection. Units: bytes.
    pub request_buffer_bytes: usize,
    /// Body of an answer that polls share. Units: bytes. A larger one is for one of them.
    pub answer_bytes_max: u64,
    /// Head of one answer. Units: bytes. Beyond it: 502.
    pub answer_head_bytes_max: usize,
    /// Fields of one answer. Beyond it: 502.
    pub answer_header_count_max: usize,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            url: Vec::new(),
            default_host: "localhost".to_owned(),
            connect_timeout: Duration::from_secs(2),
            header_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_secs(60),
            connections_max: 256,
            transfers_max: 4096,
            queue_max: 1024,
            queue_timeout: Duration::from_secs(10),
            idle_max: 64,
            idle_timeout: Duration::from_secs(30),
            failures_max: 5,
            failures_window: Duration::from_secs(30),
            health_path: None,
            health_interval: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(300),
            tunnel_timeout: Duration::from_secs(3600),
            window_bytes: 64 * KIB as u64,
            request_buffer_bytes: 64 * KIB,
            answer_bytes_max: 8 * MIB as u64,
            answer_head_bytes_max: 64 * KIB,
            answer_header_count_max: 128,
        }
    }
}

/// `[log]`: diagnostics and the access log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// The least severe event written to standard error.
    pub level: LogLevel,
    /// How an event is written.
    pub format: LogFormat,
    /// Where one line per request goes.
    pub access: AccessTarget,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: LogLevel::Info,
            format: LogFormat::Text,
            access: AccessTarget::Off,
        }
    }
}

/// Severity below which events are not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What stops or breaks something.
    Error,
    /// What degrades something.
    Warn,
    /// What an operator wants to know once.
    Info,
    /// What helps to follow one request.
    Debug,
    /// Everything.
    Trace,
}

/// How an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessTarget {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// Appended to a file.
    File(PathBuf),
}

/// One loop's part of a maximum for the whole process, rounded up.
///
/// Loops share nothing, so each keeps to its own part.
pub fn share(maximum: usize, loops: usize) -> usize {
    maximum.div_ceil(loops.max(1))
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
