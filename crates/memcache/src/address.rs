//! Addresses of servers, as users write them.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The address on which a memcached server listens.
///
/// Shape: written `HOST`, `HOST:PORT`, `[IPV6]:PORT`, or the path of a unix socket, which begins
/// with `/`. The port is 11211 where none is given.
///
/// ```
/// use dwell_memcache::ServerAddress;
///
/// let written = |text: &str| text.parse::<ServerAddress>().map(|address| address.to_string());
/// assert_eq!(written("cache-1"), Ok("cache-1:11211".to_owned()));
/// assert_eq!(written("[::1]:22122"), Ok("[::1]:22122".to_owned()));
/// assert_eq!(written("/run/memcached.sock"), Ok("/run/memcached.sock".to_owned()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// A host, by name or address, and a port.
    Tcp {
        /// The host as it was written, without brackets: rings hash it so.
        host: String,
        /// The port.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

/// Text that is no address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    text: String,
    expected: &'static str,
}

impl AddressError {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            expected,
        }
    }
}

impl ServerAddress {
    /// The host as a ring hashes it; the path of a unix socket.
    pub fn host(&self) -> &str {
        match self {
            Self::Tcp { host, .. } => host,
            Self::Unix(path) => path.to_str().unwrap_or_default(),
        }
    }

    /// The port as a ring hashes it; 0 for a unix socket, as in libmemcached.
    pub const fn port(&self) -> u16 {
        match self {
            Self::Tcp { port, .. } => *port,
            Self::Unix(_) => 0,
        }
    }

    /// The path, for a unix socket.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp { .. } => None,
            Self::Unix(path) => Some(path),
        }
    }
}

impl FromStr for ServerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let refuse = |expected| AddressError::new(text, expected);
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let (host, port) = split(text).ok_or_else(|| refuse("a host and a port"))?;
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(refuse("a host"));
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| refuse("a port from 1 to 65535"))?,
        };
        let host = host.to_owned();
        Ok(Self::Tcp { host, port })
    }
}

/// Splits a host from its port; `None` where brackets are wrong.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => after.is_empty().then_some((host, None)),
        };
    }
    match text.split_once(':') {
        // An IPv6 address without brackets has no port.
        Some(_) if text.parse::<IpAddr>().is_ok() => Some((text, None)),
        Some((host, port)) => Some((host, Some(port))),
        None => Some((text, None)),
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, expected } = self;
        write!(f, "server address is not {expected}: {text}")
    }
}

impl std::error::Error for AddressError {}

/// memcached's own.
pub(crate) const DEFAULT_PORT: u16 = 11211;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (text, host, port) in [
            ("a", "a", 11211),
            ("a:1", "a", 1),
            ("127.0.0.1:22122", "127.0.0.1", 22122),
            ("::1", "::1", 11211),
            ("[::1]", "::1", 11211),
            ("[::1]:7", "::1", 7),
        ] {
            let address: ServerAddress = text.parse().unwrap();
            assert_eq!((address.host(), address.port()), (host, port), "{text}");
            assert_eq!(address.to_string().parse(), Ok(address), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "", ":1", "a:", "a:0", "a:65536", "a:b", "[::1", "[::1]7", "a b:1",
        ] {
            let error = text.parse::<ServerAddress>().unwrap_err().to_string();
            assert!(error.starts_with("server address is not "), "{error}");
        }
    }
}
