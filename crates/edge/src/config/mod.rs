//! The configuration: typed, validated, with a default for every option.
//!
//! [`Config`] is plain data, made from a TOML file and flags. All mistakes are reported with their
//! lines.

mod access;
mod address;
mod check;
mod codec;
mod effective;
mod environment;
mod hidden;
mod live;
mod load;
mod nearest;
mod options;
mod presence;
mod redis;
mod reference;
mod report;
mod route;
mod routes;
mod schema;
mod template;
mod tls;
mod units;
mod upstream;

pub(crate) use access::check_token;
pub use access::{JwtConfig, Network, PublishConfig, PublisherName, Rate, RouteAccess};
pub use address::{AddressError, PeerAddress, UpstreamUrl};
pub use effective::{EffectiveOption, OptionSource, effective, effective_file};
pub use environment::{EnvironmentOptions, environment_options};
pub use load::{FlagValue, load, load_source, parse};
pub use presence::PresenceConfig;
pub use redis::{RedisConfig, RedisTracking, RedisUrl};
pub use reference::{example_file, reference_page, settings_file};
pub use report::{ConfigError, Mistake, SourceFile};
pub use route::{EmptyAnswer, Methods, OnDelete, RouteConfig};
pub(crate) use routes::{Ambiguous, Route, RouteId, Routes, Rules};
pub use schema::schema;
pub(crate) use template::{ClientPart, Requested, check_key, cookie_value, query_value};
pub use template::{KeyError, KeyTemplate, TemplateError};
pub use tls::{ClientAuth, ClientTlsFiles, TlsConfig};
pub use units::{UnitError, duration, show_duration, show_size, size};
pub use upstream::UpstreamConfig;

use dwell_proto::memcache::Protocols;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The configuration of the process.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Listeners and loops.
    pub server: ServerConfig,
    /// Listeners under TLS and their certificates.
    pub tls: TlsConfig,
    /// Bounds on what a client may send, hold and wait for.
    pub limits: LimitsConfig,
    /// The embedded store; used when no external server is named.
    pub store: StoreConfig,
    /// The external memcached servers.
    pub memcached: MemcachedConfig,
    /// The external Redis server.
    pub redis: RedisConfig,
    /// The application behind the edge.
    pub upstream: UpstreamConfig,
    /// Values stored and removed over HTTP.
    pub publish: PublishConfig,
    /// The tokens that routes may ask for.
    pub jwt: JwtConfig,
    /// The webhook for first and last watchers of keys.
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
            tls: TlsConfig::default(),
            limits: LimitsConfig::default(),
            store: StoreConfig::default(),
            memcached: MemcachedConfig::default(),
            redis: RedisConfig::default(),
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
    /// Returns true if values come from the embedded store, and not from external servers.
    pub fn uses_embedded_store(&self) -> bool {
        self.memcached.servers.is_empty() && !self.redis.is_on()
    }

    /// Interval of sweeps over the keys that polls wait for.
    pub(crate) fn sweep_interval(&self) -> Duration {
        if self.redis.is_on() {
            self.redis.sweep_interval
        } else {
            self.memcached.sweep_interval
        }
    }

    /// Returns true if there is an application.
    pub fn has_upstream(&self) -> bool {
        !self.upstream.url.is_empty()
    }

    /// Finds the route for `path` with the longest prefix.
    pub fn route(&self, path: &str) -> Option<&RouteConfig> {
        self.routes
            .iter()
            .find(|route| path.starts_with(&route.prefix))
            .map(|route| &**route)
    }

    /// Warnings about options that are valid, but may allow more than intended, or do nothing.
    pub fn warnings(&self) -> Vec<String> {
        let server = &self.server;
        let exposed = server.admin.filter(|_| !server.admin_is_local());
        let exposed = exposed.filter(|_| server.admin_hosts.is_empty());
        let told = exposed.map(|address| {
            format!(
                "other machines can reach server.admin at {address}, under any name: its metrics, \
                 the names of keys, and what it explains need no login; listen on 127.0.0.1, or \
                 keep it in a network of your own and list its names in server.admin_hosts"
            )
        });
        let routes = self.routes.iter().flat_map(|route| route.warnings());
        let told = told.into_iter().chain(self.tls.warnings());
        let redis = self.redis.warnings(&self.routes);
        told.chain(redis).chain(routes).collect()
    }

    /// Describes the process in one line.
    pub fn summary(&self) -> String {
        let listen = self.server.listen.iter().map(ToString::to_string);
        self.summary_at(&listen.collect::<Vec<_>>(), self.store.listen)
    }

    /// As [`summary`](Self::summary), for a process that listens at `listen`, and whose embedded
    /// store does at `store`: the system chooses the port for one of 0.
    pub(crate) fn summary_at(&self, listen: &[String], store: Option<SocketAddr>) -> String {
        let joined = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(", ");
        let listen = listen.join(", ");
        let prefixes = joined(&mut self.routes.iter().map(|route| route.prefix.clone()));
        let servers = &mut self.memcached.servers.iter();
        let values = if self.uses_embedded_store() {
            let size = show_size(self.store.bytes_max as u64);
            let listen = store.map_or_else(String::new, |at| format!(" at {at}"));
            format!("the embedded store ({size}){listen}")
        } else if let Some(place) = self.redis.place() {
            format!("Redis {place}")
        } else {
            format!(
                "memcached {}",
                joined(&mut servers.map(|server| server.address.to_string()))
            )
        };
        let rest = if self.has_upstream() {
            let urls = &mut self.upstream.url.iter();
            format!("the rest by {}", joined(&mut urls.map(ToString::to_string)))
        } else {
            "nothing else (no upstream)".to_owned()
        };
        format!("polls under {prefixes} at {listen} answered from {values}, {rest}")
    }
}

/// `[server]`: listeners and loops.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Addresses for clients; never empty.
    pub listen: Vec<SocketAddr>,
    /// Address of the admin listener; `None` is `"off"`.
    pub admin: Option<SocketAddr>,
    /// Host names of that listener, besides `localhost` and addresses.
    pub admin_hosts: Vec<String>,
    /// Number of loops; 0 is one per core. [`Self::loops`] resolves it.
    pub pollers: usize,
    /// The system call for answers to many.
    pub io_uring: IoUring,
    /// The user that a process started as root becomes, after it has bound its listeners.
    pub user: Option<String>,
    /// Proxies whose forwarding header fields are trusted.
    pub trusted_proxies: Vec<Network>,
    /// Balancers whose connections begin with a header of the PROXY protocol.
    pub proxy_protocol: Vec<Network>,
    /// Clients without TLS may speak HTTP/2, if they begin with its preface.
    pub h2c: bool,
    /// File with the process id while the process serves; `None` is `"off"`.
    pub pid_file: Option<PathBuf>,
}

impl ServerConfig {
    /// Returns true if the admin listener, if there is one, can only be reached from this machine.
    pub fn admin_is_local(&self) -> bool {
        self.admin.is_none_or(|at| address::is_loopback(at.ip()))
    }

    /// Number of loops to start: `pollers`, or one per available core.
    pub fn loops(&self) -> usize {
        if self.pollers > 0 {
            return self.pollers;
        }
        std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
    }
}

/// The use of `io_uring` for answers to many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoUring {
    /// Many with one call, where the kernel allows it.
    Auto,
    /// Never: each answer by a call of its own.
    Off,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: vec![loopback(8080)],
            admin: Some(loopback(9090)),
            admin_hosts: Vec::new(),
            pollers: 0,
            io_uring: IoUring::Auto,
            user: None,
            trusted_proxies: Vec::new(),
            proxy_protocol: Vec::new(),
            h2c: false,
            pid_file: None,
        }
    }
}

/// `[limits]`: bounds on what a client may send, hold and wait for.
///
/// Shape: bounds on connections and waiters are for the whole process; see [`share`].
#[derive(Clone, Debug, PartialEq)]
pub struct LimitsConfig {
    /// Request line and header section. Units: bytes. Above it: 431.
    pub head_bytes_max: usize,
    /// Request target. Units: bytes. Above it: 414.
    pub target_bytes_max: usize,
    /// Header fields of one request. Above it: 431.
    pub header_count_max: usize,
    /// Body of a proxied request. Units: bytes. Above it: 413.
    pub body_bytes_max: u64,
    /// Body of a poll, which is kept for a miss. Units: bytes. Above it: 413.
    pub poll_body_bytes_max: u64,
    /// Incomplete requests. Units: bytes. Above it: 503.
    pub gathered_bytes_max: usize,
    /// Open client connections. Above it new ones are closed.
    pub connections_max: usize,
    /// Open connections of one client address. Above it new ones are closed; `None` is `"off"`.
    pub connections_per_address: Option<usize>,
    /// Requests on one connection before it is closed.
    pub requests_per_connection_max: u64,
    /// Last known values, with overhead. Units: bytes.
    pub stale_bytes_max: usize,
    /// Held polls. Above it: 503 with Retry-After.
    pub waiters_max: usize,
    /// Clients and keys whose requests are counted at a time.
    pub rate_buckets: usize,
    /// Approximate interval of heartbeats on a silent event stream.
    pub stream_heartbeat: Duration,
    /// Longest duration of an event stream.
    pub stream_lifetime: Duration,
    /// One message of a WebSocket client. Units: bytes. Above it: closed with 1009.
    pub websocket_message_bytes_max: usize,
    /// Messages of one WebSocket client, by the keys in them. Above it: closed with 1008.
    pub websocket_messages_rate: Option<Rate>,
    /// Time from the first byte of a request to the end of its header section. Above it: 408.
    pub header_timeout: Duration,
    /// Time for which a client may send a body slower than `body_rate_min`. Above it: 408.
    pub body_timeout: Duration,
    /// Lowest rate at which a client sends a body. Units: bytes per second.
    pub body_rate_min: u32,
    /// Time between requests on a kept-alive connection. Above it: closed.
    pub idle_timeout: Duration,
    /// Time without progress while a response is written. Above it: closed.
    pub write_timeout: Duration,
    /// Lowest rate at which a client reads a response. Units: bytes per second. Below it: closed.
    pub write_rate_min: u32,
    /// Output queued for clients. Units: bytes. Above it the slowest are cut off.
    pub output_bytes_max: usize,
    /// Time from SIGTERM to exit, for open requests and waits.
    pub drain_timeout: Duration,
    /// Time from SIGUSR2 until the successor serves. Above it the upgrade fails.
    pub upgrade_timeout: Duration,
}

impl LimitsConfig {
    /// One loop's share of the connections.
    pub fn connections_per_loop(&self, loops: usize) -> usize {
        share(self.connections_max, loops)
    }

    /// The room of one loop.
    pub(crate) fn rooms(&self, loops: usize) -> Rooms {
        Rooms {
            held_max: self.connections_per_loop(loops),
            waiting_max: share(self.waiters_max, loops),
        }
    }
}

/// The room of one loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rooms {
    /// Exchanges that it holds.
    pub(crate) held_max: usize,
    /// Waits for a change.
    pub(crate) waiting_max: usize,
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
    /// Address of the memcached protocol; `None` is `"off"`.
    pub listen: Option<SocketAddr>,
    /// Further addresses.
    pub listen_also: Vec<SocketAddr>,
    /// `listen` may be an address that other machines can reach.
    pub allow_remote: bool,
    /// A unix socket for the memcached protocol.
    pub unix_socket: Option<PathBuf>,
    /// Permission bits of that socket.
    pub unix_permissions: u32,
    /// Names and passwords; `None` allows every client that can connect.
    pub auth_file: Option<PathBuf>,
    /// Supported protocols.
    pub protocols: Protocols,
    /// Items, with overhead. Units: bytes.
    pub bytes_max: usize,
    /// One value. Units: bytes. Above it: `SERVER_ERROR object too large for cache`.
    pub item_bytes_max: usize,
    /// Items are evicted to make room; otherwise new ones are rejected.
    pub evictions: bool,
    /// Items have a cas unique.
    pub cas: bool,
    /// Clients may list keys.
    pub dump: bool,
    /// Clients may `flush_all`.
    pub flush_all: bool,
    /// Clients may `shutdown` the process.
    pub shutdown: bool,
    /// Open connections of memcached clients.
    pub connections_max: usize,
    /// Time between commands of a connection; zero is no limit. Above it: closed.
    pub idle_timeout: Duration,
    /// Commands of one connection before the next connection is served.
    pub commands_per_turn: usize,
    /// Connections that the kernel queues until they are accepted.
    pub backlog: u16,
    /// Path of the snapshot, which keeps the items over a restart.
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
    /// The servers are spoken to under TLS.
    pub tls: bool,
    /// File with the certificates that are trusted; `None` is the system's.
    pub tls_ca: Option<PathBuf>,
    /// Name that the certificates of the servers are for; `None` is the host of each.
    pub tls_server_name: Option<String>,
    /// Certificate chain that is sent to servers which ask for one.
    pub tls_certificate: Option<PathBuf>,
    /// Private key of that certificate.
    pub tls_key: Option<PathBuf>,
    /// Time of one lookup. Above it: a miss.
    pub timeout: Duration,
    /// Time of one connection attempt.
    pub connect_timeout: Duration,
    /// Interval of sweeps over the keys that polls wait for.
    pub sweep_interval: Duration,
    /// The servers are asked to report changes.
    pub watch: bool,
    /// Consecutive failures after which a server is ejected for a while.
    pub failures_max: u32,
    /// The largest value a server may send; as large as its own `-I`. Units: bytes.
    pub value_bytes_max: usize,
}

impl MemcachedConfig {
    /// The files of TLS towards the servers.
    pub fn client_tls(&self) -> ClientTlsFiles<'_> {
        ClientTlsFiles {
            ca: ("memcached.tls_ca", self.tls_ca.as_deref()),
            server_name: ("memcached.tls_server_name", self.tls_server_name.as_deref()),
            certificate: ("memcached.tls_certificate", self.tls_certificate.as_deref()),
            key: ("memcached.tls_key", self.tls_key.as_deref()),
        }
    }
}

impl Default for MemcachedConfig {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            tls: false,
            tls_ca: None,
            tls_server_name: None,
            tls_certificate: None,
            tls_key: None,
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
    /// Address; the ring hashes the name as written.
    pub address: PeerAddress,
    /// Its share of the keys relative to the other servers; at least 1.
    pub weight: u32,
}

/// `[log]`: diagnostics and the access log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// The lowest severity that is written to standard error.
    pub level: LogLevel,
    /// Format of events.
    pub format: LogFormat,
    /// Target of the access log.
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

/// Lowest severity of events that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Failures.
    Error,
    /// Degraded operation.
    Warn,
    /// Information that an operator needs once.
    Info,
    /// Details of one request.
    Debug,
    /// Everything.
    Trace,
}

/// Format of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Target of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessTarget {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// Appended to a file.
    File(PathBuf),
}

/// One loop's share of a bound for the whole process, rounded up.
///
/// Loops share no state, so each keeps to its own share.
pub fn share(maximum: usize, loops: usize) -> usize {
    maximum.div_ceil(loops.max(1))
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
