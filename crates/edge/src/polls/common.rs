//! The part of a client's request that goes into a shared request to the application.
//!
//! A shared request carries a short list of what its client sent, and is shared by clients from
//! which the application would get the same: nothing that only one of them sent decides what the
//! others get.

use super::ask::{Ask, Method, has_body};
use crate::access::{client_address, is_trusted};
use crate::config::{Config, RouteConfig};
use crate::log::{TRACEPARENT, TraceId};
use bytes::Bytes;
use dwell_proto::http1::{FieldStorage, HeadLimits, RequestHead, is_hop_by_hop, parse_request};
use dwell_upstream::{ForwardedFor, Sharing, Wants, encode_request, is_of_streams, is_ones_own};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::SocketAddr;

/// The identity of a request among those for one key, as the application sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) method: Method,
    /// A digest of the target and of all that goes along, keyed so that clients cannot make two
    /// alike.
    pub(crate) digest: u64,
}

/// The properties of a request as it is sent for all clients that ask the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    pub(crate) variant: Variant,
    /// Something that its client sent is left out.
    pub(crate) is_trimmed: bool,
    /// It carries nothing but what is the same for all clients that share it.
    pub(crate) is_plain: bool,
    /// It carries nothing but what the key is made of, so its answer may be stored under the key.
    pub(crate) is_of_key: bool,
}

impl Common {
    pub(crate) fn of(
        route: &RouteConfig,
        head: &RequestHead<'_, '_>,
        wants: Wants,
        ask: &Ask,
        hasher: &RandomState,
    ) -> Self {
        let method = ask.method;
        let mut digest = hasher.build_hasher();
        ask.form.is_secure().hash(&mut digest);
        head.path.hash(&mut digest);
        for part in query_parts(head.query) {
            part.hash(&mut digest);
        }
        let has_body = has_body(head);
        let passing = Passing::new(route, has_body);
        let takes_any = takes_any(head);
        let trace = TraceId::of_fields(head.fields);
        let (mut is_trimmed, mut is_plain) = (route.fill, !has_body);
        if passing.takes("host") {
            head.host.hash(&mut digest);
        }
        for (name, value) in head.fields.iter() {
            if is_of_connection(name) || is_ones_own(name) {
                continue;
            }
            if takes_any && is_accept(name) {
                continue;
            }
            // That of whoever asks first goes along, and sets no request apart.
            if trace.is_some() && is_traceparent(name) {
                continue;
            }
            if wants == Wants::OneValue && is_of_streams(name) {
                continue;
            }
            if !passing.takes(name) {
                is_trimmed = true;
            } else if passing.is_unshared(name) {
                is_plain = false;
            } else {
                name.to_ascii_lowercase().hash(&mut digest);
                value.hash(&mut digest);
            }
        }
        Self {
            variant: Variant {
                method,
                digest: digest.finish(),
            },
            is_trimmed,
            is_plain,
            is_of_key: is_plain && method == Method::Get && is_target_of_key(route, head),
        }
    }
}

/// Returns true if the target has nothing but the parts of the key, and each only once: of two
/// values the application may take the one that is not in the key. A key that is made of an
/// identity belongs to that client, whatever the target has.
fn is_target_of_key(route: &RouteConfig, head: &RequestHead<'_, '_>) -> bool {
    let key = &route.key;
    if key.is_of_identity() {
        return true;
    }
    let name_of = |part: &str| part.split('=').next().unwrap_or_default().to_owned();
    let mut names: Vec<String> = query_parts(head.query).map(name_of).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    let is_once = names.len() == count && names.iter().all(|name| key.takes_query(name));
    let fields = head.fields.iter().map(|(name, _)| name);
    let mut headers: Vec<String> = fields
        .filter(|name| key.takes_header(name))
        .map(str::to_ascii_lowercase)
        .collect();
    headers.sort_unstable();
    let is_repeated = headers.windows(2).any(|two| two[0] == two[1]);
    is_once && !is_repeated && (key.takes_path() || head.path == route.prefix)
}

/// The choice of the fields of a shared request.
#[derive(Clone, Copy, Debug)]
struct Passing<'r> {
    route: &'r RouteConfig,
    is_identity: bool,
    has_body: bool,
}

impl<'r> Passing<'r> {
    fn new(route: &'r RouteConfig, has_body: bool) -> Self {
        Self {
            route,
            is_identity: route.key.is_of_identity(),
            has_body,
        }
    }

    fn takes(self, name: &str) -> bool {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if self.route.key.takes_header(name) || is("x-forwarded-proto") {
            return true;
        }
        if is("cookie") {
            return self.is_identity || self.route.share_cookies;
        }
        // The cache has one value of a key, whatever name and form the first request wanted.
        if is("host") || is("x-forwarded-host") || is("accept") {
            return !self.route.fill;
        }
        self.has_body && (is("content-type") || is("content-encoding") || is("content-language"))
    }

    /// Returns true if the route permits that requests which differ in this field are shared.
    fn is_unshared(self, name: &str) -> bool {
        let is_content = name
            .get(..8)
            .is_some_and(|start| start.eq_ignore_ascii_case("content-"));
        let is_cookie = name.eq_ignore_ascii_case("cookie");
        (is_content || is_cookie && !self.is_identity) && !self.route.key.takes_header(name)
    }
}

/// The origin of a request: its connection, and the certificate that is sent on.
#[derive(Clone, Copy, Default)]
pub(super) struct Origin<'c> {
    pub(super) peer: Option<SocketAddr>,
    pub(super) is_secure: bool,
    pub(super) certificate: Option<&'c [u8]>,
}

/// The request that the application gets: for all clients that share it where it is shared on a
/// route, and as it came otherwise.
pub(super) fn encode(
    config: &Config,
    shared_on: Option<&RouteConfig>,
    head: &RequestHead<'_, '_>,
    body: &[u8],
    origin: Origin<'_>,
    wants: Wants,
) -> Bytes {
    let peer = origin.peer;
    let passing = shared_on.map(|route| Passing::new(route, has_body(head)));
    let takes_any = takes_any(head);
    let trace = TraceId::of_fields(head.fields);
    let passes = |name: &str| {
        let has_fields = !takes_any || !is_accept(name);
        let is_of_trace = trace.is_some() && is_traceparent(name);
        passing.is_none_or(|passing| is_of_trace || has_fields && passing.takes(name))
    };
    let target = passing.and_then(|_| common_target(head.path, head.query));
    let trusted = &config.server.trusted_proxies;
    let sharing = match passing {
        Some(_) => Sharing::Shared {
            passes: &passes,
            client: client_address(peer, head.fields, trusted),
        },
        None => Sharing::Own,
    };
    let asked = RequestHead {
        target: target.as_deref().unwrap_or(head.target),
        authority: head.authority.filter(|_| target.is_none()),
        ..*head
    };
    let forwarded = ForwardedFor {
        peer: peer.map(|peer| peer.ip()),
        proto: if origin.is_secure { "https" } else { "http" },
        is_trusted: is_trusted(peer, trusted),
        certificate: origin.certificate,
    };
    let host = &config.upstream.default_host;
    encode_request(&asked, body, host, forwarded, sharing, wants)
}

/// The target of a shared request, and the names of the fields of its client that it leaves out.
pub(super) fn shared_form(
    config: &Config,
    route: &RouteConfig,
    head: &RequestHead<'_, '_>,
    wants: Wants,
) -> Option<(String, Vec<String>)> {
    let bytes = encode(config, Some(route), head, &[], Origin::default(), wants);
    let mut storage = FieldStorage::new();
    let sent = parse_request(&bytes, &mut storage, &HeadLimits::default()).ok()?;
    let mut left_out: Vec<String> = Vec::new();
    for (name, _) in head.fields.iter() {
        let is_listed = left_out
            .iter()
            .any(|other| other.eq_ignore_ascii_case(name));
        if !is_hop_by_hop(name) && !is_listed && sent.fields.find(name).is_none() {
            left_out.push(name.to_owned());
        }
    }
    Some((sent.target.to_owned(), left_out))
}

/// The target of a shared request, if it differs from that of its client: the cursor and the wait
/// in a query are the client's alone.
fn common_target(path: &str, query: Option<&str>) -> Option<String> {
    let is_same = query?.split('&').all(is_for_all);
    (!is_same).then(|| target_of(path, query))
}

/// The target that a path has with the parts of a query that are for the application.
pub(super) fn target_of(path: &str, query: Option<&str>) -> String {
    let mut target = path.to_owned();
    for (place, part) in query_parts(query).enumerate() {
        target.push(if place == 0 { '?' } else { '&' });
        target.push_str(part);
    }
    target
}

/// The parts of a query that are for the application.
fn query_parts(query: Option<&str>) -> impl Iterator<Item = &str> {
    let parts = query.unwrap_or_default().split('&');
    parts.filter(|part| is_for_all(part))
}

fn is_for_all(part: &str) -> bool {
    let name = part.split('=').next().unwrap_or_default();
    !matches!(name, "" | "k" | "since" | "wait" | "last_event_id")
}

/// Returns true for a field of the connection, and for one that the edge writes itself.
fn is_of_connection(name: &str) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    is_hop_by_hop(name)
        || is("host")
        || is("content-length")
        || is("expect")
        || is("via")
        || is("x-forwarded-for")
}

fn is_accept(name: &str) -> bool {
    name.eq_ignore_ascii_case("accept")
}

fn is_traceparent(name: &str) -> bool {
    name.eq_ignore_ascii_case(TRACEPARENT)
}

/// Returns true if a request accepts any form, as one without `Accept` does.
fn takes_any(head: &RequestHead<'_, '_>) -> bool {
    let mut asked = head.fields.all("accept");
    asked.all(|value| value.trim_ascii() == b"*/*")
}
