//! From a client's request to the bytes that the application gets.

use std::fmt::Write as _;
use std::net::IpAddr;

use bytes::Bytes;
use dwell_proto::http1::{BodyFraming, Fields, RequestHead, Version, encode, is_hop_by_hop};

/// Who a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedFor {
    /// The client's address; `None` where it has none, as on a unix socket.
    pub peer: Option<IpAddr>,
    /// How it came: `http` or `https`.
    pub proto: &'static str,
}

/// Whether the answer to a request is for its client alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// For its client alone.
    Own,
    /// Others may get it too, so the request leaves out what would make the answer fit its client
    /// only: conditions, ranges and `Accept-Encoding`.
    Shared,
}

/// What an answer is to be, whatever the client wants to make of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// What the client asks for.
    AsAsked,
    /// One value, which begins a stream of the edge's own: the request leaves out what asks for a
    /// stream.
    OneValue,
}

/// Makes the request that the application gets from the one that a client sent.
///
/// Shape: method, target, `Host` and all end-to-end fields stay as they are; `host` stands in
/// where the client named none. A target in absolute form is sent as its path, with its authority
/// as `Host`. The body goes with a `Content-Length`, whatever its framing was.
/// `X-Forwarded-For` gets the peer appended. `X-Forwarded-Proto` and `X-Forwarded-Host` are ours,
/// except that those of a peer on a loopback or private address are kept: there it is a proxy of
/// one's own that knows better.
///
/// Left out, besides the fields of the connection and those it nominates: `Expect`, whose promise
/// was kept already, and names with an underscore, which CGI and WSGI cannot tell from the same
/// name with a hyphen.
///
/// Source: RFC 9110 sections 7.6.1 and 7.8; RFC 9112 section 3.2.
pub fn encode_request(
    head: &RequestHead<'_, '_>,
    body: &[u8],
    host: &str,
    forwarded: ForwardedFor,
    sharing: Sharing,
    wants: Wants,
) -> Bytes {
    let mut out = Vec::with_capacity(head.length + body.len() + ADDED_BYTES);
    request_line(&mut out, head);
    let named = head.host.filter(|host| !host.is_empty());
    let host = named.unwrap_or(host.as_bytes());
    encode::field(&mut out, "Host", host);
    let peer_is_proxy = forwarded.peer.is_none_or(is_private);
    let has_nominated = head.fields.find("connection").is_some();
    for (name, value) in head.fields.iter() {
        let nominated = || has_nominated && head.fields.has_token("connection", name);
        let is_left_out = (sharing == Sharing::Shared && is_ones_own(name))
            || (wants == Wants::OneValue && is_of_streams(name));
        if !is_left_out && !is_written_anew(name, peer_is_proxy) && !nominated() {
            encode::field(&mut out, name, value);
        }
    }
    forwarded_fields(&mut out, head.fields, host, forwarded, peer_is_proxy);
    if !body.is_empty() || head.framing != BodyFraming::None {
        encode::field_u64(&mut out, "Content-Length", body.len() as u64);
    }
    encode::field(&mut out, "Connection", b"keep-alive");
    encode::end_of_head(&mut out);
    out.extend_from_slice(body);
    Bytes::from(out)
}

fn request_line(out: &mut Vec<u8>, head: &RequestHead<'_, '_>) {
    if head.authority.is_none() {
        return encode::request_line(out, head.method, head.target, Version::Http11);
    }
    let mut target = String::with_capacity(head.target.len());
    target.push_str(head.path);
    if let Some(query) = head.query {
        target.push('?');
        target.push_str(query);
    }
    encode::request_line(out, head.method, &target, Version::Http11);
}

fn forwarded_fields(
    out: &mut Vec<u8>,
    fields: Fields<'_, '_>,
    host: &[u8],
    forwarded: ForwardedFor,
    peer_is_proxy: bool,
) {
    let mut chain = Vec::new();
    for earlier in fields.all(FOR) {
        append_member(&mut chain, earlier);
    }
    if let Some(peer) = forwarded.peer {
        let mut text = String::with_capacity(40);
        // Writing to a string cannot fail.
        let _ = write!(text, "{}", peer.to_canonical());
        append_member(&mut chain, text.as_bytes());
    }
    if !chain.is_empty() {
        encode::field(out, FOR, &chain);
    }
    let is_kept = |name| peer_is_proxy && fields.find(name).is_some();
    if !is_kept(PROTO) {
        encode::field(out, PROTO, forwarded.proto.as_bytes());
    }
    if !is_kept(HOST) && !host.is_empty() {
        encode::field(out, HOST, host);
    }
}

fn append_member(list: &mut Vec<u8>, member: &[u8]) {
    if !list.is_empty() && !member.is_empty() {
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(member);
}

fn is_written_anew(name: &str, peer_is_proxy: bool) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    is_hop_by_hop(name)
        || is("host")
        || is("content-length")
        || is("expect")
        || is(FOR)
        || (!peer_is_proxy && (is(PROTO) || is(HOST)))
        || name.contains('_')
}

/// Fields that make an answer depend on what one client has or takes (RFC 9110 sections 12.5.3,
/// 13.1 and 14.2).
fn is_ones_own(name: &str) -> bool {
    const OWN: [&str; 7] = [
        "if-none-match",
        "if-modified-since",
        "if-match",
        "if-unmodified-since",
        "if-range",
        "range",
        "accept-encoding",
    ];
    OWN.iter().any(|own| name.eq_ignore_ascii_case(own))
}

/// Fields that ask for a stream of events, or say where one was.
fn is_of_streams(name: &str) -> bool {
    name.eq_ignore_ascii_case("accept") || name.eq_ignore_ascii_case("last-event-id")
}

/// Whether an address is not one of the open Internet.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_loopback() || address.is_private() || address.is_link_local()
        }
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

const FOR: &str = "X-Forwarded-For";
const PROTO: &str = "X-Forwarded-Proto";
const HOST: &str = "X-Forwarded-Host";
/// Room for what is added to a client's head.
const ADDED_BYTES: usize = 256;

#[cfg(test)]
mod tests;
