//! The origin of a request: the peer, or the client that a trusted proxy names.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::net::{IpAddr, SocketAddr};

/// The text of the address that was used last: clients come more than once.
#[derive(Debug, Default)]
pub(crate) struct AddressText {
    last: Option<(IpAddr, Py<PyString>)>,
}

impl AddressText {
    /// The text of `address`.
    pub(crate) fn of<'py>(&mut self, py: Python<'py>, address: IpAddr) -> Bound<'py, PyString> {
        match &self.last {
            Some((known, text)) if *known == address => text.bind(py).clone(),
            _ => {
                let text = PyString::new(py, &address.to_string());
                self.last = Some((address, text.clone().unbind()));
                text
            }
        }
    }
}

/// The peers whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
#[derive(Debug, Default)]
pub(crate) struct Trusted {
    all: bool,
    networks: Vec<(IpAddr, u8)>,
}

/// The origin of a request.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The client's address; `None` over a unix socket.
    pub(crate) client: Option<(IpAddr, u16)>,
    pub(crate) is_https: bool,
}

impl Trusted {
    /// Reads networks such as `10.0.0.0/8`, addresses, or `*` for all peers.
    pub(crate) fn of(networks: Vec<String>) -> PyResult<Self> {
        let mut trusted = Self::default();
        for text in networks {
            if text == "*" {
                trusted.all = true;
                continue;
            }
            let network = parse_network(&text).ok_or_else(|| {
                PyValueError::new_err(format!("no address, network or '*': {text:?}"))
            })?;
            trusted.networks.push(network);
        }
        Ok(trusted)
    }

    /// Returns true if no peer is trusted.
    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.networks.is_empty()
    }

    fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.all
            || self
                .networks
                .iter()
                .any(|(network, bits)| is_within(address, *network, *bits))
    }

    /// Returns the origin of a request: the nearest client that is not a trusted proxy.
    ///
    /// Shape: the peers of a unix socket have no address; they are trusted if any peer is.
    pub(crate) fn origin<'h>(
        &self,
        peer: Option<SocketAddr>,
        is_secure: bool,
        fields: impl Iterator<Item = (&'h str, &'h [u8])>,
    ) -> Origin {
        let mut origin = Origin {
            client: peer.map(|peer| (peer.ip(), peer.port())),
            is_https: is_secure,
        };
        if self.is_empty() || peer.is_some_and(|peer| !self.contains(peer.ip())) {
            return origin;
        }
        let mut forwarded: Vec<&[u8]> = Vec::new();
        for (name, value) in fields {
            if name.eq_ignore_ascii_case("x-forwarded-for") {
                forwarded.extend(value.split(|byte| *byte == b','));
            } else if name.eq_ignore_ascii_case("x-forwarded-proto") {
                let last = value.rsplit(|byte| *byte == b',').next().unwrap_or(value);
                origin.is_https = last.trim_ascii().eq_ignore_ascii_case(b"https");
            }
        }
        for hop in forwarded.into_iter().rev() {
            let Some(address) = parse_hop(hop) else {
                break;
            };
            origin.client = Some((address, 0));
            if !self.contains(address) {
                break;
            }
        }
        origin
    }
}

fn parse_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(most);
    (bits <= most).then_some((address, bits))
}

/// An address as proxies write it: bare, with a port, or in brackets.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim();
    text.parse()
        .or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()))
        .or_else(|_| text.trim_matches(['[', ']']).parse())
        .ok()
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let shift = |width: u32| width - u32::from(bits);
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let difference = u32::from(address) ^ u32::from(network);
            difference.checked_shr(shift(32)).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let difference = u128::from(address) ^ u128::from(network);
            difference.checked_shr(shift(128)).unwrap_or(0) == 0
        }
        _ => false,
    }
}
