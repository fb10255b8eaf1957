//! URLs of the endpoints where a manager listens or connects.

use super::error::UrlError;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The protocol of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UrlProtocol {
    /// HTTP/1.1, which may upgrade to WebSocket.
    Http,
    /// Bytes.
    Raw,
}

/// The address of an endpoint, or its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Endpoint {
    Address(SocketAddr),
    /// A host name that has to be resolved, and a port.
    Name(String, u16),
    /// A unix socket.
    Path(PathBuf),
}

/// A URL taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Url {
    pub(super) protocol: UrlProtocol,
    pub(super) endpoint: Endpoint,
    /// Host and port as given, for the `Host` field of a request.
    pub(super) authority: String,
    /// The request target there.
    pub(super) target: String,
    /// The peers speak TLS.
    pub(super) is_secure: bool,
}

impl Url {
    /// Takes `scheme://host:port` or `scheme:///path` apart; a path behind a port is left alone.
    pub(super) fn parse(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::Scheme)?;
        let (protocol, default_port, is_unix) = match scheme {
            "http" | "ws" => (UrlProtocol::Http, Some(80), false),
            "tcp" | "tls" => (UrlProtocol::Raw, None, false),
            "http+unix" | "ws+unix" => (UrlProtocol::Http, None, true),
            "unix" => (UrlProtocol::Raw, None, true),
            "https" | "wss" => (UrlProtocol::Http, Some(443), false),
            _ => return Err(UrlError::Scheme),
        };
        if is_unix {
            if !rest.starts_with('/') || rest.len() < 2 {
                return Err(UrlError::Path);
            }
            return Ok(Self {
                protocol,
                endpoint: Endpoint::Path(PathBuf::from(rest)),
                authority: "localhost".into(),
                target: "/".into(),
                is_secure: false,
            });
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(UrlError::Host);
        }
        let (host, port) = split_port(authority)?;
        let port = match port {
            Some(port) => port.parse().map_err(|_| UrlError::Port(port.into()))?,
            None => default_port.ok_or(UrlError::PortMissing)?,
        };
        Ok(Self {
            protocol,
            endpoint: endpoint(host, port)?,
            authority: authority.into(),
            target: target(&rest[authority.len()..]),
            is_secure: matches!(scheme, "https" | "wss" | "tls"),
        })
    }
}

impl Endpoint {
    /// The host, without brackets; `None` for a unix socket.
    #[cfg(feature = "tls")]
    pub(super) fn host(&self) -> Option<String> {
        match self {
            Self::Address(address) => Some(address.ip().to_string()),
            Self::Name(name, _) => Some(name.clone()),
            Self::Path(_) => None,
        }
    }
}

/// The request target that the end of a URL stands for.
fn target(end: &str) -> String {
    let end = end.split('#').next().unwrap_or_default();
    match end.chars().next() {
        None => "/".into(),
        Some('/') => end.into(),
        Some(_) => format!("/{end}"),
    }
}

/// The host, its brackets included, and the port, if there is one.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), UrlError> {
    let host_end = match authority.strip_prefix('[') {
        Some(inside) => inside.find(']').ok_or(UrlError::Host)? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, rest) = authority.split_at(host_end);
    match rest.strip_prefix(':') {
        // A sign is no digit, though `u16` takes it.
        Some(port) if port.starts_with('+') => Err(UrlError::Port(port.into())),
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(UrlError::Host),
    }
}

fn endpoint(host: &str, port: u16) -> Result<Endpoint, UrlError> {
    if host.is_empty() {
        // As in `http://:8000`: every address of the machine.
        return Ok(Endpoint::Address((Ipv4Addr::UNSPECIFIED, port).into()));
    }
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    if let Some(bare) = bare {
        let address = bare.parse().map_err(|_| UrlError::Host)?;
        return Ok(Endpoint::Address(SocketAddr::new(
            IpAddr::V6(address),
            port,
        )));
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok(Endpoint::Address((address, port).into()));
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if host.bytes().all(is_name) {
        Ok(Endpoint::Name(host.into(), port))
    } else {
        Err(UrlError::Host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Endpoint {
        Endpoint::Address(text.parse().unwrap())
    }

    #[test]
    fn urls_name_a_protocol_and_an_endpoint() {
        let name = |host: &str, port| Endpoint::Name(host.into(), port);
        let path = |path: &str| Endpoint::Path(path.into());
        let good = [
            (
                "http://0.0.0.0:8000",
                UrlProtocol::Http,
                address("0.0.0.0:8000"),
            ),
            (
                "http://127.0.0.1",
                UrlProtocol::Http,
                address("127.0.0.1:80"),
            ),
            (
                "ws://127.0.0.1:0/path",
                UrlProtocol::Http,
                address("127.0.0.1:0"),
            ),
            ("http://:8000", UrlProtocol::Http, address("0.0.0.0:8000")),
            ("tcp://[::1]:9", UrlProtocol::Raw, address("[::1]:9")),
            (
                "http://localhost:1",
                UrlProtocol::Http,
                name("localhost", 1),
            ),
            (
                "tcp://a-b.example:65535",
                UrlProtocol::Raw,
                name("a-b.example", 65_535),
            ),
            ("unix:///run/a.sock", UrlProtocol::Raw, path("/run/a.sock")),
            (
                "http+unix:///run/a.sock",
                UrlProtocol::Http,
                path("/run/a.sock"),
            ),
        ];
        for (text, protocol, endpoint) in good {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.protocol, url.endpoint), (protocol, endpoint), "{text}");
        }
    }

    #[test]
    fn some_schemes_have_tls() {
        for (text, endpoint) in [
            ("https://127.0.0.1", "127.0.0.1:443"),
            ("wss://127.0.0.1/a", "127.0.0.1:443"),
            ("tls://127.0.0.1:9", "127.0.0.1:9"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.is_secure, url.endpoint), (true, address(endpoint)));
        }
        assert!(!Url::parse("http://127.0.0.1").unwrap().is_secure);
    }

    #[test]
    fn the_end_of_a_url_is_a_request_target() {
        let targets = [("", "/"), ("/a?b#c", "/a?b"), ("?b", "/?b"), ("#c", "/")];
        for (end, target) in targets {
            let url = Url::parse(&format!("ws://127.0.0.1:1{end}")).unwrap();
            assert_eq!(
                (url.target.as_str(), url.authority.as_str()),
                (target, "127.0.0.1:1")
            );
        }
    }

    #[test]
    fn faults_of_urls_are_told_apart() {
        let port = |port: &str| UrlError::Port(port.into());
        let bad = [
            ("127.0.0.1:8000", UrlError::Scheme),
            ("ftp://127.0.0.1:8000", UrlError::Scheme),
            ("tls://127.0.0.1", UrlError::PortMissing),
            ("tcp://127.0.0.1", UrlError::PortMissing),
            ("tcp://127.0.0.1:99999", port("99999")),
            ("tcp://127.0.0.1:", port("")),
            ("tcp://127.0.0.1:+1", port("+1")),
            ("tcp://127.0.0.1:-1", port("-1")),
            ("http://[::1", UrlError::Host),
            ("http://[::1]x:1", UrlError::Host),
            ("http://[nine]:1", UrlError::Host),
            ("http://a b:1", UrlError::Host),
            ("http://user@host:1", UrlError::Host),
            ("unix://relative", UrlError::Path),
            ("unix:///", UrlError::Path),
        ];
        for (text, error) in bad {
            assert_eq!(Url::parse(text), Err(error), "{text}");
        }
    }
}
