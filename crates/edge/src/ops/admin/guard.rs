//! Requests that the admin listener rejects before it reads their path.
//!
//! On loopback, every page in a browser on the machine can send requests here. With DNS rebinding a
//! page gives its own host name the address 127.0.0.1, so that the browser takes this listener for
//! the page's server. A form can be sent to another origin without a preflight. Both are detected
//! by fields that browsers set and pages cannot change: `Host`, and `Origin` or `Sec-Fetch-Site`.

use crate::config::ServerConfig;
use crate::metrics::AdminRefusal;
use dwell_proto::http1::RequestHead;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The rules of the configuration.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Accepted host names; `None` accepts any.
    hosts: Option<Vec<String>>,
}

impl Guard {
    /// Reads the rules.
    ///
    /// Shape: an address that other machines can reach may have any name in their DNS, so there
    /// only a configured list is checked.
    pub(super) fn of(server: &ServerConfig) -> Self {
        let is_kept = server.admin_is_local() || !server.admin_hosts.is_empty();
        Self {
            hosts: is_kept.then(|| server.admin_hosts.clone()),
        }
    }

    /// The reason for which a request is rejected, if it is.
    pub(super) fn refusal(&self, head: &RequestHead<'_, '_>) -> Option<AdminRefusal> {
        if !self.accepts_host(head.host) {
            return Some(AdminRefusal::Host);
        }
        let changes_nothing = matches!(head.method, "GET" | "HEAD");
        (!changes_nothing && is_of_another_site(head)).then_some(AdminRefusal::Site)
    }

    fn accepts_host(&self, host: Option<&[u8]>) -> bool {
        // Browsers always send `Host`.
        let (Some(hosts), Some(host)) = (&self.hosts, host) else {
            return true;
        };
        let name = name_in(host);
        is_localhost_or_address(name) || hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Returns true if a browser has sent the request for a host by its name, other than `localhost`:
/// with DNS rebinding this machine may be the host of anybody's page.
pub(crate) fn is_for_a_name(head: &RequestHead<'_, '_>) -> bool {
    head.host
        .is_some_and(|host| !is_localhost_or_address(name_in(host)))
}

fn is_localhost_or_address(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<Ipv4Addr>().is_ok()
        || is_ipv6_literal(name)
}

/// The host without its port.
fn name_in(host: &[u8]) -> &str {
    // A parsed host is ASCII.
    without_port(std::str::from_utf8(host).unwrap_or_default())
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_ipv6_literal(name: &str) -> bool {
    let inside = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    inside.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

/// Returns true if a browser has sent the request for a page of another origin.
///
/// Source: W3C Fetch Metadata section 2.3; WHATWG Fetch, "`Origin` header".
pub(crate) fn is_of_another_site(head: &RequestHead<'_, '_>) -> bool {
    if let Some(site) = head.fields.find("sec-fetch-site") {
        return !matches!(site, b"same-origin" | b"none");
    }
    let Some(origin) = head.fields.find("origin") else {
        return false;
    };
    let authority = [&b"http://"[..], b"https://"]
        .iter()
        .find_map(|scheme| origin.strip_prefix(*scheme));
    let own = head.host.unwrap_or_default();
    authority.is_none_or(|authority| !authority.eq_ignore_ascii_case(own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};

    fn refusal(options: &str, line: &str, fields: &str) -> Option<AdminRefusal> {
        let config = config::parse("test.toml", &format!("[server]\n{options}\n"), &[]).unwrap();
        let version = if fields.is_empty() { "1.0" } else { "1.1" };
        let text = format!("{line} HTTP/{version}\r\n{fields}\r\n");
        let mut storage = FieldStorage::new();
        let head = parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
        Guard::of(&config.server).refusal(&head)
    }

    fn of_host(options: &str, host: &str) -> Option<AdminRefusal> {
        refusal(options, "GET /-/", &format!("Host: {host}\r\n"))
    }

    #[test]
    fn on_loopback_a_name_has_to_be_known() {
        for host in [
            "localhost",
            "LocalHost:9090",
            "127.0.0.1:9090",
            "[::1]:9090",
            "[::1]",
        ] {
            assert_eq!(of_host("", host), None, "{host}");
        }
        assert_eq!(refusal("", "GET /-/", ""), None);
        let refused = Some(AdminRefusal::Host);
        for host in [
            "evil.example",
            "evil.example:9090",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.1",
            "0x7f000001",
        ] {
            assert_eq!(of_host("", host), refused, "{host}");
        }
        let named = "admin_hosts = [\"dwell.internal\"]";
        assert_eq!(of_host(named, "Dwell.Internal:9090"), None);
        assert_eq!(of_host(named, "localhost"), None);
        assert_eq!(of_host(named, "evil.example"), refused);
        // The target's own host wins over the field.
        let fields = "Host: localhost\r\n";
        let target = "GET http://evil.example/-/";
        assert_eq!(refusal("", target, fields), refused);
    }

    #[test]
    fn elsewhere_only_where_names_are_listed() {
        let open = "admin = \"0.0.0.0:9090\"";
        assert_eq!(of_host(open, "dwell.monitoring.svc"), None);
        let listed = format!("{open}\nadmin_hosts = \"dwell.monitoring.svc\"");
        assert_eq!(of_host(&listed, "dwell.monitoring.svc:9090"), None);
        assert_eq!(of_host(&listed, "other.example"), Some(AdminRefusal::Host));
    }

    #[test]
    fn a_page_of_another_origin_changes_nothing() {
        let of = |line: &str, field: &str| {
            refusal("", line, &format!("Host: localhost:9090\r\n{field}\r\n"))
        };
        let refused = Some(AdminRefusal::Site);
        for field in [
            "Sec-Fetch-Site: cross-site",
            "Sec-Fetch-Site: same-site",
            "Origin: https://evil.example",
            "Origin: null",
            "Origin: http://localhost:3000",
        ] {
            for line in ["PUT /-/keys/a", "POST /-/keys/a", "DELETE /-/keys/a"] {
                assert_eq!(of(line, field), refused, "{line} {field}");
            }
            assert_eq!(of("GET /-/keys/a", field), None, "{field}");
        }
        for field in [
            "Sec-Fetch-Site: same-origin",
            "Sec-Fetch-Site: none",
            "Origin: http://localhost:9090",
            "X: y",
        ] {
            assert_eq!(of("PUT /-/keys/a", field), None, "{field}");
        }
    }
}
