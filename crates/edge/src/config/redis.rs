//! Options of Redis.

use super::{ClientTlsFiles, PeerAddress, RouteConfig};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// `[redis]`: one Redis or Valkey server that has the values, or a cluster of them.
#[derive(Clone, Debug, PartialEq)]
pub struct RedisConfig {
    /// The server; `None` is `"off"`.
    pub url: Option<RedisUrl>,
    /// Sentinels that know the server, in place of `url`.
    pub sentinels: Vec<RedisUrl>,
    /// The name by which they know it.
    pub sentinel_name: Option<String>,
    /// Servers of the cluster that has the values, in place of `url`.
    pub cluster: Vec<RedisUrl>,
    /// Interval at which the topology of the cluster is read.
    pub cluster_interval: Duration,
    /// File with the certificates that are trusted; `None` is the system's.
    pub tls_ca: Option<PathBuf>,
    /// Name that the certificate of the server is for; `None` is its host.
    pub tls_server_name: Option<String>,
    /// Certificate chain that is sent to a server which asks for one.
    pub tls_certificate: Option<PathBuf>,
    /// Private key of that certificate.
    pub tls_key: Option<PathBuf>,
    /// User of its ACL; `None` is the default one.
    pub username: Option<String>,
    /// File with the password.
    pub password_file: Option<PathBuf>,
    /// Number of the database.
    pub database: u32,
    /// The way in which changes are found.
    pub tracking: RedisTracking,
    /// Beginnings of the keys whose changes are announced with `"prefix"`; none for all keys.
    pub tracking_prefixes: Vec<String>,
    /// Time of one command. Above it: a miss.
    pub timeout: Duration,
    /// Time of one connection attempt, with the greeting.
    pub connect_timeout: Duration,
    /// Silence after which the server is asked for a sign of life.
    pub probe: Duration,
    /// Interval of sweeps over the keys that polls wait for, while the server announces changes.
    pub sweep_interval: Duration,
    /// Consecutive failures after which commands fail at once for a while.
    pub failures_max: u32,
    /// The largest value that is read. Units: bytes.
    pub value_bytes_max: usize,
    /// All values that are kept of keys that polls wait for; with 0 none is. Units: bytes.
    pub kept_bytes_max: usize,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: None,
            sentinels: Vec::new(),
            sentinel_name: None,
            cluster: Vec::new(),
            cluster_interval: Duration::from_secs(1),
            tls_ca: None,
            tls_server_name: None,
            tls_certificate: None,
            tls_key: None,
            username: None,
            password_file: None,
            database: 0,
            tracking: RedisTracking::Keys,
            tracking_prefixes: Vec::new(),
            timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_millis(500),
            probe: Duration::from_secs(1),
            sweep_interval: Duration::from_secs(30),
            failures_max: 3,
            value_bytes_max: 16 << 20,
            kept_bytes_max: 0,
        }
    }
}

impl RedisConfig {
    /// The files of TLS towards the server.
    pub fn client_tls(&self) -> ClientTlsFiles<'_> {
        ClientTlsFiles {
            ca: ("redis.tls_ca", self.tls_ca.as_deref()),
            server_name: ("redis.tls_server_name", self.tls_server_name.as_deref()),
            certificate: ("redis.tls_certificate", self.tls_certificate.as_deref()),
            key: ("redis.tls_key", self.tls_key.as_deref()),
        }
    }

    /// Returns true if values are in Redis.
    pub fn is_on(&self) -> bool {
        self.switch().is_some()
    }

    /// The option that names the server, or what knows it; `None` if values come from elsewhere.
    pub(super) fn switch(&self) -> Option<&'static str> {
        if self.url.is_some() {
            Some("redis.url")
        } else if !self.sentinels.is_empty() {
            Some("redis.sentinels")
        } else {
            (!self.cluster.is_empty()).then_some("redis.cluster")
        }
    }

    /// Describes where the values are; `None` if they come from elsewhere.
    pub fn place(&self) -> Option<String> {
        if let Some(url) = &self.url {
            return Some(url.to_string());
        }
        let list = |urls: &[RedisUrl]| {
            let urls: Vec<_> = urls.iter().map(ToString::to_string).collect();
            urls.join(", ")
        };
        if !self.sentinels.is_empty() {
            let name = self.sentinel_name.as_deref().unwrap_or_default();
            return Some(format!("{name} by Sentinel {}", list(&self.sentinels)));
        }
        (!self.cluster.is_empty()).then(|| format!("cluster of {}", list(&self.cluster)))
    }

    /// Warnings about keys of which no change is announced, and about prefixes without effect.
    pub(super) fn warnings(&self, routes: &[Arc<RouteConfig>]) -> Vec<String> {
        let prefixes = &self.tracking_prefixes;
        if prefixes.is_empty() {
            return Vec::new();
        }
        if self.tracking != RedisTracking::Prefix {
            let told = "redis.tracking_prefixes has no effect without redis.tracking = \"prefix\"";
            return vec![told.to_owned()];
        }
        let is_left_out = |route: &&Arc<RouteConfig>| {
            let beginning = route.key.beginning(&route.prefix);
            !prefixes.iter().any(|it| beginning.starts_with(it))
        };
        let left_out = routes.iter().filter(is_left_out);
        let told = left_out.map(|route| {
            format!(
                "redis.tracking_prefixes does not cover all keys of the route `{}`: those that \
                 polls wait for are read every 250 ms",
                route.prefix
            )
        });
        told.collect()
    }

    /// Returns true if a server, or what knows it, is reached under TLS.
    pub(super) fn is_any_secure(&self) -> bool {
        let urls = self.url.iter().chain(&self.sentinels);
        let mut urls = urls.chain(&self.cluster);
        urls.any(|url| matches!(url, RedisUrl::Secure(_)))
    }

    /// The address of a server or a Sentinel that is reached under TLS.
    pub fn secure_address(&self) -> Option<&PeerAddress> {
        match (self.url.as_ref())
            .or(self.sentinels.first())
            .or(self.cluster.first())
        {
            Some(RedisUrl::Secure(address)) => Some(address),
            Some(RedisUrl::Tcp(_) | RedisUrl::Unix(_)) | None => None,
        }
    }
}

/// The way in which changes of keys are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisTracking {
    /// The server announces changes of the keys that polls wait for.
    Keys,
    /// The server announces changes of all keys with certain beginnings.
    Prefix,
    /// The keys are swept.
    Off,
}

/// URL of a Redis server: `redis://host`, `redis://host:port`, `rediss://` for TLS, or
/// `unix:///path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisUrl {
    /// A host and a port; 6379 where none was written.
    Tcp(PeerAddress),
    /// The same under TLS.
    Secure(PeerAddress),
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl FromStr for RedisUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::with_port(text, PORT)
    }
}

impl RedisUrl {
    /// Reads the URL of a server of a cluster.
    pub(crate) fn of_cluster(text: &str) -> Result<Self, String> {
        match Self::with_port(text, PORT)? {
            Self::Unix(_) => {
                Err("a server of a cluster has an address, and no unix socket".to_owned())
            }
            url => Ok(url),
        }
    }

    /// Reads the URL of a Sentinel, which listens on a port of its own.
    pub(crate) fn of_sentinel(text: &str) -> Result<Self, String> {
        match Self::with_port(text, SENTINEL_PORT)? {
            Self::Unix(_) => Err("a Sentinel has an address, and no unix socket".to_owned()),
            url => Ok(url),
        }
    }

    fn with_port(text: &str, port: u16) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix://") {
            if path.contains('@') && !path.starts_with('/') {
                return Err("a unix socket has neither a user nor a password".to_owned());
            }
            if !path.starts_with('/') {
                return Err(format!("not the absolute path of a unix socket: `{path}`"));
            }
            return Ok(Self::Unix(path.into()));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("no scheme: write redis://host:port or unix:///path".to_owned());
        };
        let of = match scheme {
            "redis" | "valkey" => Self::Tcp,
            "rediss" | "valkeys" => Self::Secure,
            _ => return Err(format!("neither redis, rediss nor unix: `{scheme}`")),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains('@') {
            return Err(
                "the url cannot carry a user or a password: see redis.username and \
                 redis.password_file"
                    .to_owned(),
            );
        }
        if authority.contains(['/', '?', '#']) {
            return Err("the url ends after the port: see redis.database".to_owned());
        }
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.ends_with(']'));
        let address = if has_port {
            authority.parse()
        } else {
            format!("{authority}:{port}").parse()
        };
        address
            .map(of)
            .map_err(|error: super::AddressError| error.to_string())
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "redis://{address}"),
            Self::Secure(address) => write!(f, "rediss://{address}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// The port of Redis.
const PORT: u16 = 6379;
/// The port of Sentinels.
const SENTINEL_PORT: u16 = 26_379;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_as_it_is_written() {
        for (text, shown) in [
            ("redis://cache", "redis://cache:6379"),
            ("redis://cache:7/", "redis://cache:7"),
            ("valkey://[::1]", "redis://[::1]:6379"),
            ("redis://[::1]:7", "redis://[::1]:7"),
            ("rediss://cache", "rediss://cache:6379"),
            ("valkeys://cache:7", "rediss://cache:7"),
            ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ] {
            let url: RedisUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
        }
    }

    #[test]
    fn a_sentinel_has_a_port_of_its_own_and_no_socket() {
        let read = |text| RedisUrl::of_sentinel(text).map(|url| url.to_string());
        assert_eq!(read("redis://a").unwrap(), "redis://a:26379");
        assert_eq!(read("rediss://a:7").unwrap(), "rediss://a:7");
        assert!(read("unix:///a").unwrap_err().contains("no unix socket"));
    }

    #[test]
    fn a_server_of_a_cluster_has_no_socket() {
        let read = |text| RedisUrl::of_cluster(text).map(|url| url.to_string());
        assert_eq!(read("rediss://a").unwrap(), "rediss://a:6379");
        assert!(read("unix:///a").unwrap_err().contains("no unix socket"));
    }

    #[test]
    fn a_url_that_says_more_is_refused() {
        for (text, words) in [
            ("cache:6379", "no scheme"),
            ("http://cache", "neither redis, rediss nor unix: `http`"),
            ("rediss://cache/3", "redis.database"),
            ("redis://user:secret@cache", "redis.password_file"),
            ("unix://user:secret@/run/redis.sock", "neither a user"),
            ("redis://cache/3", "redis.database"),
            ("redis://cache:0", "port is not a number"),
            ("redis://", "not a host name"),
            ("unix://redis.sock", "not the absolute path"),
        ] {
            let error = text.parse::<RedisUrl>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
