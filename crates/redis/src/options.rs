//! Options of a client and of its writes.

use dwell_evloop::Connector;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The place where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// An address, which the caller has looked up.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
    /// The primary that Sentinels know by a name. They are asked for it for each connection, one
    /// after the other, and a server that reports another role is left again.
    Primary {
        /// The name, as the Sentinels have it.
        name: String,
        /// Their addresses, which the caller has looked up; at least one.
        sentinels: Vec<SocketAddr>,
    },
    /// The cluster that servers at these addresses belong to, which the caller has looked up; at
    /// least one. They tell the addresses of the others.
    Cluster(Vec<SocketAddr>),
}

impl Endpoint {
    /// The address of a server that is reached by one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            _ => None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
            Self::Primary { name, .. } => write!(f, "{name} (by Sentinel)"),
            Self::Cluster(servers) => {
                f.write_str("cluster of")?;
                servers.iter().try_for_each(|server| write!(f, " {server}"))
            }
        }
    }
}

/// Options and bounds of a client.
#[derive(Clone)]
pub struct ClientOptions {
    /// Begins the handshakes of TLS at an address; without it connections are plaintext.
    /// Default: none.
    pub tls: Option<Connector>,
    /// The user of the server's ACL; without it the default one. Default: none.
    pub username: Option<String>,
    /// The password. Default: none.
    pub password: Option<String>,
    /// The number of the database; a cluster has 0 alone. Default: 0.
    pub database: u32,
    /// The changes that the server is asked to announce. Default: of the keys that were read.
    pub announced: Announced,
    /// From the flush that takes an operation to its reply, waiting for the connection included.
    /// Default: 500 ms.
    pub timeout: Duration,
    /// From the start of a connection attempt to the last reply of the greeting, with the handshake
    /// of TLS. Each reply of the greeting has to come within `timeout`, too. Default: 500 ms.
    pub connect_timeout: Duration,
    /// Silence after which a connection is asked for a sign of life. Default: 1 s.
    pub probe: Duration,
    /// Interval at which a cluster is asked for its topology. Default: 1 s.
    pub topology_interval: Duration,
    /// Failures in a row after which operations fail at once until a new connection is greeted.
    /// Default: 3.
    pub failures_max: u32,
    /// The longest wait before the first new connection attempt; each failure in a row doubles it.
    /// Default: 50 ms.
    pub reconnect_delay_min: Duration,
    /// The longest wait before any new connection attempt. Default: 2 s.
    pub reconnect_delay_max: Duration,
    /// Operations without a reply, per connection. Default: 16384.
    pub operations_max: usize,
    /// Bytes of requests that the socket has not taken, per connection. Those of a cluster count
    /// until their replies, as another server may have to be sent them. Default: 1 MiB.
    pub request_bytes_max: usize,
    /// The largest value that is read. Units: bytes. Default: 1 MiB.
    pub value_bytes_max: usize,
    /// All values together that are [kept](crate::Client::kept); with 0 none is. Units: bytes.
    /// Default: 16 MiB.
    pub kept_bytes_max: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            tls: None,
            username: None,
            password: None,
            database: 0,
            announced: Announced::Keys,
            timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_millis(500),
            probe: Duration::from_secs(1),
            topology_interval: Duration::from_secs(1),
            failures_max: 3,
            reconnect_delay_min: Duration::from_millis(50),
            reconnect_delay_max: Duration::from_secs(2),
            operations_max: 16_384,
            request_bytes_max: 1 << 20,
            value_bytes_max: 1 << 20,
            kept_bytes_max: 16 << 20,
        }
    }
}

/// The changes that a server is asked to announce.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Announced {
    /// Changes of the keys that are waited for: the server remembers each of them.
    Keys,
    /// Changes of all keys that begin with one of these prefixes, waited for or not; without a
    /// prefix those of all keys. No prefix begins with another one.
    Prefixes(Vec<Box<[u8]>>),
    /// None: [`Status::tracking`](crate::Status::tracking) says so, and the caller sweeps.
    Nothing,
}

impl Announced {
    /// Returns true if changes of `key` are announced after it was read.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        match self {
            Self::Keys => true,
            Self::Prefixes(prefixes) => {
                prefixes.is_empty() || prefixes.iter().any(|prefix| key.starts_with(prefix))
            }
            Self::Nothing => false,
        }
    }
}

/// The password is not shown.
impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("username", &self.username)
            .field("database", &self.database)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Options of a `SET`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetOptions {
    /// The lifetime of the value, if it has one; it is sent in whole milliseconds, at least one.
    pub lifetime: Option<Duration>,
    /// The condition under which it is stored.
    pub condition: SetCondition,
}

/// The condition of a `SET`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetCondition {
    /// The value is stored whatever is there.
    #[default]
    None,
    /// The key has no value (`NX`).
    Absent,
    /// The key has a value (`XX`).
    Present,
}
