//! Addresses of the clients, asked of the system once per connection.

use dwell_evloop::Token;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The addresses of clients, by the place of their connections.
///
/// Shape: 20 bytes each. A place may still hold the address of an earlier connection; it is set
/// again before it is read.
#[derive(Debug, Default)]
pub(super) struct Peers {
    addresses: Vec<Packed>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Packed {
    ip: [u8; 16],
    port: u16,
    family: Family,
}

#[derive(Clone, Copy, Debug, Default)]
enum Family {
    #[default]
    None,
    V4,
    V6,
}

impl Peers {
    pub(super) fn insert(&mut self, connection: Token, address: Option<SocketAddr>) {
        let place = connection.index() as usize;
        if place >= self.addresses.len() {
            self.addresses.resize(place + 1, Packed::default());
        }
        self.addresses[place] = address.map_or_else(Packed::default, Packed::of);
    }

    pub(super) fn find(&self, connection: Token) -> Option<SocketAddr> {
        self.addresses.get(connection.index() as usize)?.address()
    }
}

impl Packed {
    fn of(address: SocketAddr) -> Self {
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
            Family::None => return None,
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
            peers.insert(token(5), Some(address));
            assert_eq!(peers.find(token(5)), Some(address));
        }
        peers.insert(token(5), None);
        assert_eq!(peers.find(token(5)), None);
        assert_eq!(peers.find(token(6)), None);
        assert!(size_of::<Packed>() <= 20);
    }
}
