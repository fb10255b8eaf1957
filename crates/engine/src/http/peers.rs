//! Addresses of the clients, asked of the system once per connection.

use dwell_evloop::{Stream, Token};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The addresses of clients, by the place of their connections.
///
/// Shape: 20 bytes each, of the connections that an address was asked of and all before them. Once
/// one was asked of, or from the start where that is [known](Peers::of_all), those that come later
/// bring theirs with them.
#[derive(Debug, Default)]
pub(crate) struct Peers(RefCell<Vec<Packed>>);

#[derive(Clone, Copy, Debug, Default)]
struct Packed {
    ip: [u8; 16],
    port: u16,
    family: Family,
}

#[derive(Clone, Copy, Debug, Default)]
enum Family {
    #[default]
    Unknown,
    Unix,
    V4,
    V6,
}

impl Peers {
    /// Keeps the address of every connection.
    pub(super) fn of_all() -> Self {
        Self(RefCell::new(vec![Packed::default()]))
    }

    /// Keeps the address of a connection that comes from elsewhere, as it is now; false where the
    /// connection has failed already, so that it has none any more.
    pub(super) fn adopted(&mut self, connection: Token, stream: &Stream) -> bool {
        if self.0.get_mut().is_empty() {
            return true;
        }
        let address = stream.peer_address();
        if let Ok(address) = address {
            self.accepted(connection, address);
        }
        address.is_ok()
    }

    /// The address of the client of `connection`; `None` over a unix socket, or when it is gone.
    pub(crate) fn find(&self, connection: Token, stream: &Stream) -> Option<SocketAddr> {
        self.find_or(connection, || stream.peer_address().ok())
    }

    /// Keeps the address that a connection was accepted from, if addresses are asked for.
    pub(super) fn accepted(&mut self, connection: Token, address: Option<SocketAddr>) {
        let known = self.0.get_mut();
        if known.is_empty() {
            return;
        }
        let place = connection.index() as usize;
        if place >= known.len() {
            known.resize(place + 1, Packed::default());
        }
        known[place] = Packed::of(address);
    }

    fn find_or(
        &self,
        connection: Token,
        ask: impl FnOnce() -> Option<Option<SocketAddr>>,
    ) -> Option<SocketAddr> {
        let place = connection.index() as usize;
        let mut known = self.0.borrow_mut();
        if place >= known.len() {
            known.resize(place + 1, Packed::default());
        }
        if matches!(known[place].family, Family::Unknown) {
            known[place] = Packed::of(ask()?);
        }
        known[place].address()
    }

    /// Forgets the address of a connection that has ended.
    pub(super) fn forget(&mut self, connection: Token) {
        if let Some(known) = self.0.get_mut().get_mut(connection.index() as usize) {
            *known = Packed::default();
        }
    }
}

impl Packed {
    fn of(address: Option<SocketAddr>) -> Self {
        let Some(address) = address else {
            return Self {
                family: Family::Unix,
                ..Self::default()
            };
        };
        let mut ip = [0; 16];
        let family = match address.ip() {
            IpAddr::V4(v4) => {
                ip[..4].copy_from_slice(&v4.octets());
                Family::V4
            }
            IpAddr::V6(v6) => {
                ip = v6.octets();
                Family::V6
            }
        };
        let port = address.port();
        Self { ip, port, family }
    }

    fn address(self) -> Option<SocketAddr> {
        let ip = match self.family {
            Family::Unknown | Family::Unix => return None,
            Family::V4 => {
                let [a, b, c, d, ..] = self.ip;
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            Family::V6 => IpAddr::V6(Ipv6Addr::from(self.ip)),
        };
        Some(SocketAddr::new(ip, self.port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_either_family_are_kept_in_little_room() {
        let mut peers = Peers::default();
        let token = |place| Token::new(1, 0, place);
        for address in ["127.0.0.1:80", "[2001:db8::7]:65535", "[::ffff:1.2.3.4]:1"] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(
                peers.find_or(token(5), || Some(Some(address))),
                Some(address)
            );
            let again = peers.find_or(token(5), || unreachable!("it is known"));
            assert_eq!(again, Some(address));
            peers.forget(token(5));
        }
        assert_eq!(peers.find_or(token(5), || None), None, "it is gone");
        assert_eq!(peers.find_or(token(5), || Some(None)), None, "it has none");
        assert_eq!(
            peers.find_or(token(5), || unreachable!("it is known")),
            None
        );
        peers.forget(token(6));
        let address = "127.0.0.1:81".parse().ok();
        peers.accepted(token(9), address);
        let known = peers.find_or(token(9), || unreachable!("it is known"));
        assert_eq!(known, address);
        let mut unasked = Peers::default();
        unasked.accepted(token(9), address);
        assert!(unasked.0.get_mut().is_empty(), "nobody asks");
        let mut all = Peers::of_all();
        all.accepted(token(9), address);
        let known = all.find_or(token(9), || unreachable!("it is known"));
        assert_eq!(known, address);
        assert!(size_of::<Packed>() <= 20);
    }
}
