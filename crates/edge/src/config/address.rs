//! Addresses of peers: a host by name or number, and a port.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A host and a port as they were written.
///
/// Shape: the name of the host is kept, since a memcached ring hashes the name and not the address.
/// An IPv6 address is kept without its brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    /// Name, IPv4 or IPv6 address.
    pub host: String,
    /// TCP port; never 0.
    pub port: u16,
}

impl PeerAddress {
    /// Resolves the host. Blocks as long as the resolver of the system does.
    ///
    /// # Errors
    /// The resolver's error, or `NotFound` if the host has no address.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        self.resolve_all()?.into_iter().next().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("no address for {}", self.host),
            )
        })
    }

    /// All addresses of the host, the preferred one first; may be none. Blocks as
    /// [`resolve`](Self::resolve) does.
    ///
    /// # Errors
    /// The resolver's error.
    pub fn resolve_all(&self) -> io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }

    /// The address, if the host is one and not a name.
    pub fn literal(&self) -> Option<SocketAddr> {
        let host = self.host.parse::<IpAddr>().ok()?;
        Some(SocketAddr::new(host, self.port))
    }
}

impl FromStr for PeerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.contains('@') {
            return Err(AddressError::UserInfo);
        }
        let (host, port) = text.rsplit_once(':').ok_or(AddressError::NoPort)?;
        let port = port
            .parse()
            .map_err(|_| AddressError::Port(port.to_owned()))?;
        if port == 0 {
            return Err(AddressError::Port("0".to_owned()));
        }
        Ok(Self {
            host: host_name(host)?.to_owned(),
            port,
        })
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// URL of an application server: `http://host` or `http://host:port`, or `https`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamUrl {
    /// Host and port; the port is 80 where none was written, and 443 under TLS.
    pub address: PeerAddress,
    /// True for `https`: the server is spoken to under TLS.
    pub is_secure: bool,
}

impl FromStr for UpstreamUrl {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let secure = strip_scheme(text, "https://");
        let is_secure = secure.is_some();
        let Some(rest) = secure.or_else(|| strip_scheme(text, "http://")) else {
            return Err(match text.split_once("://") {
                Some((scheme, _)) => AddressError::Scheme(scheme.to_owned()),
                None => AddressError::NoScheme,
            });
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains('@') {
            return Err(AddressError::UserInfo);
        }
        if authority.contains(['/', '?', '#']) {
            return Err(AddressError::UrlPath);
        }
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.ends_with(']'));
        let address = if has_port {
            authority.parse()?
        } else {
            PeerAddress {
                host: host_name(authority)?.to_owned(),
                port: if is_secure { 443 } else { 80 },
            }
        };
        Ok(Self { address, is_secure })
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.address)
    }
}

/// Reason why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// The port is missing.
    NoPort,
    /// The port is not a number from 1 to 65535.
    Port(String),
    /// The host is empty, or has a byte that no host name has.
    Host(String),
    /// The scheme is missing.
    NoScheme,
    /// The scheme is neither `http` nor `https`.
    Scheme(String),
    /// The URL has a path, a query or a fragment.
    UrlPath,
    /// There is a user name.
    UserInfo,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPort => f.write_str("no port: write host:port"),
            Self::Port(port) => write!(f, "port is not a number from 1 to 65535: `{port}`"),
            Self::Host(host) => write!(f, "not a host name or address: `{host}`"),
            Self::NoScheme => f.write_str("no scheme: write http://host:port"),
            Self::Scheme(scheme) => write!(f, "neither http nor https: `{scheme}`"),
            Self::UrlPath => {
                f.write_str("the upstream url ends after the port: requests keep their own path")
            }
            Self::UserInfo => f.write_str("an address cannot carry a user name"),
        }
    }
}

impl std::error::Error for AddressError {}

fn strip_scheme<'t>(text: &'t str, scheme: &str) -> Option<&'t str> {
    let head = text.get(..scheme.len())?;
    head.eq_ignore_ascii_case(scheme)
        .then(|| &text[scheme.len()..])
}

/// Checks a host and takes the brackets off an IPv6 address.
fn host_name(host: &str) -> Result<&str, AddressError> {
    let fail = || AddressError::Host(host.to_owned());
    if let Some(inner) = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return inner.parse::<Ipv6Addr>().map(|_| inner).map_err(|_| fail());
    }
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_host_byte) {
        return Err(fail());
    }
    Ok(host)
}

/// Returns true for an address that only this machine reaches, also one of IPv4 written as IPv6.
pub(super) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Result<(String, u16), AddressError> {
        text.parse().map(|PeerAddress { host, port }| (host, port))
    }

    #[test]
    fn a_peer_is_a_host_and_a_port() {
        assert_eq!(peer("127.0.0.1:11211"), Ok(("127.0.0.1".to_owned(), 11211)));
        assert_eq!(
            peer("cache-1.internal:1"),
            Ok(("cache-1.internal".to_owned(), 1))
        );
        assert_eq!(peer("[::1]:2"), Ok(("::1".to_owned(), 2)));
        assert_eq!(peer("cache"), Err(AddressError::NoPort));
        assert_eq!(peer("cache:"), Err(AddressError::Port(String::new())));
        assert_eq!(peer("cache:0"), Err(AddressError::Port("0".to_owned())));
        assert_eq!(
            peer("cache:65536"),
            Err(AddressError::Port("65536".to_owned()))
        );
        assert_eq!(peer(":1"), Err(AddressError::Host(String::new())));
        assert_eq!(peer("::1:2"), Err(AddressError::Host("::1".to_owned())));
        assert_eq!(peer("[::x]:2"), Err(AddressError::Host("[::x]".to_owned())));
        for text in ["user:password@cache", "user@cache:1", ":password@cache:1"] {
            assert_eq!(peer(text), Err(AddressError::UserInfo));
        }
        assert_eq!(peer("a b:2"), Err(AddressError::Host("a b".to_owned())));
    }

    #[test]
    fn a_peer_is_shown_as_it_is_written() {
        for text in ["127.0.0.1:11211", "cache-1.internal:1", "[::1]:2"] {
            assert_eq!(
                text.parse::<PeerAddress>()
                    .map(|peer| peer.to_string())
                    .as_deref(),
                Ok(text)
            );
        }
    }

    #[test]
    fn an_upstream_is_http_and_nothing_after_the_port() {
        let url = |text: &str| text.parse::<UpstreamUrl>().map(|url| url.to_string());
        assert_eq!(
            url("http://127.0.0.1:3000").as_deref(),
            Ok("http://127.0.0.1:3000")
        );
        assert_eq!(url("HTTP://app/").as_deref(), Ok("http://app:80"));
        assert_eq!(url("http://[::1]").as_deref(), Ok("http://[::1]:80"));
        assert_eq!(url("http://[::1]:3000").as_deref(), Ok("http://[::1]:3000"));
        assert_eq!(url("app:3000"), Err(AddressError::NoScheme));
        assert_eq!(url("HTTPS://app/").as_deref(), Ok("https://app:443"));
        assert_eq!(url("https://app:80").as_deref(), Ok("https://app:80"));
        assert_eq!(
            url("ftp://app"),
            Err(AddressError::Scheme("ftp".to_owned()))
        );
        assert_eq!(url("http://app/x"), Err(AddressError::UrlPath));
        assert_eq!(url("http://app?x"), Err(AddressError::UrlPath));
        assert_eq!(url("http://a@app"), Err(AddressError::UserInfo));
        assert_eq!(url("http://"), Err(AddressError::Host(String::new())));
        assert_eq!(url("http://app:x"), Err(AddressError::Port("x".to_owned())));
        assert_eq!(
            url("http\u{e9}://app"),
            Err(AddressError::Scheme("http\u{e9}".to_owned()))
        );
    }

    #[test]
    fn a_number_is_resolved_without_asking_anybody() {
        let address = "[::1]:2".parse::<PeerAddress>().map(|peer| peer.resolve());
        let resolved = address
            .expect("an address")
            .expect("a number needs no resolver");
        assert_eq!(resolved.to_string(), "[::1]:2");
    }
}
