//! The client that a request comes from.

use crate::config::Network;
use dwell_proto::http1::{Fields, list_tokens};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The address of the client, if it is known.
///
/// Shape: the address of the connection, unless that is a trusted proxy. Behind one, the last
/// address in `X-Forwarded-For` that is not a trusted proxy: a client can have written those before
/// it.
pub(crate) fn client_address(
    peer: Option<SocketAddr>,
    fields: Fields<'_, '_>,
    trusted: &[Network],
) -> Option<IpAddr> {
    let mut address = peer?.ip().to_canonical();
    let is_proxy = |address| is_among(address, trusted);
    if !is_proxy(address) {
        return Some(address);
    }
    let lines: Vec<&[u8]> = fields.all("x-forwarded-for").collect();
    for hop in lines.iter().rev().flat_map(|line| {
        let hops: Vec<_> = list_tokens(line).collect();
        hops.into_iter().rev()
    }) {
        let Some(before) = parse(hop) else {
            break;
        };
        address = before;
        if !is_proxy(address) {
            break;
        }
    }
    Some(address)
}

/// Returns true for the connection of a proxy whose `X-Forwarded-For` is trusted; false where the
/// peer's address is unknown.
pub(crate) fn is_trusted(peer: Option<SocketAddr>, trusted: &[Network]) -> bool {
    peer.is_some_and(|peer| is_among(peer.ip().to_canonical(), trusted))
}

/// The scheme that a client uses: that of the connection, unless a trusted proxy names another in
/// the first word of `X-Forwarded-Proto`.
pub(crate) fn client_scheme(
    is_secure: bool,
    peer: impl FnOnce() -> Option<SocketAddr>,
    fields: Fields<'_, '_>,
    trusted: &[Network],
) -> &'static str {
    // Without a proxy, neither the field nor the address is looked for.
    let told = if trusted.is_empty() {
        None
    } else {
        forwarded_scheme(fields)
    };
    let told = told.filter(|_| is_trusted(peer(), trusted));
    told.unwrap_or(if is_secure { "https" } else { "http" })
}

/// The scheme that the first word of `X-Forwarded-Proto` names.
pub(crate) fn forwarded_scheme(fields: Fields<'_, '_>) -> Option<&'static str> {
    let first = list_tokens(fields.find("x-forwarded-proto")?).next()?;
    let mut known = ["https", "http"].into_iter();
    known.find(|scheme| first.eq_ignore_ascii_case(scheme.as_bytes()))
}

fn is_among(address: IpAddr, trusted: &[Network]) -> bool {
    trusted.iter().any(|network| network.contains(address))
}

/// An address as proxies write it: in brackets or not, with a port or not.
fn parse(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim();
    let address = text
        .parse::<IpAddr>()
        .or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip()))
        .ok();
    let in_brackets = || {
        let inside = text.strip_prefix('[')?.strip_suffix(']')?;
        inside.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
    };
    address
        .or_else(in_brackets)
        .map(|address| address.to_canonical())
}

/// The address under which a client is counted: an IPv6 client has a network of 64 bits for itself.
pub(crate) fn counted_as(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};

    fn client(peer: &str, fields: &str) -> String {
        let text = format!("GET /p HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        let mut storage = FieldStorage::new();
        let head = parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
        let trusted: Vec<Network> = ["127.0.0.1", "10.0.0.0/8", "fd00::/8"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let peer = peer.parse().unwrap();
        client_address(Some(peer), head.fields, &trusted)
            .unwrap()
            .to_string()
    }

    #[test]
    fn a_stranger_is_known_by_the_connection_alone() {
        let forged = "X-Forwarded-For: 1.2.3.4\r\n";
        assert_eq!(client("9.9.9.9:1", forged), "9.9.9.9");
        assert_eq!(client("[::ffff:9.9.9.9]:1", forged), "9.9.9.9");
    }

    #[test]
    fn a_trusted_proxy_names_its_client() {
        for (fields, address) in [
            ("", "127.0.0.1"),
            ("X-Forwarded-For: 1.2.3.4\r\n", "1.2.3.4"),
            ("X-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.1.1.1\r\n", "1.2.3.4"),
            (
                "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 1.2.3.4\r\n",
                "1.2.3.4",
            ),
            ("X-Forwarded-For: 10.2.2.2\r\n", "10.2.2.2"),
            ("X-Forwarded-For: 1.2.3.4:5\r\n", "1.2.3.4"),
            ("X-Forwarded-For: [2001:db8::1]:5\r\n", "2001:db8::1"),
            ("X-Forwarded-For: [2001:db8::1]\r\n", "2001:db8::1"),
            ("X-Forwarded-For: 1.2.3.4, unknown\r\n", "127.0.0.1"),
            ("X-Forwarded-For: 1.2.3.4, ::ffff:5.6.7.8\r\n", "5.6.7.8"),
        ] {
            assert_eq!(client("127.0.0.1:9", fields), address, "{fields}");
        }
    }

    #[test]
    fn the_scheme_is_that_of_the_connection_or_of_a_trusted_proxy() {
        let trusted: Vec<Network> = vec!["10.0.0.0/8".parse().unwrap()];
        let scheme = |is_secure: bool, peer: &str, fields: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let mut storage = FieldStorage::new();
            let head = parse_request(text.as_bytes(), &mut storage, &HeadLimits::default());
            let (peer, fields) = (peer.parse().unwrap(), head.unwrap().fields);
            client_scheme(is_secure, || Some(peer), fields, &trusted)
        };
        let (proxy, stranger) = ("10.1.2.3:4", "9.9.9.9:4");
        let https = "X-Forwarded-Proto: HTTPS, http\r\n";
        assert_eq!(scheme(false, stranger, ""), "http");
        assert_eq!(scheme(true, stranger, ""), "https");
        assert_eq!(scheme(false, stranger, https), "http", "anyone says that");
        assert_eq!(scheme(false, proxy, https), "https");
        assert_eq!(scheme(true, proxy, "X-Forwarded-Proto: http\r\n"), "http");
        assert_eq!(scheme(true, proxy, "X-Forwarded-Proto: wss\r\n"), "https");
        assert_eq!(scheme(false, proxy, ""), "http");
    }

    #[test]
    fn only_a_proxy_that_is_named_is_trusted() {
        let trusted: Vec<Network> = vec!["10.0.0.0/8".parse().unwrap()];
        let by = |peer: &str| is_trusted(Some(peer.parse().unwrap()), &trusted);
        assert!(by("10.1.2.3:4") && by("[::ffff:10.1.2.3]:4"));
        assert!(!by("127.0.0.1:4") && !by("192.168.0.1:4") && !by("[::1]:4"));
        assert!(!is_trusted(None, &trusted));
        assert!(!is_trusted(Some("127.0.0.1:4".parse().unwrap()), &[]));
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_client() {
        let counted = |text: &str| counted_as(text.parse().unwrap()).to_string();
        assert_eq!(counted("1.2.3.4"), "1.2.3.4");
        assert_eq!(counted("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(counted("2001:db8:1:2::1"), counted("2001:db8:1:2:ffff::"));
    }
}
