//! From a client's request to the bytes that the application gets.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::Client;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dwell_proto::http1::{
    BodyFraming, Fields, RequestHead, Version, encode, is_hop_by_hop, list_tokens,
};

/// The origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedFor<'c> {
    /// The client's address; `None` where it has none, as on a unix socket.
    pub peer: Option<IpAddr>,
    /// Its scheme: `http` or `https`.
    pub proto: &'static str,
    /// True for the address of a trusted proxy, which may name others.
    pub is_trusted: bool,
    /// The certificate in DER that the client has shown to the edge, if it is to be sent on. It is
    /// not sent where others share the request, nor for a trusted proxy, which names its own
    /// clients.
    pub certificate: Option<&'c [u8]>,
}

/// The sharing of a request's response.
#[derive(Clone, Copy)]
pub enum Sharing<'s> {
    /// For its client alone.
    Own,
    /// Other clients may get it too. So the request leaves out all that would make the response fit
    /// its client only: conditions, ranges, `Accept-Encoding`, the proxies it has passed, and all
    /// other fields that are not let through.
    Shared {
        /// Returns true for a field that goes along, `Host` among them.
        passes: &'s dyn Fn(&str) -> bool,
        /// The client that is named as the one that asks.
        client: Client,
    },
}

/// The form of a response, independent of the client's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// The form that the client requests.
    AsAsked,
    /// One value as it is, for a stream or an answer of the edge's own: the request leaves out what
    /// asks for a stream, and what would make the answer anything else than the value.
    OneValue,
}

/// The body of a request that is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody<'b> {
    /// It is all there.
    Whole(&'b [u8]),
    /// This is its beginning, and the rest follows.
    Begins(&'b [u8]),
}

/// The facts of a request that are sent on beside its end-to-end fields.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Passing<'b> {
    /// The protocol that is asked for.
    upgrade: Option<&'b [u8]>,
    /// The client waits before it sends its body.
    expects: bool,
    /// The client takes trailer fields.
    takes_trailers: bool,
    /// The body goes on in chunks.
    is_chunked: bool,
    /// Others share it, so it names no proxies before the edge.
    is_shared: bool,
    /// The trailer fields of a chunked body that is all there.
    trailers: &'b [(&'b str, &'b [u8])],
}

/// Makes the request that the application gets from a poll of a client.
///
/// Shape: method, target, `Host` and all end-to-end fields stay as they are; `default_host` stands
/// in where the client named none. A target in absolute form is sent as its path, with its
/// authority as `Host`. The body goes with a `Content-Length`, whatever its framing was.
/// `X-Forwarded-For` gets the peer appended, and `Via` the edge. `X-Forwarded-Proto` and
/// `X-Forwarded-Host` are the edge's, but of a trusted proxy its own are kept, and so are the other
/// fields in which proxies describe a client; from all others these are dropped. `Client-Cert` has
/// the certificate of the client, if it goes along.
///
/// Left out, besides the fields of the connection and those it nominates: `Expect`, whose promise
/// was kept already, and names with an underscore, which CGI and WSGI cannot tell from the same
/// name with a hyphen.
///
/// Source: RFC 9110 sections 7.6.1, 7.6.3 and 7.8; RFC 9112 section 3.2.
pub fn encode_request(
    head: &RequestHead<'_, '_>,
    body: &[u8],
    default_host: &str,
    forwarded: ForwardedFor<'_>,
    sharing: Sharing<'_>,
    wants: Wants,
) -> Bytes {
    let is_left_out = |name: &str| {
        let is_for_all = match sharing {
            Sharing::Own => wants == Wants::OneValue,
            Sharing::Shared { passes, .. } if !passes(name) => return true,
            Sharing::Shared { .. } => true,
        };
        (is_for_all && is_ones_own(name)) || (wants == Wants::OneValue && is_of_streams(name))
    };
    let (peer, is_shared) = match sharing {
        Sharing::Own => (forwarded.peer, false),
        Sharing::Shared { client, .. } => (client, true),
    };
    let forwarded = ForwardedFor { peer, ..forwarded };
    let passing = Passing {
        is_shared,
        ..Passing::default()
    };
    let body = RequestBody::Whole(body);
    encode(head, body, default_host, forwarded, passing, is_left_out)
}

/// As [`encode_request`], of a request that is no poll: its body may follow, and goes on as chunks,
/// with `trailers` if it is there, or with its length, as it comes. `Upgrade`
/// goes on (but not to HTTP/2, which is not spoken here), and so do `Expect: 100-continue` where
/// nothing of the body has come, `TE: trailers` and `Trailer`.
///
/// Source: RFC 9110 sections 6.6.2, 7.8, 10.1.1 and 10.1.4.
pub fn encode_forward(
    head: &RequestHead<'_, '_>,
    body: RequestBody<'_>,
    trailers: &[(&str, &[u8])],
    default_host: &str,
    forwarded: ForwardedFor<'_>,
) -> Bytes {
    let passing = Passing {
        upgrade: upgrade_of(head),
        expects: body == RequestBody::Begins(&[]) && head.expect_continue,
        takes_trailers: takes_trailers(head),
        is_chunked: head.framing == BodyFraming::Chunked,
        trailers,
        ..Passing::default()
    };
    encode(head, body, default_host, forwarded, passing, |_| false)
}

/// True if the client of a request takes trailer fields. HTTP/2 has no `Connection` to name `TE`.
///
/// Source: RFC 9110 section 10.1.4; RFC 9113 section 8.2.2.
fn takes_trailers(head: &RequestHead<'_, '_>) -> bool {
    let is_named = head.version == Version::Http2 || head.fields.has_token("connection", "te");
    is_named && head.fields.has_token("te", "trailers")
}

/// The protocol that a request asks for, if that is passed on: of a request without a body, as the
/// protocol changes behind it, and any but HTTP/2.
///
/// Source: RFC 9110 section 7.8; RFC 9113 section 3.1.
pub fn upgrade_of<'b>(head: &RequestHead<'_, 'b>) -> Option<&'b [u8]> {
    let has_body = !matches!(head.framing, BodyFraming::None | BodyFraming::Length(0));
    let upgrade = head.upgrade.filter(|_| !has_body)?;
    let is_http2 = |protocol: &[u8]| {
        protocol.len() >= 2 && protocol[..2].eq_ignore_ascii_case(b"h2")
            || protocol.len() >= 4 && protocol[..4].eq_ignore_ascii_case(b"http")
    };
    (!list_tokens(upgrade).any(is_http2)).then_some(upgrade)
}

/// True for methods that may be sent twice (RFC 9110 section 9.2.2, RFC 10008).
pub fn is_idempotent(method: &str) -> bool {
    matches!(
        method,
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE" | "QUERY"
    )
}

fn encode(
    head: &RequestHead<'_, '_>,
    body: RequestBody<'_>,
    default_host: &str,
    forwarded: ForwardedFor<'_>,
    passing: Passing<'_>,
    is_left_out: impl Fn(&str) -> bool,
) -> Bytes {
    let (RequestBody::Whole(bytes) | RequestBody::Begins(bytes)) = body;
    let mut out = Vec::with_capacity(head.length + bytes.len() + ADDED_BYTES);
    request_line(&mut out, head);
    let named = head.host.filter(|_| !is_left_out("host"));
    let host = named.unwrap_or(default_host.as_bytes());
    encode::field(&mut out, "Host", host);
    let has_nominated = head.fields.find("connection").is_some();
    for (name, value) in head.fields.iter() {
        let nominated = || has_nominated && head.fields.has_token("connection", name);
        let is_announcement = passing.is_chunked && name.eq_ignore_ascii_case("trailer");
        let is_believed = forwarded.is_trusted || !is_of_proxies(name);
        let is_kept = is_announcement || (!is_written_anew(name) && is_believed);
        if is_kept && !is_left_out(name) && !nominated() {
            encode::field(&mut out, name, value);
        }
    }
    let is_kept = |name: &str| forwarded.is_trusted && !is_left_out(name);
    forwarded_fields(&mut out, head.fields, named, forwarded, passing, is_kept);
    via(&mut out, head, passing.is_shared);
    if passing.is_shared && is_left_out("user-agent") {
        encode::field(&mut out, "User-Agent", b"dwell");
    }
    match (body, head.framing) {
        _ if passing.is_chunked => encode::field(&mut out, "Transfer-Encoding", b"chunked"),
        (RequestBody::Begins(_), BodyFraming::Length(length)) => {
            encode::field_u64(&mut out, "Content-Length", length);
        }
        (RequestBody::Whole([]), BodyFraming::None) => {}
        _ => encode::field_u64(&mut out, "Content-Length", bytes.len() as u64),
    }
    connection_fields(&mut out, passing);
    encode::end_of_head(&mut out);
    if !passing.is_chunked {
        out.extend_from_slice(bytes);
        return Bytes::from(out);
    }
    if !bytes.is_empty() {
        encode::chunk(&mut out, bytes);
    }
    if matches!(body, RequestBody::Whole(_)) {
        encode::last_chunk_with(&mut out, passing.trailers);
    }
    Bytes::from(out)
}

/// Appends the fields of the connection to the application.
fn connection_fields(out: &mut Vec<u8>, passing: Passing<'_>) {
    if passing.expects {
        encode::field(out, "Expect", b"100-continue");
    }
    if passing.takes_trailers {
        encode::field(out, "TE", b"trailers");
    }
    let options: &[u8] = match (passing.upgrade.is_some(), passing.takes_trailers) {
        (true, true) => b"Upgrade, TE",
        (true, false) => b"Upgrade",
        (false, true) => b"keep-alive, TE",
        (false, false) => b"keep-alive",
    };
    encode::field(out, "Connection", options);
    if let Some(protocols) = passing.upgrade {
        encode::field(out, "Upgrade", protocols);
    }
}

/// Adds the edge to the proxies that the request has passed.
///
/// Source: RFC 9110 section 7.6.3.
fn via(out: &mut Vec<u8>, head: &RequestHead<'_, '_>, is_shared: bool) {
    let mut chain = Vec::new();
    for earlier in head.fields.all(VIA).filter(|_| !is_shared) {
        append_member(&mut chain, earlier);
    }
    append_member(
        &mut chain,
        match head.version {
            Version::Http10 => b"1.0 dwell",
            Version::Http11 => b"1.1 dwell",
            Version::Http2 => b"2.0 dwell",
        },
    );
    encode::field(out, VIA, &chain);
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
    host: Option<&[u8]>,
    forwarded: ForwardedFor<'_>,
    passing: Passing<'_>,
    is_kept: impl Fn(&str) -> bool,
) {
    let mut chain = Vec::new();
    for earlier in fields.all(FOR).filter(|_| !passing.is_shared) {
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
    let is_kept = |name| fields.find(name).is_some() && is_kept(name);
    if !is_kept(PROTO) {
        encode::field(out, PROTO, forwarded.proto.as_bytes());
    }
    if let Some(host) = host.filter(|_| !is_kept(HOST)) {
        encode::field(out, HOST, host);
    }
    let is_clients_own = !forwarded.is_trusted && !passing.is_shared;
    if let Some(certificate) = forwarded.certificate.filter(|_| is_clients_own) {
        let value = format!(":{}:", STANDARD.encode(certificate));
        encode::field(out, CLIENT_CERT, value.as_bytes());
    }
}

fn append_member(list: &mut Vec<u8>, member: &[u8]) {
    if !list.is_empty() && !member.is_empty() {
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(member);
}

fn is_written_anew(name: &str) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    is_hop_by_hop(name)
        || is("host")
        || is("content-length")
        || is("expect")
        || is(FOR)
        || is(VIA)
        || name.contains('_')
}

/// Fields in which a proxy describes its client, beside [`FOR`].
///
/// Source: RFC 7239 and RFC 9440 section 2.4 for those that have a standard.
fn is_of_proxies(name: &str) -> bool {
    const BEGINNING: &str = "X-Forwarded-";
    let start = name.get(..BEGINNING.len()).unwrap_or_default();
    start.eq_ignore_ascii_case(BEGINNING)
        || name.eq_ignore_ascii_case("Forwarded")
        || name.eq_ignore_ascii_case("X-Real-IP")
        || name.eq_ignore_ascii_case(CLIENT_CERT)
        || name.eq_ignore_ascii_case("Client-Cert-Chain")
}

/// Fields that make an answer depend on what one client has or takes (RFC 9110 sections 12.5.3,
/// 13.1 and 14.2).
pub fn is_ones_own(name: &str) -> bool {
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

/// Fields that ask for a stream of events or a WebSocket, or say where one was.
pub fn is_of_streams(name: &str) -> bool {
    const WEBSOCKET: &str = "sec-websocket-";
    let start = name.get(..WEBSOCKET.len()).unwrap_or_default();
    start.eq_ignore_ascii_case(WEBSOCKET)
        || name.eq_ignore_ascii_case("accept")
        || name.eq_ignore_ascii_case("last-event-id")
}

const FOR: &str = "X-Forwarded-For";
const PROTO: &str = "X-Forwarded-Proto";
const HOST: &str = "X-Forwarded-Host";
const VIA: &str = "Via";
/// Source: RFC 9440 section 2.2.
const CLIENT_CERT: &str = "Client-Cert";
/// Room for what is added to a client's head.
const ADDED_BYTES: usize = 256;

#[cfg(test)]
mod tests;
