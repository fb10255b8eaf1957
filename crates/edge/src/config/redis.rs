//! Options of Redis.

use super::PeerAddress;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// `[redis]`: one Redis or Valkey server that has the values.
#[derive(Clone, Debug, PartialEq)]
pub struct RedisConfig {
    /// The server; `None` is `"off"`.
    pub url: Option<RedisUrl>,
    /// User of its ACL; `None` is the default one.
    pub username: Option<String>,
    /// File with the password.
    pub password_file: Option<PathBuf>,
    /// Number of the database.
    pub database: u32,
    /// The way in which changes are found.
    pub tracking: RedisTracking,
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
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: None,
            username: None,
            password_file: None,
            database: 0,
            tracking: RedisTracking::Keys,
            timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_millis(500),
            probe: Duration::from_secs(1),
            sweep_interval: Duration::from_secs(30),
            failures_max: 3,
            value_bytes_max: 16 << 20,
        }
    }
}

/// The way in which changes of keys are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisTracking {
    /// The server announces changes of the keys that polls wait for.
    Keys,
    /// The keys are swept.
    Off,
}

/// URL of a Redis server: `redis://host`, `redis://host:port` or `unix:///path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisUrl {
    /// A host and a port; 6379 where none was written.
    Tcp(PeerAddress),
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl FromStr for RedisUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix://") {
            if !path.starts_with('/') {
                return Err(format!("not the absolute path of a unix socket: `{path}`"));
            }
            return Ok(Self::Unix(path.into()));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("no scheme: write redis://host:port or unix:///path".to_owned());
        };
        match scheme {
            "redis" | "valkey" => {}
            "rediss" | "valkeys" => {
                return Err(format!(
                    "{scheme}:// is not supported: Redis is reached without TLS"
                ));
            }
            _ => return Err(format!("neither redis nor unix: `{scheme}`")),
        }
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
            format!("{authority}:{PORT}").parse()
        };
        address
            .map(Self::Tcp)
            .map_err(|error: super::AddressError| error.to_string())
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "redis://{address}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// The port of Redis.
const PORT: u16 = 6379;

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
            ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ] {
            let url: RedisUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
        }
    }

    #[test]
    fn a_url_that_says_more_is_refused() {
        for (text, words) in [
            ("cache:6379", "no scheme"),
            ("http://cache", "neither redis nor unix: `http`"),
            ("rediss://cache", "without TLS"),
            ("redis://user:secret@cache", "redis.password_file"),
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
